"""Registry of partitions by the name in a config."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from pipelines.partitions import (
  classes,
  consecutive,
  dirichlet,
  groups,
  mixtures,
  natural,
  shards,
)
from tff_algos.core import checks
from tff_algos.core import config as config_lib

NATURAL = 'natural'


# Partitions by class: name -> module with `Options` and `divide`.
DIVISIONS = {
  'class_groups': groups,
  'classes_per_client': classes,
  'consecutive_classes': consecutive,
  'dirichlet': dirichlet,
  'shards': shards,
}


@dataclasses.dataclass(frozen=True)
class _NoOptions:
  """Options of partitions that mix source distributions: none."""


def options_class(law: str) -> type:
  """Returns the dataclass of a scheme's options.

  Raises:
    ConfigError: If the scheme is unknown.
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
    **{name: module.Options for name, module in DIVISIONS.items()},
    NATURAL: natural.Options,
  }[law]


def parse_options(law: str, options: Mapping[str, Any]) -> Any:
  """Returns a scheme's options.

  Raises:
    ConfigError: If the scheme or an option is unknown, or a value is invalid.
  """
  return config_lib.from_dict(
    options_class(law),
    options,
    'options',
    'To change the law by a flag, give its options besides: '
    '--config.dataset.partition.options="{...}"',
  )
