"""Committee scoring, selection and election by distance between uploads.

Che, Li, Chen, He and Zheng, "A Decentralized Federated Learning Framework via
Committee Mechanism with Convergence Guarantee" (TPDS 2022, CMFL), Eq. 7 and 8
and the strategies of selection and election. Its score of a client is the
inverse of the mean squared distance of the client's upload to those of the
committee; only the order counts, so clients are ranked by the distance itself
and nothing is divided by 0.
"""

import dataclasses
import math
from collections import OrderedDict

import tensorflow as tf

from tff_algos.core import checks, errors
from tff_algos.core.structures import Structure
from tff_algos.numerics import gram, index_random, robust_distances, trees

DISTANCES = ('squared', 'sum_over_weights')
SELECTIONS = ('most_similar', 'least_similar', 'random', 'all')
BASES = ('training', 'active')

_LARGEST_COMMITTEE = 0.5
# Options in place of shares, in the order of `Sizes`.
_COUNTS = ('num_members', 'num_training', 'num_aggregated')
# Entries of all uploads that are converted to float64 at a time: 1 MiB, so that
# they are still cached when they are read again.
_BLOCK_ENTRIES = 1 << 17


@dataclasses.dataclass(frozen=True)
class CommitteeConfig:
  """Sizes of the roles, and strategies of selection and election.

  Attributes:
    active_rate: Share of all clients that take part in a round, in (0, 1].
    committee_rate: omega, share of committee members among the active clients,
      in (0, 0.5].
    aggregation_rate: alpha, share of clients that are averaged, in (0, 1].
    aggregation_base: Base of this share: the `'training'` clients, as in the
      paper's text, or all `'active'` ones, as in its published curves; with
      `num_members` or `num_training`, members and training clients together.
    selection: Averaged clients: `'most_similar'` to the committee (the paper's
      strategy I, against attackers), `'least_similar'` (II, only without
      attackers), `'random'` or `'all'` training clients (controls).
    election_center: Position of the next committee on the ranking of the
      training clients, from 0 (most similar) to 1; 0.5 is the middle.
    num_members: C, committee members, as a number in place of the share; 0 for
      the share.
    num_training: n, training clients, likewise.
    num_aggregated: m, averaged clients, likewise.
    distance: `'squared'` Euclidean distance of whole uploads (Eq. 7), or
      `'sum_over_weights'`, Euclidean distances weight by weight, not squared
      and summed, as in the authors' public code; it compares all pairs.
  """

  active_rate: float = 0.1
  committee_rate: float = 0.4
  aggregation_rate: float = 0.4
  aggregation_base: str = 'training'
  selection: str = 'most_similar'
  election_center: float = 0.5
  num_members: int = 0
  num_training: int = 0
  num_aggregated: int = 0
  distance: str = 'squared'

  def __post_init__(self):
    for name in ('active_rate', 'committee_rate', 'aggregation_rate'):
      checks.check_share(name, getattr(self, name))
    for name in _COUNTS:
      checks.check_int(name, getattr(self, name), minimum=0)
    if self.committee_rate > _LARGEST_COMMITTEE:
      raise errors.ConfigError(
        f'committee_rate is {self.committee_rate:g}, but the next committee is '
        'elected from the training clients and cannot be larger than they are; '
        f'use at most {_LARGEST_COMMITTEE}'
      )
    checks.check_one_of('aggregation_base', self.aggregation_base, BASES)
    checks.check_one_of('selection', self.selection, SELECTIONS)
    checks.check_fraction('election_center', self.election_center)
    checks.check_one_of('distance', self.distance, DISTANCES)


@dataclasses.dataclass(frozen=True)
class Sizes:
  """Numbers of clients by role.

  Attributes:
    committee: C, >= 1.
    training: n, >= C.
    aggregated: m, from 1 to n.
  """

  committee: int
  training: int
  aggregated: int

  def check_counts(self, num_clients: int, config: CommitteeConfig) -> None:
    """Raises ConfigError unless these are the configured numbers."""
    for name, size in zip(_COUNTS, dataclasses.astuple(self), strict=True):
      count = getattr(config, name)
      if count not in (0, size):
        raise errors.ConfigError(
          f'committee.{name} is {count}, but {num_clients} clients with '
          f'examples and selection {config.selection!r} allow {size}, as the '
          'training clients are at least as many as the members and the '
          f'averaged ones; set {name} to {size}, or to 0 for a share'
        )


def sizes(num_clients: int, config: CommitteeConfig) -> Sizes:
  """Returns the sizes of a population's roles.

  The numbers of committee and training clients are each rounded half up, and so
  is a share of the training clients; a share of all active clients is rounded
  down. This gives the authors' numbers (K = 1075: C = 43, n = 65, m = 43).

  Args:
    num_clients: Clients that can take part, K >= 2.
    config: The shares, and the numbers in their place.

  Raises:
    ConfigError: If a number does not fit the population or another number.
  """
  # In binary 0.1 * 3550 * 0.4 is not an integer; rounding must ignore this.
  active = round(config.active_rate * num_clients, 9)
  training = config.num_training or _half_up(
    active * (1 - config.committee_rate)
  )
  least = min(config.num_members or 1, num_clients // 2)
  training = min(max(training, least), num_clients - least)
  committee = config.num_members or _half_up(active * config.committee_rate)
  committee = min(max(committee, 1), training, num_clients - training)
  if config.num_members or config.num_training:
    active = committee + training
  if config.selection == 'all':
    aggregated = training
  elif config.num_aggregated:
    aggregated = config.num_aggregated
  elif config.aggregation_base == 'training':
    aggregated = _half_up(training * config.aggregation_rate)
  else:
    aggregated = math.floor(round(active * config.aggregation_rate, 9))
  found = Sizes(committee, training, min(max(aggregated, 1), training))
  found.check_counts(num_clients, config)
  return found


def _half_up(share: float) -> int:
  return math.floor(round(share, 9) + 0.5)


def mean_distances(
  uploads: Structure, is_member: tf.Tensor, distance: str
) -> tf.Tensor:
  """Returns each upload's mean distance to the committee's uploads.

  The squared distance needs no pairs: it is the squared distance to the
  committee's plain mean plus the members' mean squared distance to it. This
  mean is first subtracted from all uploads, which avoids cancellation.

  Args:
    uploads: Structure of float tensors `[clients, ...]`, finite.
    is_member: Committee members, bool `[clients]`.
    distance: One of `DISTANCES`.

  Returns:
    float64 `[clients]`, 1 / P_k of Eq. 8; 0 everywhere without a member.
  """
  counts = tf.cast(is_member, tf.float64)
  shares = tf.math.divide_no_nan(counts, tf.reduce_sum(counts))
  total = tf.zeros_like(shares)
  for leaf in tf.nest.flatten(uploads):
    if distance == 'squared':
      total += _squared_norms(leaf, shares)
    else:
      total += _mean_pair_distances(leaf, counts, shares)
  if distance == 'squared':
    total += tf.reduce_sum(shares * total)
  return tf.where(tf.reduce_any(is_member), total, tf.zeros_like(total))


def _squared_norms(leaf, shares):
  """Returns each row's squared distance to the members' mean.

  A matrix of all pairs (`gram`) would take `rows` times as long.
  """
  size = math.prod(leaf.shape[1:])
  flat = tf.reshape(leaf, [-1, size])
  width = tf.maximum(_BLOCK_ENTRIES // tf.maximum(tf.shape(flat)[0], 1), 1)

  def add_block(start, total):
    rows = tf.cast(flat[:, start : start + width], tf.float64)
    rows -= tf.linalg.matvec(rows, shares, transpose_a=True)
    return start + width, total + tf.reduce_sum(rows**2, axis=1)

  return tf.while_loop(
    lambda start, _: start < size,
    add_block,
    (tf.constant(0), tf.zeros_like(shares)),
    parallel_iterations=1,
  )[1]


def _mean_pair_distances(leaf, counts, shares):
  """Returns each row's mean Euclidean distance to the members' rows."""
  products = gram.centered_gram([leaf], counts)
  identity = tf.eye(tf.shape(counts)[0], dtype=tf.float64)
  distances = tf.sqrt(gram.squared_distances(products, identity))
  return tf.linalg.matvec(distances, shares)


def select(
  distances: tf.Tensor,
  is_training: tf.Tensor,
  num_selected: tf.Tensor,
  config: CommitteeConfig,
  seed: tf.Tensor,
  client_index: tf.Tensor,
) -> tf.Tensor:
  """Returns the clients selected for the mean, S_a, bool `[clients]`.

  Args:
    distances: From `mean_distances`, float64 `[clients]`.
    is_training: Clients of S_b with a finite upload, bool `[clients]`.
    num_selected: m, int32 `[]`; all if there are fewer.
    config: The strategy.
    seed: int32 `[2]`, of this round; for `'random'`.
    client_index: int32 `[clients]`.
  """
  num_training = tf.reduce_sum(tf.cast(is_training, tf.int32))
  num_selected = tf.minimum(num_selected, num_training)
  if config.selection == 'all':
    return is_training
  if config.selection == 'random':
    bits = index_random.random_bits(seed, client_index)
    return is_training & (
      robust_distances.rank(tf.cast(bits, tf.float64), is_training)
      < num_selected
    )
  ranks = robust_distances.rank(distances, is_training)
  if config.selection == 'most_similar':
    return is_training & (ranks < num_selected)
  return is_training & (ranks >= num_training - num_selected)


def elect(
  distances: tf.Tensor,
  is_training: tf.Tensor,
  committee_size: tf.Tensor,
  config: CommitteeConfig,
) -> tf.Tensor:
  """Returns the next committee, a window on the ranking, bool `[clients]`.

  Args:
    distances: From `mean_distances`, float64 `[clients]`.
    is_training: Training clients with a finite upload, bool `[clients]`.
    committee_size: C, int32 `[]`; all of them if there are fewer.
    config: Position of the window: in the middle, its first rank is
      floor((n - C) / 2).
  """
  num_training = tf.reduce_sum(tf.cast(is_training, tf.int32))
  committee_size = tf.minimum(committee_size, num_training)
  slack = tf.cast(num_training - committee_size, tf.float64)
  first = tf.cast(tf.floor(slack * config.election_center), tf.int32)
  ranks = robust_distances.rank(distances, is_training)
  return is_training & (ranks >= first) & (ranks < first + committee_size)


def measure(
  distances: tf.Tensor,
  is_member: tf.Tensor,
  is_training: tf.Tensor,
  is_selected: tf.Tensor,
) -> OrderedDict[str, tf.Tensor]:
  """Returns the metrics of a round: numbers of clients by role, mean distances.

  Args:
    distances: From `mean_distances`, float64 `[clients]`.
    is_member: Members with a finite upload, bool `[clients]`.
    is_training: Training clients with a finite upload, bool `[clients]`.
    is_selected: From `select`.
  """
  mean = lambda flags: tf.math.divide_no_nan(
    tf.reduce_sum(tf.where(flags, distances, tf.zeros_like(distances))),
    tf.reduce_sum(tf.cast(flags, distances.dtype)),
  )
  count = lambda flags: tf.reduce_sum(tf.cast(flags, tf.int32))
  return OrderedDict(
    num_members=count(is_member),
    num_training=count(is_training),
    num_selected=count(is_selected),
    distance_selected=mean(is_selected),
    distance_training=mean(is_training),
  )


def average(
  uploads: Structure, num_examples: tf.Tensor, is_selected: tf.Tensor
) -> tuple[Structure, tf.Tensor]:
  """Returns the mean of the selected uploads by examples (Eq. 5).

  Args:
    uploads: Structure of tensors `[clients, ...]`.
    num_examples: float32 `[clients]`.
    is_selected: bool `[clients]`.

  Returns:
    The mean, zeros without selected examples, and their total number.
  """
  weights = tf.where(is_selected, num_examples, tf.zeros_like(num_examples))
  total = tf.reduce_sum(weights)
  return trees.mix(tf.math.divide_no_nan(weights, total), uploads), total
