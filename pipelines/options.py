"""Config of a federated dataset: source, partition, sizes and splits."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from pipelines.partitions import registry as laws
from pipelines.sources import registry
from tff_algos.core import checks, errors
from tff_algos.core import config as config_lib

IDENTITY = 'identity'
ROTATIONS = 'rotations'
LABEL_PERMUTATIONS = 'label_permutations'
NATIVE = 'native'
NOISE = 'noise'
COLORS = 'colors'
# Kind -> required option.
_DISTRIBUTION_OPTIONS = {
  IDENTITY: None,
  ROTATIONS: 'quarter_turns',
  LABEL_PERMUTATIONS: 'num_permutations',
  NOISE: 'noise_levels',
  COLORS: 'colors',
  NATIVE: None,
}
COLOR_NAMES = ('original', 'inverted', 'gray', 'gbr', 'brg')

EQUAL = 'equal'
UNIFORM = 'uniform'
POWER_LAW = 'power_law'
LOGNORMAL = 'lognormal'
DIRICHLET = 'dirichlet'
# law -> the options that it needs, and those that it may have.
_SIZE_OPTIONS = {
  EQUAL: ((), ()),
  UNIFORM: (('minimum', 'maximum'), ()),
  POWER_LAW: (('exponent', 'minimum', 'maximum'), ()),
  LOGNORMAL: (('log_mean', 'log_deviation', 'minimum'), ('maximum',)),
  DIRICHLET: (('concentration',), ('minimum',)),
}

CONTENT = 'content'
GROUP = 'group'
TIME = 'time'
CLIENT = 'client'
CLIENT_TIME = 'client_time'
# Splits decided for all examples at once, and for each client after dealing.
FOR_ALL = (CONTENT, GROUP, TIME)
PER_CLIENT = (CLIENT, CLIENT_TIME)

RATIO = 'ratio'
DEALT = 'dealt'
ALL_OF_CLASSES = 'all_of_classes'


@dataclasses.dataclass(frozen=True)
class SourceConfig:
  """Source of raw examples.

  Attributes:
    name: Key of `sources.registry.SOURCES`.
    options: Fields of that source's `Options`; those that are None are left
      out.
  """

  name: str
  options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  def __post_init__(self):
    given = {k: v for k, v in self.options.items() if v is not None}
    object.__setattr__(self, 'options', given)


@dataclasses.dataclass(frozen=True)
class DistributionsConfig:
  """Source distributions as transformations of raw examples.

  Attributes:
    kind: `'identity'` (one distribution), `'rotations'`,
      `'label_permutations'`, `'noise'`, `'colors'`, or `'native'` (those of the
      source). Rotations, noise and colors of a source with native
      distributions give the product of both.
    quarter_turns: For rotations: counter-clockwise turns by 90 degrees of
      each distribution, such as (0, 1) for upright and rotated.
    num_permutations: For label permutations: how many distributions; the
      first keeps its labels.
    noise_levels: For noise: standard deviation of the Gaussian noise of each
      distribution, in units of the source's features, such as (0.0, 0.2).
    colors: For colors: color transformation of each distribution: `'original'`,
      `'inverted'`, and for three channels `'gray'`, `'gbr'`, `'brg'` (the
      channels in another order).
  """

  kind: str = IDENTITY
  quarter_turns: tuple[int, ...] | None = None
  num_permutations: int | None = None
  noise_levels: tuple[float, ...] | None = None
  colors: tuple[str, ...] | None = None

  def __post_init__(self) -> None:
    checks.check_one_of('kind', self.kind, tuple(_DISTRIBUTION_OPTIONS))
    for kind, name in _DISTRIBUTION_OPTIONS.items():
      if name is not None:
        _check_goes_with(
          name, getattr(self, name), self.kind, needed=kind == self.kind
        )
    for turns in self.quarter_turns or ():
      checks.check_int('quarter_turns', turns, minimum=0, maximum=3)
    for level in self.noise_levels or ():
      checks.check_at_least('noise_levels', level, 0)
    for color in self.colors or ():
      checks.check_one_of('colors', color, COLOR_NAMES)
    _check_different('quarter_turns', self.quarter_turns, 'turns')
    _check_different('noise_levels', self.noise_levels, 'levels')
    _check_different('colors', self.colors, 'colors')
    if self.num_permutations is not None:
      checks.check_int('num_permutations', self.num_permutations, minimum=1)

  @property
  def num_views(self) -> int:
    """Returns the number of distributions per native one."""
    views = self.quarter_turns or self.noise_levels or self.colors or (0,)
    return self.num_permutations or len(views)


@dataclasses.dataclass(frozen=True)
class PartitionConfig:
  """Assignment of examples to clients; docs/partitions.md has every scheme.

  Attributes:
    law: The scheme. Mixing source distributions: shares in percent such as
      `'10:90'` (the clients are as many blocks as there are shares, and in
      each block the shares move on by one), `'linear'` (two distributions;
      shares climb over the clients), `'random'` (uniform on the simplex, any
      number of distributions), `'iid'` (equal shares). Dividing the classes,
      where each client has one transformation: `'shards'`,
      `'classes_per_client'`, `'dirichlet'`, `'class_groups'`,
      `'consecutive_classes'`. And `'natural'` (the source names the client of
      each example).
    num_clients: Clients that training may use; None for natural: all of them.
    num_unseen_clients: More clients of the same scheme, never seen by training.
      Where natural clients come and go between datasets, see `unseen_fraction`
      of that scheme.
    options: Fields of that scheme's `Options`; with all defaults once checked.
  """

  law: str
  num_clients: int | None = None
  num_unseen_clients: int = 0
  options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  def __post_init__(self) -> None:
    parsed = laws.parse_options(self.law, self.options)
    object.__setattr__(self, 'options', dataclasses.asdict(parsed))
    if self.law != laws.NATURAL or self.num_clients is not None:
      checks.check_int('num_clients', self.num_clients, minimum=1)
    checks.check_int('num_unseen_clients', self.num_unseen_clients, minimum=0)
    fraction = self.options.get('unseen_fraction')
    if fraction and (self.num_clients is not None or self.num_unseen_clients):
      raise errors.ConfigError(
        f'options.unseen_fraction={fraction} takes its share of all clients, '
        f'got num_clients={self.num_clients} and num_unseen_clients='
        f'{self.num_unseen_clients} as well. Leave out either.'
      )

  @property
  def law_options(self) -> Any:
    """Returns the options as an instance of the scheme's `Options`."""
    return laws.parse_options(self.law, self.options)

  @property
  def has_unseen(self) -> bool:
    """Returns whether there are unseen clients."""
    return bool(self.num_unseen_clients or self.options.get('unseen_fraction'))

  @property
  def divides_classes(self) -> bool:
    """Returns whether the scheme divides the examples by their classes."""
    return self.law in laws.DIVISIONS


@dataclasses.dataclass(frozen=True)
class SizesConfig:
  """How many examples a client has under a scheme that mixes distributions.

  They are its training examples, n_k; with `splits.split_by='client'`, all.

  Attributes:
    law: `'equal'` (the same for all, as many as the pools allow), `'uniform'`
      (an integer from minimum to maximum, each as likely), `'power_law'`
      (density n^-exponent from minimum to maximum), `'lognormal'` (minimum
      plus a log-normal draw rounded down, at most maximum), or `'dirichlet'`
      (in proportion to one Dirichlet draw, as large as the pools allow).
    minimum: Least size; 0 is legal but for the power law.
    maximum: Greatest size; None is legal for log-normal: without bound.
    exponent: Of the power law, > 0.
    log_mean: Mean of the logarithm, such as 4.
    log_deviation: Standard deviation of the logarithm, such as 2.
    concentration: Of the Dirichlet distribution, from 1e-6 to 1e6; small ones
      give very different sizes.
  """

  law: str = EQUAL
  minimum: int | None = None
  maximum: int | None = None
  exponent: float | None = None
  log_mean: float | None = None
  log_deviation: float | None = None
  concentration: float | None = None

  def __post_init__(self) -> None:
    checks.check_one_of('law', self.law, tuple(_SIZE_OPTIONS))
    needed, possible = _SIZE_OPTIONS[self.law]
    for field in dataclasses.fields(self)[1:]:
      if field.name not in possible:
        _check_goes_with(
          field.name,
          getattr(self, field.name),
          self.law,
          needed=field.name in needed,
        )
    least = 1 if self.law == POWER_LAW else 0
    if self.minimum is not None:
      checks.check_int('minimum', self.minimum, minimum=least)
    if self.maximum is not None:
      checks.check_int('maximum', self.maximum, minimum=self.minimum or 0)
    if self.log_mean is not None:
      checks.check_at_least('log_mean', self.log_mean, 0)
    for name in ('exponent', 'log_deviation'):
      if getattr(self, name) is not None:
        checks.check_positive(name, getattr(self, name))
    if self.concentration is not None:
      checks.check_concentration(self.concentration)


@dataclasses.dataclass(frozen=True)
class SplitsConfig:
  """Split of examples into train, validation and test.

  Attributes:
    validation_ratio: Validation examples of a client per training example.
    test_ratio: Test examples of a client per training example.
    held_out_fraction: Share of all examples held out from the clients, for
      tests of each source distribution, selected by the hash of their
      features; unused if the source has an official test split that is not
      pooled, which is then held out as a whole.
    split_by: `'content'` (the hash of its features decides what a raw example
      is, in every distribution and at every client); `'group'` (the same by
      the hash of its group, so no split divides a group); `'time'` (the
      earliest examples are for training, then come validation, test and
      held-out examples, in exact shares); `'client'` (each client's examples
      are split in exact shares, training and validation rounded down; not for
      schemes that assign a raw example more than once); or `'client_time'` (the
      same in the order of time; the latest of all examples are held out).
    pool_test_split: Whether the official test split is pooled with the
      training examples.
    client_test: A client's test examples: `'ratio'` (by test_ratio),
      `'dealt'` (held-out examples are partitioned by the same scheme: by
      classes, or to their natural clients), or `'all_of_classes'` (all held-out
      examples of the client's classes, shared with other clients).
    time_gap: Examples less than this after the border of two splits by time
      are left out, in the unit of the times (seconds for dates): the length of
      overlapping windows.
  """

  validation_ratio: float = 0.0
  test_ratio: float = 0.0
  held_out_fraction: float = 0.2
  split_by: str = CONTENT
  pool_test_split: bool = False
  client_test: str = RATIO
  time_gap: float = config_lib.added_option(0.0)

  def __post_init__(self) -> None:
    checks.check_at_least('validation_ratio', self.validation_ratio, 0)
    checks.check_at_least('test_ratio', self.test_ratio, 0)
    checks.check_fraction('held_out_fraction', self.held_out_fraction)
    checks.check_one_of('split_by', self.split_by, FOR_ALL + PER_CLIENT)
    checks.check_at_least('time_gap', self.time_gap, 0)
    if self.time_gap and not self.is_by_time:
      raise errors.ConfigError(
        f'split_by={self.split_by!r} takes no time_gap, got {self.time_gap!r}; '
        f'use split_by={TIME!r} or {CLIENT_TIME!r}.'
      )
    checks.check_one_of(
      'client_test', self.client_test, (RATIO, DEALT, ALL_OF_CLASSES)
    )
    if self.client_test != RATIO and self.test_ratio:
      raise errors.ConfigError(
        f'client_test={self.client_test!r} takes no test_ratio, got '
        f'{self.test_ratio!r}: the test examples are held-out ones.'
      )

  @property
  def ratios(self) -> tuple[float, float, float]:
    """Returns the examples of each split per training example."""
    return 1.0, self.validation_ratio, self.test_ratio

  @property
  def is_by_client(self) -> bool:
    """Returns whether examples are split after they are dealt to clients."""
    return self.split_by in PER_CLIENT

  @property
  def is_by_time(self) -> bool:
    """Returns whether the splits follow the times of the examples."""
    return self.split_by in (TIME, CLIENT_TIME)


@dataclasses.dataclass(frozen=True)
class DatasetConfig:
  """Config of a federated dataset; determines its content.

  Attributes:
    source: Source of raw examples.
    partition: Partition of the examples among clients.
    distributions: Source distributions.
    sizes: Number of examples per client.
    splits: Splits of the examples.
    seed: Base of all randomness, >= 0.
    num_shards: Files of each split.
    max_dead_letter_fraction: The build fails if more than this share of the
      raw examples is malformed.
    redact_dead_letters: Whether dead letters leave out the content of the raw
      data: client id, value and row. File, line, column and reason remain.
    fitted_from: Folder of an earlier dataset of the same features, whose fitted
      values (means, vocabularies) are taken over, so that a model that was
      trained on it can be trained on and compared; '' to fit them anew.
    keep_unlabelled: Whether clients of whom no example has a label are kept, to
      be scored; needs partition scheme `'natural'`. Examples without a label of
      other clients are left out then. Else both are malformed.
    pixel_mean: Images, whose pixels are from 0 to 1, are read as (pixel -
      pixel_mean) / pixel_std.
    pixel_std: See `pixel_mean`; > 0.
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
  redact_dead_letters: bool = config_lib.added_option(False)
  fitted_from: str = config_lib.added_option('')
  keep_unlabelled: bool = config_lib.added_option(False)
  pixel_mean: float = config_lib.added_option(0.0)
  pixel_std: float = config_lib.added_option(1.0)

  def __post_init__(self) -> None:
    checks.check_int('seed', self.seed, minimum=0)
    checks.check_fraction('pixel_mean', self.pixel_mean)
    checks.check_positive('pixel_std', self.pixel_std)
    checks.check_int('num_shards', self.num_shards, minimum=1)
    checks.check_below_one(
      'max_dead_letter_fraction', self.max_dead_letter_fraction
    )
    registry.create(self.source.name, self.source.options, self.seed)
    self._check_clients()
    self._check_law()

  def _check_clients(self) -> None:
    """Raises ConfigError if a table names no clients for scheme `'natural'`."""
    options = registry.parse_options(self.source.name, self.source.options)
    is_natural = self.partition.law == laws.NATURAL
    if is_natural and getattr(options, 'client_column', None) == '':
      raise errors.ConfigError(
        "partition.law 'natural' needs the client of each row: set "
        'source.options.client_column to its column'
      )

  def _check_law(self) -> None:
    """Raises ConfigError if sizes or splits do not fit the scheme."""
    law, splits = self.partition.law, self.splits
    if self.keep_unlabelled and law != laws.NATURAL:
      raise errors.ConfigError(
        f'keep_unlabelled needs partition.law {laws.NATURAL!r}, got {law!r}'
      )
    takes_parts = self.partition.divides_classes or law == laws.NATURAL
    if takes_parts and self.sizes.law != EQUAL:
      raise errors.ConfigError(
        f'partition.law {law!r} decides the sizes itself; leave out sizes, got '
        f'sizes.law={self.sizes.law!r}'
      )
    if splits.client_test == DEALT and not takes_parts:
      raise errors.ConfigError(
        f'partition.law {law!r} mixes distributions and has no shares of the '
        "held-out examples; set splits.client_test='ratio' and test_ratio."
      )
    if splits.client_test == ALL_OF_CLASSES and not (
      self.partition.divides_classes
    ):
      raise errors.ConfigError(
        "splits.client_test='all_of_classes' needs a scheme that gives clients "
        f'classes; partition.law {law!r} does not.'
      )
    if (
      splits.is_by_client
      and not takes_parts
      and self.distributions.kind not in (IDENTITY, NATIVE)
    ):
      raise errors.ConfigError(
        f'partition.law {law!r} deals a raw example once in every distribution '
        f'of kind {self.distributions.kind!r}, so with '
        f'splits.split_by={splits.split_by!r} '
        "it could train at one client and test at another; use 'content'."
      )
    if (
      self.partition.divides_classes
      and self.distributions.kind == LABEL_PERMUTATIONS
    ):
      raise errors.ConfigError(
        f'partition.law {law!r} divides classes, and distributions of kind '
        f'{LABEL_PERMUTATIONS!r} name them differently; use another kind.'
      )


def _check_goes_with(name: str, value: Any, kind: str, *, needed: bool) -> None:
  """Raises ConfigError if an option is missing, or not one of the kind."""
  if (value is not None) != needed:
    verb = 'needs' if needed else 'takes no'
    raise errors.ConfigError(f'{kind!r} {verb} {name}, got {name}={value!r}')


def _check_different(name: str, values: Any, what: str) -> None:
  """Raises ConfigError unless a list, if given, has different items."""
  if values is not None and (not values or len(set(values)) < len(values)):
    raise errors.ConfigError(
      f'{name} must be different {what}, at least one, got {values!r}'
    )
