"""Leases of readers on a dataset version, which protect it from removal.

A lease is a shared lock (flock) on the manifest: it ends with the process that
holds it, however that ends. On file systems without flock there are no leases.
"""

import contextlib
import fcntl
import os
import pathlib
from collections.abc import Generator
from typing import IO

from tff_algos.data import layout


def hold(folder: pathlib.Path) -> IO[bytes] | None:
  """Takes a lease on a version.

  Returns:
    The lease, which ends when the file is closed; None if the version has been
    removed.

  Raises:
    OSError: If the manifest cannot be opened.
  """
  path = folder / layout.MANIFEST
  try:
    file = open(path, 'rb')
  except FileNotFoundError:
    return None
  with contextlib.suppress(OSError):
    fcntl.flock(file, fcntl.LOCK_SH)
  try:
    if os.path.samestat(os.fstat(file.fileno()), path.stat()):
      return file
  except FileNotFoundError:
    pass
  file.close()
  return None


@contextlib.contextmanager
def forbid(folder: pathlib.Path) -> Generator[bool]:
  """Blocks new leases; yields whether no process holds a lease."""
  # Opened for writing: some network file systems lock no other files.
  with open(folder / layout.MANIFEST, 'rb+') as file:
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
      yield False
    except OSError:
      yield True
    else:
      yield True
