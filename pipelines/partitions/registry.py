"""All laws of a partition by the name that a config gives."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pipelines.partitions import (
  classes,
  consecutive,
  dirichlet,
  division,
  groups,
  mixtures,
  natural,
  shards,
)
from tff_algos.core import checks
from tff_algos.core import config as config_lib

NATURAL = 'natural'


class DivisionLaw(NamedTuple):
  """A law that divides the examples by their classes.

  Attributes:
    config_class: Its options.
    divide: (options, request) -> who gets which share of which classes.
  """

  config_class: type
  divide: Callable[[Any, division.Request], division.Division]


DIVISIONS = {
  'class_groups': DivisionLaw(groups.Options, groups.divide),
  'classes_per_client': DivisionLaw(classes.Options, classes.divide),
  'consecutive_classes': DivisionLaw(consecutive.Options, consecutive.divide),
  'dirichlet': DivisionLaw(dirichlet.Options, dirichlet.divide),
  'shards': DivisionLaw(shards.Options, shards.divide),
}


@dataclasses.dataclass(frozen=True)
class _NoOptions:
  """Laws that mix source distributions have no options."""


def options_class(law: str) -> type:
  """Returns the dataclass of a law's options.

  Raises:
    ConfigError: If the law is not known.
  """
  if mixtures.parse_shares(law) is not None:
    return _NoOptions
  checks.check_one_of(
    "law, if not shares such as 'A:B' with A + B = 100,",
    law,
    (*mixtures.LAWS, *DIVISIONS, NATURAL),
  )
  return {
    **dict.fromkeys(mixtures.LAWS, _NoOptions),
    **{name: entry.config_class for name, entry in DIVISIONS.items()},
    NATURAL: natural.Options,
  }[law]


def parse_options(law: str, options: Mapping[str, Any]) -> Any:
  """Returns a law's options.

  Raises:
    ConfigError: If the law, an option's name or its value is not known.
  """
  return config_lib.from_dict(
    options_class(law),
    options,
    'options',
    'To change the law by a flag, give its options besides: '
    '--config.dataset.partition.options="{...}"',
  )
