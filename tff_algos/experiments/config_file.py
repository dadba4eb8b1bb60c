"""Lookup, loading and labels of config files."""

import importlib.util
import inspect
import os
import pathlib
import re
import traceback
import types
from collections.abc import Mapping, Sequence
from typing import Any

import ml_collections

from tff_algos.core import errors, plugins
from tff_algos.experiments import config_values

# The folder that holds `tff_algos` and `configs`: a checkout, or site-packages.
_INSTALLED = pathlib.Path(__file__).parents[2]
_CONFIGS = 'configs'
_SUFFIX = '.py'


def find(spelled: str) -> str:
  """Returns the path of a config file, also outside of a checkout.

  A relative path is looked for in the working directory first and then where
  this library is installed, so that `configs/fed_soft/digits.py` is found
  there, as is its name `fed_soft/digits`.

  Args:
    spelled: Path, with an optional variant; returned as it is if neither place
      has the file.

  Raises:
    ConfigError: If the variant is empty.
  """
  path, colon, variant = spelled.partition(':')
  if colon and not variant:
    raise errors.ConfigError(
      f'{spelled}: the variant behind the colon is missing; name one, or leave '
      'the colon out'
    )
  if pathlib.Path(path).is_file():
    return spelled
  for installed in (
    _INSTALLED / path,
    _INSTALLED / _CONFIGS / f'{path}{_SUFFIX}',
  ):
    if installed.is_file():
      return f'{installed}{colon}{variant}'
  return spelled


def name_of(spelled: str) -> str:
  """Returns a name for the folder of a run of a config.

  Args:
    spelled: As `load` takes it; the name of `'fed_soft/digits:smoke'` is
      `'fed_soft_digits_smoke'`, as that of its path.
  """
  path, _, variant = spelled.partition(':')
  path = pathlib.Path(path).with_suffix('')
  parts = path.parts
  if _CONFIGS in parts:
    parts = parts[parts.index(_CONFIGS) + 1 :]
  elif path.is_absolute():
    parts = parts[-1:]
  return '_'.join([*parts, variant] if variant else parts)


def load(spelled: str) -> ml_collections.ConfigDict:
  """Returns the config of a file; loads the plug-ins of installed packages.

  Args:
    spelled: Path, with an optional variant, such as
      `'configs/fed_soft/digits.py:smoke'` or `'fed_soft/digits'`; see `find`.

  Raises:
    ConfigError: If there is no such file or variant, it is no config file, or
      it sets a key that is unknown or a value of another type.
  """
  plugins.load()
  path, _, variant = find(spelled).partition(':')
  if not pathlib.Path(path).is_file():
    raise errors.ConfigError(
      f'{spelled}: there is no file {path!r}, nor a config of that name; the '
      f'names are the paths in {_CONFIGS}/, such as fed_soft/digits'
    )
  spec = importlib.util.spec_from_file_location(pathlib.Path(path).stem, path)
  if spec is None or spec.loader is None:
    raise errors.ConfigError(
      f'{spelled}: a config is a Python file, whose name ends in .py'
    )
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  given = [variant] if variant else []
  _check_takes(module, given, spelled)
  try:
    config = module.get_config(*given)
  except ValueError as error:
    raise errors.ConfigError(f'{spelled}: {error}') from error
  except (AttributeError, KeyError, TypeError) as error:
    frames = traceback.extract_tb(error.__traceback__)
    if 'ml_collections' not in frames[-1].filename:
      raise  # A bug of the file, which keeps its trace.
    # The import has made the name absolute.
    file = os.path.abspath(path)
    own = [one for one in frames if one.filename == file]
    # A file may take its function from another one.
    outside = [one for one in frames if 'ml_collections' not in one.filename]
    found = (own or outside)[-1]
    place = spelled if own else f'{spelled}: {found.filename}'
    raise errors.ConfigError(
      f'{place}, line {found.lineno}: {_words_of(error)}'
    ) from None
  if not isinstance(config, ml_collections.ConfigDict):
    raise errors.ConfigError(
      f'{spelled}: get_config() returns {config!r:.50}, not a ConfigDict; end '
      "it with 'return config'"
    )
  return config


def _words_of(error: Exception) -> str:
  """Returns an error of a ConfigDict without the content of the section."""
  while isinstance(error.args[0], Exception):
    error = error.args[0]
  text = str(error.args[0])
  key = re.match(r"""(?:Key )?['"](\w+)['"]""", text)
  if key is None:
    return text
  hint = re.search('Did you mean .*', text)
  return f'there is no key {key[1]!r}.' + (f' {hint[0]}' if hint else '')


def bases(
  values: Mapping[str, Any],
  spelled: str,
  also: list[str],
  overrides: Mapping[str, Any],
) -> dict[str, Mapping[str, Any]]:
  """Returns label -> nested values of each config file.

  Args:
    values: Of `--config`, with its overrides.
    spelled: The value of `--config`.
    also: Those of `--also`.
    overrides: Dotted key -> value; the other files get them, too.

  Raises:
    ConfigError: If a file cannot be read or has no section for an override.
  """
  path = spelled.partition(':')[0]
  others = [path + one if one.startswith(':') else one for one in also]
  found = [values]
  for other in others:
    config = load(other).to_dict()
    for key, value in overrides.items():
      # As in the file of --config, a mapping replaces the whole section.
      is_section = isinstance(value, ml_collections.ConfigDict)
      config_values.assign(
        config,
        key,
        value.to_dict() if is_section else value,
        f'{other}: --config',
        replaces_section=is_section,
      )
    found.append(config)
  return labelled([spelled, *others], found)


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
    if len(set(labels)) < len(labels):  # Files of several folders `configs`.
      labels = list(spelled)
  if len(set(labels)) < len(labels):
    raise errors.ConfigError(
      f'a config is given twice: {", ".join(spelled)}; name each once'
    )
  return dict(zip(labels, configs, strict=True))


def _check_takes(
  module: types.ModuleType, given: Sequence[str], spelled: str
) -> None:
  """Raises ConfigError if a config file has no `get_config` for a variant.

  Args:
    module: The file.
    given: The variant, if there is one.
    spelled: As `load` takes it, for the error text.
  """
  if not hasattr(module, 'get_config'):
    raise errors.ConfigError(
      f'{spelled}: the file has no get_config(), so it is no config file. Name '
      'another one, or write that function; it returns the config'
    )
  signature = inspect.signature(module.get_config)
  if _binds(signature, given):
    return
  if not _binds(signature, [] if given else ['variant']):
    advice = 'is shared by other config files: name one of them'
  elif given:
    advice = f'takes no variant, got {given[0]!r}: leave it out'
  else:
    advice = f'needs a variant: name one, as in {spelled}:VARIANT'
  raise errors.ConfigError(f'{spelled}: get_config{signature} {advice}')


def _binds(signature: inspect.Signature, arguments: Sequence[str]) -> bool:
  try:
    signature.bind(*arguments)
  except TypeError:
    return False
  return True
