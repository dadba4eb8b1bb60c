"""Strict parsing of configs: plain mappings to frozen dataclasses.

An unknown key is an error that names the nearest valid one, a missing key takes
the dataclass's default, and a value of the wrong type is refused, not
converted.
"""

import dataclasses
import difflib
import hashlib
import inspect
import json
import math
import re
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

from tff_algos.core import errors


class Dataclass(Protocol):
  """Any dataclass."""

  __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]


Config = TypeVar('Config', bound=Dataclass)

_ADDED = 'added'
# An attribute of a docstring's section "Attributes:", and its indented text.
_ATTRIBUTE = re.compile(r'^  (\w+): (.*(?:\n    .*)*)', re.MULTILINE)


class Named(NamedTuple):
  """A parsed config section of a registered algorithm, model or the like.

  Attributes:
    name: Key of a registry.
    options: Instance of that entry's `config_class`.
  """

  name: str
  options: Any


# Type hints of fields besides generic ones and dataclasses.
_TYPES = (bool, int, float, str, Any, Mapping, dict)


def from_dict(
  config_class: type[Config],
  values: Mapping[str, Any],
  path: str = 'config',
  advice: str = '',
) -> Config:
  """Builds a config dataclass from a mapping, recursively.

  Args:
    config_class: A dataclass; its fields may be dataclasses themselves.
    values: The keys and values; lists become tuples.
    path: Dotted path of `values` in the config, for error texts.
    advice: Advice on an unknown key that may belong to another section.

  Returns:
    A validated instance of `config_class`.

  Raises:
    ConfigError: If a key is unknown or missing, or a value has another type
      or is out of range.
  """
  if not isinstance(values, Mapping):
    raise errors.ConfigError(f'{path} must be a mapping, got {values!r}')
  hints = typing.get_type_hints(config_class)
  fields = {field.name: field for field in dataclasses.fields(config_class)}
  for key in values:
    if key not in fields:
      message = unknown_key_message(path, key, fields)
      raise errors.ConfigError(f'{message}. {advice}' if advice else message)
  arguments = {}
  for name, field in fields.items():
    has_default = default_of(field) is not dataclasses.MISSING
    if values.get(name) is not None or (name in values and has_default):
      arguments[name] = _convert(hints[name], values[name], f'{path}.{name}')
    elif not has_default:
      raise errors.ConfigError(f'{path}.{name} is missing; it has no default')
  try:
    return config_class(**arguments)
  except ValueError as error:
    # Of a plug-in's own check the trace may help.
    cause = None if isinstance(error, errors.ConfigError) else error
    raise errors.ConfigError(f'{path}: {error}') from cause


def default_of(field: dataclasses.Field[Any]) -> Any:
  """Returns the default of a dataclass's field; `MISSING` if there is none."""
  if field.default_factory is not dataclasses.MISSING:
    return field.default_factory()
  return field.default


def check_type(hint: Any, path: str) -> None:
  """Raises ConfigError unless `from_dict` reads values of a type hint.

  Args:
    hint: A dataclass, or the type hint of a field of one.
    path: Name of the dataclass or field, for the error text.
  """
  if isinstance(hint, type) and dataclasses.is_dataclass(hint):
    hints = typing.get_type_hints(hint)
    for field in dataclasses.fields(hint):
      check_type(hints[field.name], f'{path}.{field.name}')
    return
  origin, arguments = typing.get_origin(hint), typing.get_args(hint)
  if origin in (typing.Union, types.UnionType):
    for one in arguments:
      if one is not type(None):
        check_type(one, path)
  elif origin is tuple and arguments[1:] == (...,):
    check_type(arguments[0], path)
  elif origin not in (Mapping, dict) and hint not in _TYPES:
    raise errors.ConfigError(
      f'{path} has the type {hint}, which configs do not read. Take bool, int, '
      'float, str, tuple[T, ...], T | None, Mapping[str, Any], Any or a '
      'dataclass; check values in __post_init__'
    )


def unknown_key_message(
  path: str, key: str, known: typing.Iterable[str]
) -> str:
  """Returns the text for an unknown key, with the nearest valid one."""
  known = sorted(known)
  keys = ', '.join(known) or 'none'
  return f'{path} has no key {key!r}{_hint(key, known)} Its keys are: {keys}'


def _hint(given: object, known: Sequence[str]) -> str:
  nearest = difflib.get_close_matches(str(given), known, n=1, cutoff=0.5)
  return f'; did you mean {nearest[0]!r}?' if nearest else '.'


def parse_named(
  path: str, values: Mapping[str, Any], registry: Mapping[str, Any]
) -> Named:
  """Parses a config section: the name of a registry entry and its options.

  Args:
    path: Dotted path of the section in the config, for error texts.
    values: `name`, and the options of that entry.
    registry: name -> entry with the attribute `config_class`.

  Raises:
    ConfigError: If the name or an option is unknown, or out of range.
  """
  if not isinstance(values, Mapping):
    raise errors.ConfigError(f'{path} must be a mapping, got {values!r}')
  options = dict(values)
  name = options.pop('name', None)
  if not isinstance(name, str) or name not in registry:
    known = sorted(registry)
    raise errors.ConfigError(
      f'{path}.name {name!r} is unknown{_hint(name, known)} Known: '
      f'{", ".join(known)}. Names of a plug-in need its module in '
      '--plugins'
    )
  section = f"{{'name': {name!r}, ...}}"
  advice = (
    f'To change the name by a flag, give the section: --{path}="{section}"'
  )
  config_class = registry[name].config_class
  return Named(name, from_dict(config_class, options, path, advice))


def to_dict(config: Any) -> Any:
  """Returns a config as plain, JSON-ready values."""
  if dataclasses.is_dataclass(config):
    return {
      field.name: to_dict(getattr(config, field.name))
      for field in dataclasses.fields(config)
    }
  if isinstance(config, Named):
    return {'name': config.name, **to_dict(config.options)}
  if isinstance(config, Mapping):
    return {key: to_dict(value) for key, value in config.items()}
  if isinstance(config, (list, tuple)):
    return [to_dict(value) for value in config]
  return config


def added_option(default: Any) -> Any:
  """Returns a dataclass field that `to_recipe` leaves out at its default.

  For options added after datasets were published: without them, a recipe keeps
  its hash.

  Args:
    default: Default of the option; immutable.
  """
  return dataclasses.field(default=default, metadata={_ADDED: True})


def to_recipe(config: Any) -> Any:
  """Returns `to_dict` without the added options that have their default."""
  if not dataclasses.is_dataclass(config):
    return to_dict(config)
  return {
    field.name: to_recipe(getattr(config, field.name))
    for field in dataclasses.fields(config)
    if not (
      field.metadata.get(_ADDED)
      and getattr(config, field.name) == field.default
    )
  }


def config_hash(config: Any) -> str:
  """Returns the hash of a config's or of plain content, 16 hex digits."""
  spelled = json.dumps(to_dict(config), sort_keys=True, allow_nan=False)
  return hashlib.sha256(spelled.encode()).hexdigest()[:16]


def attribute_docs(config_class: type) -> dict[str, str]:
  """Returns field -> text in the docstrings of a class and its bases."""
  found = {}
  for one in reversed(config_class.__mro__):
    _, _, attributes = inspect.cleandoc(one.__doc__ or '').partition(
      '\nAttributes:\n'
    )
    for name, text in _ATTRIBUTE.findall(attributes):
      found[name] = ' '.join(text.replace('`', '').split())
  return found


def flatten(values: Any, prefix: str = '') -> dict[str, Any]:
  """Returns dotted key -> value of nested mappings."""
  if not isinstance(values, Mapping):
    return {prefix.removesuffix('.'): values}
  flat = {}
  for key, value in values.items():
    flat.update(flatten(value, f'{prefix}{key}.'))
  return flat


def differences(ours: Any, theirs: Any, our_word: str) -> list[str]:
  """Returns the differences of two plain, nested mappings, one text a key.

  Args:
    ours: The first mapping.
    theirs: The second mapping; the text calls its values those `there`.
    our_word: Word for the place or time of the first mapping, such as `'now'`.
  """
  flat_ours, flat_theirs = flatten(ours), flatten(theirs)
  return [
    f'{key}: {flat_theirs.get(key, "absent")} there, '
    f'{flat_ours.get(key, "absent")} {our_word}'
    for key in sorted({*flat_ours, *flat_theirs})
    if flat_ours.get(key, ...) != flat_theirs.get(key, ...)
  ]


def _convert(hint: Any, value: Any, path: str) -> Any:
  """Checks `value` against a type hint; only list -> tuple and int -> float."""
  if isinstance(hint, type) and dataclasses.is_dataclass(hint):
    return from_dict(hint, value, path)
  origin = typing.get_origin(hint)
  if origin in (typing.Union, types.UnionType):
    return _convert_union(hint, value, path)
  if origin is tuple:
    if not isinstance(value, (list, tuple)):
      raise errors.ConfigError(f'{path} must be a list, got {value!r}')
    item_hint = typing.get_args(hint)[0]
    return tuple(
      _convert(item_hint, item, f'{path}[{i}]') for i, item in enumerate(value)
    )
  if hint is Any:
    return value
  if hint is float and isinstance(value, int) and not isinstance(value, bool):
    try:
      return float(value)
    except OverflowError:
      raise errors.ConfigError(
        f'{path} must be float, got an integer too large for one: {value!r}'
      ) from None
  if hint is float and isinstance(value, float) and not math.isfinite(value):
    raise errors.ConfigError(f'{path} must be a finite number, got {value!r}')
  if origin is not None or hint in (Mapping, dict):
    if not isinstance(value, Mapping):
      raise errors.ConfigError(f'{path} must be a mapping, got {value!r}')
    return dict(value)
  if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
    raise errors.ConfigError(
      f'{path} must be {hint.__name__}, got {value!r} ({type(value).__name__})'
    )
  return value


def _convert_union(hint: Any, value: Any, path: str) -> Any:
  options = typing.get_args(hint)
  if value is None and type(None) in options:
    return None
  problems = []
  for option in options:
    if option is type(None):
      continue
    try:
      return _convert(option, value, path)
    except errors.ConfigError as error:
      problems.append(str(error))
  raise errors.ConfigError(' or '.join(problems))
