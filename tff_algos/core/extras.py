"""Errors that name the extra of a package that is not installed."""

import contextlib
from collections.abc import Generator

from tff_algos.core import errors


@contextlib.contextmanager
def importing(extra: str, purpose: str) -> Generator[None]:
  """Turns an import that fails in the block into an error of the user.

  Args:
    extra: Extra of `pyproject.toml` that installs what is imported.
    purpose: What needs it; begins the sentence.

  Raises:
    UserError: If a package is not installed; names it and the extra.
  """
  try:
    yield
  except ModuleNotFoundError as error:
    raise errors.UserError(
      f'{purpose} needs the package {error.name!r}, which is not installed: '
      f"install the extra {extra!r} (pip install 'tff-algos[{extra}]')"
    ) from error
