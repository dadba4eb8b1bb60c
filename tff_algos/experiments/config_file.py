"""Reads config files that are not the value of `--config`, and names them."""

import importlib.util
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import ml_collections

from tff_algos.core import errors


def load(spelled: str) -> ml_collections.ConfigDict:
  """Returns the config of a file.

  Args:
    spelled: Path, with an optional variant, such as
      `'configs/fed_soft/digits.py:smoke'`.

  Raises:
    ConfigError: If there is no such file or variant.
  """
  path, _, variant = spelled.partition(':')
  if not pathlib.Path(path).is_file():
    raise errors.ConfigError(f'{spelled}: there is no file {path!r}')
  spec = importlib.util.spec_from_file_location(pathlib.Path(path).stem, path)
  module = importlib.util.module_from_spec(spec)  # pyright: ignore[reportArgumentType]
  spec.loader.exec_module(module)  # pyright: ignore[reportOptionalMemberAccess]
  try:
    return module.get_config(*([variant] if variant else []))
  except ValueError as error:
    raise errors.ConfigError(f'{spelled}: {error}') from error


def labelled(
  spelled: Sequence[str], configs: Sequence[Mapping[str, Any]]
) -> dict[str, Mapping[str, Any]]:
  """Returns label -> config: the variant, if all are of one file.

  Args:
    spelled: As `load` takes them; else their paths from the folder `configs`
      on, without `.py`, are the labels.
    configs: Their contents.

  Raises:
    ConfigError: If one of them is given twice.
  """
  parts = [one.partition(':') for one in spelled]
  if len({path for path, _, _ in parts}) == 1:
    labels = [variant or 'default' for _, _, variant in parts]
  else:
    labels = [
      path.removesuffix('.py').rpartition('configs/')[2] + colon + variant
      for path, colon, variant in parts
    ]
  if len(set(labels)) < len(labels):
    raise errors.ConfigError(
      f'a config is given twice: {", ".join(spelled)}; name each once'
    )
  return dict(zip(labels, configs, strict=True))
