"""Full configs of experiments, from the defaults of their dataclasses.

A config file starts from `experiment` and sets only options that differ. So every
option exists in the config, and a flag of its type can override it.
"""

import dataclasses
import types
import typing
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import ml_collections
from ml_collections import config_dict

from pipelines.partitions import registry as laws
from pipelines.sources import registry as sources
from tff_algos.algorithms import registry as algorithms
from tff_algos.core import config as config_lib
from tff_algos.experiments import experiment as experiment_lib
from tff_algos.models import registry as models


def experiment(
  algorithm: str, *, model: str, source: str, law: str
) -> ml_collections.ConfigDict:
  """Returns a locked config with all options of an algorithm, model and dataset.

  None stands for an option without a default until it is set, and for every
  option of a source that keeps its default.

  Args:
    algorithm: Name in `algorithms.registry`.
    model: Name in `models.registry`.
    source: Name in `sources.registry`, for `dataset.source`.
    law: Name in `partitions.registry`, for `dataset.partition`.
  """
  config = _options(experiment_lib.ExperimentConfig)
  config.algorithm = algorithm_options(algorithm)
  config.model = _named(models.MODELS, model)
  config.dataset.source.name = source
  config.dataset.source.options = _unset(sources.SOURCES[source].config_class)
  config.dataset.partition.law = law
  config.dataset.partition.options = _options(laws.options_class(law))
  return config.lock()


def algorithm_options(name: str) -> ml_collections.ConfigDict:
  """Returns the section `algorithm`: the name and all options."""
  section = _named(algorithms.ALGORITHMS, name)
  if name == 'filter_decomposition':
    section.host = _named(algorithms.ALGORITHMS, algorithms.HOSTS[0])
  return section


def trainings(
  config: ml_collections.ConfigDict,
) -> list[ml_collections.ConfigDict]:
  """Returns the config sections of epoch-based training: local, personal, private."""
  sections = [
    config.algorithm.get(f'{kind}_training', {})
    for kind in ('local', 'personal', 'private')
  ]
  return [section for section in sections if 'optimizer' in section]


def check(variant: str, variants: Collection[str]) -> None:
  """Raises ValueError with a list of all variants if `variant` is not one."""
  if variant not in variants:
    raise ValueError(
      f'variant must be one of {", ".join(variants)}, got {variant!r}'
    )


def part(
  variant: str, data: Sequence[str], methods: Sequence[str]
) -> tuple[str, str]:
  """Returns data and method of a variant such as `mnist` or `mnist_local`.

  Args:
    variant: The data alone, for the first method, or `<data>_<method>`.
    data: Names of data.
    methods: Names of methods, the default first.

  Raises:
    ValueError: If the data or the method is unknown; lists all variants.
  """
  parts = {name: (name, methods[0]) for name in data}
  for method in methods[1:]:
    parts |= {f'{name}_{method}': (name, method) for name in data}
  check(variant, parts)
  return parts[variant]


def _named(registry, name):
  section = _options(registry[name].config_class)
  return ml_collections.ConfigDict({'name': name, **section})


def _options(config_class: type, values: Any = None) -> Any:
  """Returns all options of a dataclass, nested; of the instance `values` if given."""
  hints = typing.get_type_hints(config_class)
  section = ml_collections.ConfigDict()
  for field in dataclasses.fields(config_class):
    hint, value = hints[field.name], config_lib.default_of(field)
    if values is not None:
      value = getattr(values, field.name)
    if value is dataclasses.MISSING:
      value = None
    if dataclasses.is_dataclass(hint):
      section[field.name] = _options(hint, value)
    elif not _is_named_elsewhere(hint):
      section[field.name] = _placeholder(hint) if value is None else value
  return section


def _unset(config_class):
  hints = typing.get_type_hints(config_class)
  return ml_collections.ConfigDict(
    {name: _placeholder(hint) for name, hint in hints.items()}
  )


def _is_named_elsewhere(hint):
  """Returns whether the type of an option depends on a registry name."""
  return hint is config_lib.Named or typing.get_origin(hint) is Mapping


def _placeholder(hint):
  """Returns a typed None for flags; the type of `int | None` is int."""
  if isinstance(hint, types.UnionType):
    hint = next(one for one in typing.get_args(hint) if one is not type(None))
  return config_dict.placeholder(typing.get_origin(hint) or hint)
