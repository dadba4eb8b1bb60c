"""A full disk, by a limit that needs no rights."""

import contextlib
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def after(num_bytes: int) -> Iterator[None]:
  """Lets no file of this process grow beyond so many bytes in the block."""
  soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
  try:
    yield
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
