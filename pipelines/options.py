"""The config of a dataset: which examples, over which clients, how split."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from pipelines.sources import registry
from tff_algos.core import checks, errors

IDENTITY = 'identity'
ROTATIONS = 'rotations'
LABEL_PERMUTATIONS = 'label_permutations'
NATIVE = 'native'

IID = 'iid'
NATURAL = 'natural'
LINEAR = 'linear'
RANDOM = 'random'
_SHARES = re.compile(r'(\d{1,3}):(\d{1,3})')

EQUAL = 'equal'
UNIFORM = 'uniform'


@dataclasses.dataclass(frozen=True)
class SourceConfig:
  """Where raw examples come from.

  Attributes:
    name: Key of `sources.registry.SOURCES`.
    options: Fields of that source's `Options`.
  """

  name: str
  options: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class DistributionsConfig:
  """How raw examples become source distributions.

  Attributes:
    kind: `'identity'` (one distribution), `'rotations'`,
      `'label_permutations'`, or `'native'` (the source has its own).
    quarter_turns: For rotations: counter-clockwise turns by 90 degrees of
      each distribution, such as (0, 1) for upright and rotated.
    num_permutations: For label permutations: how many distributions; the
      first keeps its labels.
  """

  kind: str = IDENTITY
  quarter_turns: tuple[int, ...] | None = None
  num_permutations: int | None = None

  def __post_init__(self):
    checks.check_one_of(
      'kind', self.kind, (IDENTITY, ROTATIONS, LABEL_PERMUTATIONS, NATIVE)
    )
    _check_goes_with('quarter_turns', self.quarter_turns, self.kind, ROTATIONS)
    _check_goes_with(
      'num_permutations', self.num_permutations, self.kind, LABEL_PERMUTATIONS
    )
    for turns in self.quarter_turns or ():
      checks.check_int('quarter_turns', turns, minimum=0, maximum=3)
    if self.quarter_turns is not None and (
      not self.quarter_turns
      or len(set(self.quarter_turns)) < len(self.quarter_turns)
    ):
      raise errors.ConfigError(
        'quarter_turns must be different turns, at least one, got '
        f'{self.quarter_turns!r}'
      )
    if self.num_permutations is not None:
      checks.check_int('num_permutations', self.num_permutations, minimum=1)


@dataclasses.dataclass(frozen=True)
class PartitionConfig:
  """Who gets which mixture of the source distributions.

  Attributes:
    law: `'A:B'` such as `'10:90'` (two distributions; one half of the clients
      has A % of the first and B % of the second, the other half the
      reverse), `'linear'` (two distributions; shares climb over the
      clients), `'random'` (uniform on the simplex, any number of
      distributions), `'iid'` (equal shares), or `'natural'` (the source says
      whose each example is).
    num_clients: Clients that training may use; None for natural (all).
    num_unseen_clients: More clients of the same law that training never sees.
  """

  law: str
  num_clients: int | None = None
  num_unseen_clients: int = 0

  def __post_init__(self):
    if self.shares is None:
      checks.check_one_of(
        "law, if not 'A:B' with A + B = 100,",
        self.law,
        (IID, LINEAR, NATURAL, RANDOM),
      )
    if self.law == NATURAL:
      if self.num_clients is not None:
        raise errors.ConfigError(
          "num_clients is what the source says with law 'natural'; leave it "
          f'None, got {self.num_clients!r}'
        )
    else:
      checks.check_int('num_clients', self.num_clients, minimum=1)
    checks.check_int('num_unseen_clients', self.num_unseen_clients, minimum=0)

  @property
  def shares(self) -> tuple[float, float] | None:
    """Returns the two shares of an `'A:B'` law, None for other laws."""
    match = _SHARES.fullmatch(self.law)
    if match is None or sum(map(int, match.groups())) != 100:
      return None
    first, second = match.groups()
    return int(first) / 100, int(second) / 100


@dataclasses.dataclass(frozen=True)
class SizesConfig:
  """How many training examples a client has, n_k.

  Attributes:
    law: `'uniform'` (an integer from minimum to maximum, each as likely) or
      `'equal'` (the same for all, as many as the pools allow).
    minimum: For uniform; 0 is legal.
    maximum: For uniform.
  """

  law: str = EQUAL
  minimum: int | None = None
  maximum: int | None = None

  def __post_init__(self):
    checks.check_one_of('law', self.law, (EQUAL, UNIFORM))
    _check_goes_with('minimum', self.minimum, self.law, UNIFORM)
    _check_goes_with('maximum', self.maximum, self.law, UNIFORM)
    if self.law == UNIFORM:
      checks.check_int('minimum', self.minimum, minimum=0)
      checks.check_int('maximum', self.maximum, minimum=self.minimum)


@dataclasses.dataclass(frozen=True)
class SplitsConfig:
  """How examples are parted, always by the hash of their features.

  Attributes:
    validation_ratio: Validation examples of a client per training example.
    test_ratio: Test examples of a client per training example.
    held_out_fraction: Share of all examples that no client gets, for tests of
      each source distribution; unused if the source has an official test
      split, which then plays that part whole.
  """

  validation_ratio: float = 0.0
  test_ratio: float = 0.0
  held_out_fraction: float = 0.2

  def __post_init__(self):
    checks.check_at_least('validation_ratio', self.validation_ratio, 0)
    checks.check_at_least('test_ratio', self.test_ratio, 0)
    checks.check_fraction('held_out_fraction', self.held_out_fraction)


@dataclasses.dataclass(frozen=True)
class DatasetConfig:
  """Everything that decides what a federated dataset holds.

  Attributes:
    source: Where raw examples come from.
    partition: Who gets which mixture.
    distributions: How raw examples become source distributions.
    sizes: How many examples a client has.
    splits: How examples are parted.
    seed: Base of all randomness, >= 0.
    num_shards: Files of each split.
    max_dead_letter_fraction: The build fails if more than this share of the
      raw examples is malformed.
  """

  source: SourceConfig
  partition: PartitionConfig
  distributions: DistributionsConfig = dataclasses.field(
    default_factory=DistributionsConfig
  )
  sizes: SizesConfig = dataclasses.field(default_factory=SizesConfig)
  splits: SplitsConfig = dataclasses.field(default_factory=SplitsConfig)
  seed: int = 0
  num_shards: int = 1
  max_dead_letter_fraction: float = 0.0

  def __post_init__(self):
    checks.check_int('seed', self.seed, minimum=0)
    checks.check_int('num_shards', self.num_shards, minimum=1)
    checks.check_fraction(
      'max_dead_letter_fraction', self.max_dead_letter_fraction
    )
    registry.create(self.source.name, self.source.options, self.seed)


def _check_goes_with(name: str, value: Any, kind: str, its_kind: str) -> None:
  """Raises ConfigError if an option is missing, or given to another kind."""
  if (value is not None) != (kind == its_kind):
    needed = 'needs' if kind == its_kind else 'takes no'
    raise errors.ConfigError(f'{kind!r} {needed} {name}, got {name}={value!r}')
