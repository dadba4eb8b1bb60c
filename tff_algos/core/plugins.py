"""Plug-ins: modules elsewhere that register algorithms, models and sources.

A plug-in calls `register_algorithm`, `register_model` or `register_source` when
it is imported. `load` imports those of installed packages, which name them in
the entry-point group `tff_algos.plugins`, and those given by name.
"""

import dataclasses
import importlib
import importlib.metadata
import re
import traceback
from collections.abc import Callable, Iterable, MutableMapping
from typing import Any, Protocol, TypeVar

from tff_algos.core import config, errors

GROUP = 'tff_algos.plugins'
_NAME = re.compile(r'[a-z][a-z0-9_]*')


class Entry(Protocol):
  """What every registry has under a name.

  Attributes:
    config_class: Dataclass of the options.
    build: Takes the options, an instance of it, among its arguments.
  """

  @property
  def config_class(self) -> type[Any]: ...  # noqa: D102

  @property
  def build(self) -> Callable[..., Any]: ...  # noqa: D102


AnyEntry = TypeVar('AnyEntry', bound=Entry)


def register(
  registry: MutableMapping[str, AnyEntry],
  kind: str,
  name: str,
  entry: AnyEntry,
  base: type = object,
) -> None:
  """Adds an entry to a registry.

  Args:
    registry: Name -> entry.
    kind: What is registered: `'model'`, `'algorithm'` or `'source'`.
    name: Name in configs: lower-case letters, digits and underscores.
    entry: The entry.
    base: Class that its options are derived from.

  Raises:
    ConfigError: If the name is taken or malformed, or the options are no
      dataclass derived from `base`, have a field of a type that configs do not
      read, or, but of a source, one called `name`. A cell of a notebook may
      register its name again, and a module that is loaded again its function
      of the same name.
  """
  if not _NAME.fullmatch(name):
    raise errors.ConfigError(
      f'name of a {kind} must be lower-case letters, digits and underscores, '
      f'got {name!r}'
    )
  if not (
    isinstance(entry.config_class, type)
    and dataclasses.is_dataclass(entry.config_class)
    and issubclass(entry.config_class, base)
  ):
    raise errors.ConfigError(
      f'config_class of {kind} {name!r} must be a dataclass derived from '
      f'{base.__name__}, got {entry.config_class!r}'
    )
  options = f'{kind} {name!r}: {entry.config_class.__name__}'
  config.check_type(entry.config_class, options)
  # Options of a source have a section of their own, beside its name.
  if kind != 'source' and 'name' in entry.config_class.__dataclass_fields__:
    raise errors.ConfigError(
      f"{options} has a field 'name', which in configs is the registered name; "
      'call the field otherwise'
    )
  if name in registry:
    owner = _module(registry[name])
    # A cell that runs again, or a module that is loaded again.
    is_again = owner == '__main__' or _name(entry) == _name(registry[name])
    if not (owner == _module(entry) and is_again):
      raise errors.ConfigError(
        f'{kind} {name!r} is registered already, by {owner}; choose another '
        'name'
      )
  registry[name] = entry


def load(names: Iterable[str] | str = ()) -> None:
  """Imports the plug-ins of installed packages and those named.

  Args:
    names: Modules, such as `'my_package.my_module'`, or one of them.

  Raises:
    ConfigError: If one cannot be imported or registers a wrong entry; names it.
  """
  names = [names] if isinstance(names, str) else names
  installed = importlib.metadata.entry_points(group=GROUP)
  for module in dict.fromkeys([*(one.module for one in installed), *names]):
    try:
      importlib.import_module(module)
    except ModuleNotFoundError as error:
      if f'{module}.'.startswith(f'{error.name}.'):
        raise errors.ConfigError(
          f'plug-in {module!r}: there is no module {error.name!r}; install its '
          'package, or set PYTHONPATH to the folder that holds it'
        ) from None
      raise _failure(module, error) from error
    except Exception as error:
      raise _failure(module, error) from error


def _failure(module: str, error: Exception) -> errors.ConfigError:
  """Returns an error of a plug-in's import, with the place in its code."""
  if isinstance(error, errors.UserError):
    return errors.ConfigError(f'plug-in {module!r}: {error}')
  last = traceback.extract_tb(error.__traceback__)[-1]
  return errors.ConfigError(
    f'plug-in {module!r} cannot be imported: {type(error).__name__}: {error} '
    f'({last.filename}, line {last.lineno})'
  )


def _name(entry: Entry) -> object:
  """Returns the name of its function; the entry itself if that is no name."""
  name = getattr(entry.build, '__qualname__', '<')
  return entry if '<' in name else name


def _module(entry: Entry) -> str:
  return str(getattr(entry.build, '__module__', '__main__'))
