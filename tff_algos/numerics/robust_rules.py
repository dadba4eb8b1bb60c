"""Robust aggregation rules for models, one function a rule.

A rule takes `Rows` and `RuleOptions` and returns one model. Rules that compare
models need only the matrix of inner products of their updates, `[rows, rows]`;
coordinate-wise rules hold a sorted copy of one leaf at a time.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import NamedTuple

import tensorflow as tf

from tff_algos.core import checks, errors
from tff_algos.core.structures import Structure
from tff_algos.numerics import gram as gram_lib
from tff_algos.numerics import robust_coordinates, robust_distances, trees


class Rows(NamedTuple):
  """Models, of which some are not real or come from Byzantine clients.

  Attributes:
    values: Structure of float tensors `[rows, ...]`, all finite.
    weights: float32 `[rows]`, >= 0; a row of weight 0 is not real.
    start: Structure of tensors `[...]`: a model near the honest rows, such as
      the one that they were trained from. A row minus `start` is its update.
  """

  values: Structure
  weights: tf.Tensor
  start: Structure

  @property
  def is_real(self) -> tf.Tensor:
    """Returns bool `[rows]`."""
    return self.weights > 0

  @property
  def num_real(self) -> tf.Tensor:
    """Returns int32 `[]`."""
    return tf.reduce_sum(tf.cast(self.is_real, tf.int32))

  @property
  def shares(self) -> tf.Tensor:
    """Returns the weights with sum 1, float64 `[rows]`; zeros if all are 0."""
    weights = tf.cast(self.weights, tf.float64)
    return tf.math.divide_no_nan(weights, tf.reduce_sum(weights))

  def gram(self) -> tf.Tensor:
    """Returns inner products of updates, float64 `[rows + 1, rows + 1]`.

    Centered on `start` and not on a mean, which one huge row could move
    anywhere. The last row is that of `start`, zeros.
    """
    is_start = tf.one_hot(
      tf.size(self.weights), tf.size(self.weights) + 1, dtype=tf.float64
    )
    start = tf.nest.map_structure(lambda leaf: leaf[tf.newaxis], self.start)
    return gram_lib.centered_gram([self.values, start], is_start)

  def distances(self) -> tf.Tensor:
    """Returns squared distances, float64 `[rows, rows]`."""
    gram = self.gram()[:-1, :-1]
    identity = tf.eye(tf.shape(gram)[0], dtype=tf.float64)
    return gram_lib.squared_distances(gram, identity)

  def combine(self, factors: tf.Tensor) -> Structure:
    """Returns the start and the updates of the rows, times factors.

    Args:
      factors: float64 `[rows]`.
    """
    rest = tf.cast(1 - tf.reduce_sum(factors), tf.float32)
    return trees.add(
      trees.mix(tf.cast(factors, tf.float32), self.values),
      trees.scale(self.start, rest),
    )


@dataclasses.dataclass(frozen=True)
class RuleOptions:
  """Options of all rules; each rule reads its own.

  Attributes:
    num_byzantine: f, the number of Byzantine rows to tolerate, >= 0. Of Krum,
      multi-Krum, Bulyan and the mixing of nearest neighbours; and, for all
      but the plain mean, of the check that a cohort is large enough.
    trim_fraction: Of the trimmed mean: share of the values that is left out on
      each side, rounded down, in [0, 0.5).
    num_selected: Of multi-Krum: rows that are averaged, >= 0; 0 for all but
      `num_byzantine`.
    clipping_radius: Of centered and norm clipping: longest step from the start,
      in its Euclidean norm, > 0.
    num_iterations: Of the geometric median and centered clipping, >= 1.
    smoothing: Of the geometric median: lower bound of the distances that are
      divided by, > 0.
    committee_share: Of the committee: share of the rows that screens the
      others, in (0, 0.5].
    accepted_share: Of the committee: share of the others that is averaged, in
      (0, 1].
  """

  num_byzantine: int = 0
  trim_fraction: float = 0.1
  num_selected: int = 0
  clipping_radius: float = 1.0
  num_iterations: int = 16
  smoothing: float = 1e-6
  committee_share: float = 0.4
  accepted_share: float = 0.4

  def __post_init__(self) -> None:
    checks.check_int('num_byzantine', self.num_byzantine, minimum=0)
    checks.check_at_least('trim_fraction', self.trim_fraction, 0)
    if self.trim_fraction >= 0.5:
      raise errors.ConfigError(
        f'trim_fraction must be below 0.5, got {self.trim_fraction!r}: half on '
        "each side leaves nothing; the rule 'median' leaves the middle"
      )
    checks.check_int('num_selected', self.num_selected, minimum=0)
    checks.check_positive('clipping_radius', self.clipping_radius)
    checks.check_int('num_iterations', self.num_iterations, minimum=1)
    checks.check_positive('smoothing', self.smoothing)
    for name in ('committee_share', 'accepted_share'):
      checks.check_share(name, getattr(self, name))
    if self.committee_share > 0.5:
      raise errors.ConfigError(
        f'committee_share is {self.committee_share!r}, but a committee screens '
        'at least as many as it has members; use at most 0.5'
      )


Rule = Callable[[Rows, RuleOptions], Structure]


def mean(rows: Rows, options: RuleOptions) -> Structure:
  """Returns the weighted mean; not robust, as one row can move it anywhere."""
  del options
  return rows.combine(rows.shares)


def median(rows: Rows, options: RuleOptions) -> Structure:
  """Returns the coordinate-wise median; ignores weights."""
  del options
  return robust_coordinates.median(rows.values, rows.is_real)


def trimmed_mean(rows: Rows, options: RuleOptions) -> Structure:
  """Returns the coordinate-wise trimmed mean; ignores weights."""
  return robust_coordinates.trimmed_mean(
    rows.values,
    rows.is_real,
    num_trimmed(rows.num_real, options.trim_fraction),
  )


def num_trimmed(num_rows: tf.Tensor, trim_fraction: float) -> tf.Tensor:
  """Returns how many of `num_rows` are trimmed on each side, rounded down."""
  # As floats, 0.29 times 100 is just below 29.
  return tf.cast(
    tf.floor(trim_fraction * tf.cast(num_rows, tf.float64) + 1e-9), tf.int32
  )


def krum(rows: Rows, options: RuleOptions) -> Structure:
  """Returns the row of the lowest Krum score."""
  return multi_krum(rows, dataclasses.replace(options, num_selected=1))


def multi_krum(rows: Rows, options: RuleOptions) -> Structure:
  """Returns the weighted mean of the rows of the lowest Krum scores."""
  scores = robust_distances.krum_scores(
    rows.distances(), rows.is_real, options.num_byzantine
  )
  num_selected = options.num_selected or tf.maximum(
    rows.num_real - options.num_byzantine, 1
  )
  is_best = robust_distances.best_rows(scores, num_selected)
  best = rows._replace(weights=tf.where(is_best, rows.weights, 0.0))
  return best.combine(best.shares)


def committee(rows: Rows, options: RuleOptions) -> Structure:
  """Returns the weighted mean of the rows that a committee of rows accepts.

  The screening of Che et al. (TPDS 2022, CMFL) for any mean: the committee is
  elected anew from the rows of each mean, see
  `robust_distances.committee_rows`.
  """
  is_accepted = robust_distances.committee_rows(
    rows.distances(),
    rows.is_real,
    options.committee_share,
    options.accepted_share,
  )
  accepted = rows._replace(weights=tf.where(is_accepted, rows.weights, 0.0))
  return accepted.combine(accepted.shares)


def bulyan(rows: Rows, options: RuleOptions) -> Structure:
  """Returns the coordinate-wise mean around the median of rows chosen by Krum.

  El Mhamdi et al. 2018, arXiv:1802.07927: theta = n - 2f rows are chosen, and
  of their values theta - 2f (at least one) are averaged. Ignores weights.
  """
  is_chosen = robust_distances.bulyan_rows(
    rows.distances(), rows.is_real, options.num_byzantine
  )
  num_chosen = tf.reduce_sum(tf.cast(is_chosen, tf.int32))
  return robust_coordinates.mean_around_median(
    rows.values,
    is_chosen,
    tf.maximum(num_chosen - 2 * options.num_byzantine, 1),
  )


def geometric_median(rows: Rows, options: RuleOptions) -> Structure:
  """Returns the weighted geometric median of the rows."""
  factors = robust_distances.geometric_median(
    rows.gram(), rows.shares, options.smoothing, options.num_iterations
  )
  return rows.combine(factors[:-1])


def centered_clipping(rows: Rows, options: RuleOptions) -> Structure:
  """Returns the result of weighted centered clipping from `start`."""
  factors = robust_distances.centered_clipping(
    rows.gram(), rows.shares, options.clipping_radius, options.num_iterations
  )
  return rows.combine(factors[:-1])


def norm_clipping(rows: Rows, options: RuleOptions) -> Structure:
  """Returns the weighted mean of the updates, each clipped to the radius."""
  return centered_clipping(rows, dataclasses.replace(options, num_iterations=1))


def mix_nearest_neighbors(rows: Rows, num_byzantine: int) -> Rows:
  """Returns each row replaced by the mean of its nearest rows.

  Applied before any rule: Allouah et al. 2023, arXiv:2302.01772. Holds a second
  copy of the rows.
  """
  mixing = robust_distances.nearest_neighbor_mixing(
    rows.distances(), rows.is_real, num_byzantine
  )
  return rows._replace(
    values=trees.mix(tf.cast(mixing, tf.float32), rows.values)
  )


# They count all real rows the same.
WITHOUT_WEIGHTS = ('median', 'trimmed_mean', 'krum', 'bulyan')
RULES: Mapping[str, Rule] = {
  'mean': mean,
  'median': median,
  'trimmed_mean': trimmed_mean,
  'krum': krum,
  'multi_krum': multi_krum,
  'committee': committee,
  'bulyan': bulyan,
  'geometric_median': geometric_median,
  'centered_clipping': centered_clipping,
  'norm_clipping': norm_clipping,
}
