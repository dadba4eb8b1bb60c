"""Reference of config options: keys, types, defaults and meanings.

All of it is read from the dataclasses and their docstrings.
"""

import dataclasses
import inspect
import re
import sys
import textwrap
import typing
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pipelines.partitions import mixtures
from pipelines.partitions import registry as laws
from pipelines.sources import registry as sources
from tff_algos.algorithms import registry as algorithms
from tff_algos.core import checks
from tff_algos.core import config as config_lib
from tff_algos.experiments import experiment
from tff_algos.models import registry as models

_WIDTH = 80
# An example of the laws that are shares in percent.
_SHARES = '10:90'


class Option(NamedTuple):
  """One config option.

  Attributes:
    key: Dotted key, such as `'config.algorithm.num_clusters'`.
    type: Type, such as `'float | None'`.
    default: Default value as text; None if the option is required.
    meaning: Meaning, from the docstring.
  """

  key: str
  type: str
  default: str | None
  meaning: str


class Section(NamedTuple):
  """Options that share a part of the config.

  Attributes:
    key: Dotted key of the part, such as `'config.algorithm'`.
    config_class: Dataclass of the options.
    summary: One line on what has these options.
  """

  key: str
  config_class: type
  summary: str


def sections() -> dict[str, dict[str, Section]]:
  """Returns kind -> name -> section of all that a config can name.

  Kinds: `'algorithm'`, `'model'`, `'source'`, `'partition'`, and `'section'`,
  the options of every experiment, and its parts.
  """
  found = {
    'algorithm': {
      name: _section('algorithm', entry.config_class)
      for name, entry in algorithms.ALGORITHMS.items()
    },
    'model': {
      name: _section('model', entry.config_class, entry.build.__module__)
      for name, entry in models.MODELS.items()
    },
    'source': {
      name: _section('dataset.source.options', entry.config_class)
      for name, entry in sources.SOURCES.items()
    },
    'partition': {
      **{
        law: _section(
          'dataset.partition.options',
          laws.options_class(law),
          mixtures.__name__,
        )
        for law in (*mixtures.LAWS, _SHARES)
      },
      **{
        law: _section('dataset.partition.options', laws.options_class(law))
        for law in (*laws.DIVISIONS, laws.NATURAL)
      },
    },
    'section': {
      name: Section(f'config.{name}', hint, _first_line(hint.__doc__))
      for name, hint in typing.get_type_hints(
        experiment.ExperimentConfig
      ).items()
      if isinstance(hint, type) and dataclasses.is_dataclass(hint)
    },
  }
  return {kind: dict(sorted(names.items())) for kind, names in found.items()}


def find(kind: str, name: str) -> Section:
  """Returns the section of a kind and name.

  Raises:
    ConfigError: If there is no such name.
  """
  names = sections()[kind]
  if kind == 'partition' and mixtures.parse_shares(name) is not None:
    name = _SHARES
  return names[checks.check_one_of(kind, name, tuple(names))]


def options(
  config_class: type, key: str, values: Any = None
) -> Iterator[Option]:
  """Yields the options of a dataclass, those of nested dataclasses included.

  Args:
    config_class: The dataclass.
    key: Dotted key of the section that it parses.
    values: Instance with the defaults; by default those of the dataclass.
  """
  hints = typing.get_type_hints(config_class)
  meanings = config_lib.attribute_docs(config_class)
  for field in dataclasses.fields(config_class):
    hint, name = hints[field.name], f'{key}.{field.name}'
    default = config_lib.default_of(field)
    if values is not None:
      default = getattr(values, field.name)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
      given = None if default is dataclasses.MISSING else default
      yield from options(hint, name, given)
    else:
      yield Option(
        name,
        _spell_type(hint),
        None if default is dataclasses.MISSING else repr(default),
        meanings.get(field.name, ''),
      )


def has_option(values: Mapping[str, Any], key: str) -> bool:
  """Returns whether a config may have a key, whether or not it has it.

  Args:
    values: Nested values of the config; its names select the options.
    key: Dotted key of an option, or of a section of options.
  """
  found, wanted = sections(), f'config.{key}.'
  flat = config_lib.flatten(values)
  chosen = [
    found[kind].get(flat.get(place, ''))
    for kind, place in (
      ('algorithm', 'algorithm.name'),
      ('model', 'model.name'),
      ('source', 'dataset.source.name'),
      ('partition', 'dataset.partition.law'),
    )
  ]
  return any(
    f'{option.key}.'.startswith(wanted)
    for section in (*found['section'].values(), *chosen)
    if section is not None
    for option in options(section.config_class, section.key)
  )


def list_names() -> str:
  """Returns all kinds and names with their summaries, as text."""
  blocks = [
    '\n'.join(
      [f'--{kind}=', *(f'  {k:22}{v.summary}' for k, v in names.items())]
    )
    for kind, names in sections().items()
  ]
  return '\n\n'.join(blocks)


def describe(kind: str, name: str) -> str:
  """Returns the options of a kind and name, as text.

  Raises:
    ConfigError: If there is no such name.
  """
  section = find(kind, name)
  blocks = [f'{kind} {name}: {section.summary}']
  for option in options(section.config_class, section.key):
    is_required = option.default is None
    default = 'required' if is_required else f'default: {option.default}'
    blocks += [
      textwrap.fill(
        f'--{option.key}: {option.meaning}',
        _WIDTH,
        initial_indent='  ',
        subsequent_indent='    ',
      ),
      f'    ({option.type}; {default})',
    ]
  if len(blocks) == 1:
    blocks.append('  It has no options.')
  return '\n'.join(blocks)


def _section(key: str, config_class: type, module: str = '') -> Section:
  """Returns a section; its summary is of the module that defines its owner."""
  documented = sys.modules[module or config_class.__module__]
  return Section(f'config.{key}', config_class, _first_line(documented.__doc__))


def _first_line(docstring: str | None) -> str:
  return (docstring or '').partition('\n')[0]


def _spell_type(hint: Any) -> str:
  """Returns a type as one writes it, without the names of modules."""
  if hint is config_lib.Named:
    return 'name and its options'
  if typing.get_origin(hint) is Mapping:
    return 'options of the name beside'
  return re.sub(r'\b\w+\.(?=\w)', '', inspect.formatannotation(hint))
