"""Errors that name the extra of a package that is not installed."""

import contextlib
from collections.abc import Generator, Sequence

from tff_algos.core import errors

# Extra of `pyproject.toml` -> packages that are imported of it; of two extras
# that install the same, the one that does more comes first.
_PACKAGES = {
  'dask': ('distributed',),
  'notebook': ('pandas',),
  'pipelines': ('apache_beam', 'datasketches'),
  'reports': ('jinja2', 'matplotlib', 'scipy', 'sklearn'),
  'search': ('optuna', 'sqlalchemy'),
  'stores': ('obstore',),
  'tfds': ('tensorflow_datasets',),
  'tff': ('tensorflow_federated',),
  'tracking': ('mlflow', 'wandb'),
  'train': (
    *('dp_accounting', 'grpc', 'psutil', 'tensorflow', 'tensorflow_serving'),
    'tqdm',
  ),
  'serving': (
    *('grpc', 'h11', 'orjson', 'prometheus_client', 'starlette', 'tensorflow'),
    *('tensorflow_serving', 'uvicorn'),
  ),
}


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
    raise _missing(error.name, [extra], purpose) from error


@contextlib.contextmanager
def named() -> Generator[None]:
  """Turns an import of an absent package of any extra into a user's error.

  That of another module, such as one of a config file, is raised as it is.

  Raises:
    UserError: If a package is not installed; names it and its extras.
  """
  try:
    yield
  except ModuleNotFoundError as error:
    extras = [one for one, names in _PACKAGES.items() if error.name in names]
    if not extras:
      raise
    raise _missing(error.name, extras, 'This program') from error


def _missing(
  package: str | None, extras: Sequence[str], purpose: str
) -> errors.UserError:
  return errors.UserError(
    f'{purpose} needs the package {package!r}, which is not installed: '
    f'install the extra {" or ".join(map(repr, extras))} '
    f"(pip install 'tff-algos[{extras[0]}]')"
  )
