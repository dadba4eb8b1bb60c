"""Config values by dotted key: parsing of options and assignment."""

import ast
from collections.abc import Mapping
from typing import Any

import ml_collections

from tff_algos.core import config as config_lib
from tff_algos.core import errors

# Keys whose value decides which `options` stand beside them.
_CHOICES = ('name', 'law')
# Sections whose own keys their `name` decides.
_NAMED = ('model', 'algorithm', 'host')


def parse(option: str, config: Mapping[str, Any]) -> tuple[Any, ...]:
  """Returns the values of `KEY=VALUE,VALUE,...`, in the type of the config's.

  Args:
    option: The text; commas inside brackets do not separate values.
    config: Nested values; may lack the key.

  Raises:
    ConfigError: If a value is there twice.
  """
  key, _, text = option.partition('=')
  current: Any = config
  for name in key.split('.'):
    current = current.get(name) if isinstance(current, Mapping) else None
  values = tuple(_value(part.strip(), current) for part in _split(text))
  if len({repr(value) for value in values}) < len(values):
    raise errors.ConfigError(f'--grid={option} has a value twice')
  return values


def value_of(values: Mapping[str, Any], key: str) -> Any:
  """Returns the value of a dotted key.

  Raises:
    ConfigError: If there is no such key; names the nearest.
  """
  path, found = 'config', values
  for name in key.split('.'):
    if not isinstance(found, (Mapping, ml_collections.ConfigDict)):
      raise errors.ConfigError(f'{path} is no section, so has no key {name!r}')
    if name not in found:
      message = config_lib.unknown_key_message(path, name, found)
      raise errors.ConfigError(message)
    path, found = f'{path}.{name}', found[name]
  return found


def assign(
  values: dict[str, Any],
  key: str,
  value: Any,
  option: str,
  *,
  replaces_section: bool = False,
) -> None:
  """Sets a value in nested mappings.

  Args:
    values: Changed in place.
    key: Dotted.
    value: Value; validated later by the config's class.
    option: Name of the flag, for the error text.
    replaces_section: Whether the value, a mapping, may take the place of a
      section.

  Raises:
    ConfigError: If the key leads through a section that is not there, or to one
      that may not be replaced.
  """
  *sections, last = key.split('.')
  path = 'config'
  for name in sections:
    if not isinstance(values.get(name), dict):
      known = [one for one in values if isinstance(values[one], dict)]
      message = config_lib.unknown_key_message(path, name, known)
      raise errors.ConfigError(f'{option}={key}: {message}')
    values, path = values[name], f'{path}.{name}'
  if isinstance(values.get(last), dict) and not replaces_section:
    raise errors.ConfigError(
      f'{option}={key}: {path}.{last} is a section; name one of its keys: '
      f'{", ".join(values[last])}'
    )
  values[last] = value


def merged(
  values: Mapping[str, Any], changes: Mapping[str, Any], path: str = 'config'
) -> dict[str, Any]:
  """Returns nested values with some of them changed.

  Where the keys of a section depend on a name (of a model, an algorithm or its
  host, or beside `options`), another name replaces the section: what is not
  given of it has its default.

  Args:
    values: Nested values.
    changes: Nested values of some of the keys; validated later by the config's
      class.
    path: Dotted path of `values`, for error texts.

  Raises:
    ConfigError: If a key is unknown, or a section is changed to a value.
  """
  result = dict(values)
  chosen = any(
    key in changes and changes[key] != values.get(key) for key in _CHOICES
  )
  if chosen and 'options' in values:
    result['options'] = {}
  for key, change in changes.items():
    if key not in values:
      message = config_lib.unknown_key_message(path, key, values)
      raise errors.ConfigError(message)
    current = values[key]
    if isinstance(current, dict) and not isinstance(change, Mapping):
      raise errors.ConfigError(
        f'{path}.{key} is a section, got {change!r}; give a mapping of some of '
        f'its keys: {", ".join(current)}'
      )
    if not isinstance(current, dict) or (key == 'options' and chosen):
      result[key] = change
    elif (
      key in _NAMED and change.get('name', current['name']) != (current['name'])
    ):
      result[key] = dict(change)
    else:
      result[key] = merged(current, change, f'{path}.{key}')
  return result


def _split(text: str) -> list[str]:
  """Returns the parts between the commas that are not inside brackets."""
  parts, depth = [''], 0
  for character in text:
    depth += (character in '([{') - (character in ')]}')
    if character == ',' and not depth:
      parts.append('')
    else:
      parts[-1] += character
  return parts


def _value(text: str, current: Any) -> Any:
  """Returns a value; `current` is the config's own, None if it has none."""
  if isinstance(current, str):
    return text
  if isinstance(current, bool) and text in ('true', 'false'):
    return text == 'true'
  try:
    value = ast.literal_eval(text)
    widens = isinstance(current, float) and type(value) is int
    return float(value) if widens else value
  except (SyntaxError, TypeError, ValueError, OverflowError):
    return text
