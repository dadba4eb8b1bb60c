"""False updates of Byzantine clients, as functions of tensors.

The first functions falsify a single update; the others compute one false update
from all honest updates (`HonestRows`).
"""

import math
from typing import NamedTuple

import tensorflow as tf

from tff_algos.core.structures import Structure
from tff_algos.numerics import gram as gram_lib
from tff_algos.numerics import index_random, trees

PERTURBATIONS = ('std', 'unit', 'sign')
# Separates these draws from other uses of the same seed.
_PURPOSE = 0x66616C73


def scale_entries(
  update: Structure, seed: tf.Tensor, minimum: float
) -> Structure:
  """Returns each entry times its own uniform number from [minimum, 1).

  Che et al. 2022, "A Decentralized Federated Learning Framework via Committee
  Mechanism with Convergence Guarantee", Section 6.3: gradient scaling.

  Args:
    update: Structure of float tensors.
    seed: int32 `[2]`.
    minimum: In [0, 1).
  """

  def scale(number, leaf):
    return leaf * (minimum + (1 - minimum) * _uniform(seed, 2 * number, leaf))

  return _map_numbered(scale, update)


def add_noise(
  update: Structure, seed: tf.Tensor, deviation: float
) -> Structure:
  """Returns each entry plus normal noise.

  Args:
    update: Structure of float tensors.
    seed: int32 `[2]`.
    deviation: Standard deviation of the noise, > 0.
  """

  def add(number, leaf):
    # Box and Muller; the logarithm is of a number in (0, 1].
    first, second = (_uniform(seed, 2 * number + i, leaf) for i in range(2))
    length = tf.sqrt(-2 * tf.math.log(1 - first))
    return leaf + deviation * length * tf.cos(2 * math.pi * second)

  return _map_numbered(add, update)


def _map_numbered(function, structure: Structure) -> Structure:
  leaves = [
    function(number, leaf)
    for number, leaf in enumerate(tf.nest.flatten(structure))
  ]
  return tf.nest.pack_sequence_as(structure, leaves)


def _uniform(seed: tf.Tensor, number: int, like: tf.Tensor) -> tf.Tensor:
  """Returns uniform numbers in [0, 1), float32, of a known shape."""
  seed = tf.bitwise.bitwise_xor(seed, tf.constant([_PURPOSE, 0]))
  positions = tf.range(like.shape.num_elements())
  bits = index_random.random_bits(seed, number, positions)
  top = tf.bitwise.right_shift(bits, tf.constant(8, tf.uint32))
  return tf.reshape(tf.cast(top, tf.float32) / 2**24, like.shape)


class HonestRows(NamedTuple):
  """The updates of honest clients, as known to an attacker.

  Attributes:
    updates: Structure of float tensors `[rows, ...]`.
    is_honest: bool `[rows]`, at least one; the other rows are ignored.
  """

  updates: Structure
  is_honest: tf.Tensor

  @property
  def shares(self) -> tf.Tensor:
    """Returns 1/n for n honest rows and else 0, float32 `[rows]`."""
    honest = tf.cast(self.is_honest, tf.float32)
    return honest / tf.reduce_sum(honest)

  def mean(self) -> Structure:
    """Returns their mean."""
    return trees.mix(self.shares, self.updates)

  def deviation(self) -> Structure:
    """Returns the standard deviation (divided by n) of each coordinate."""
    gaps = tf.nest.map_structure(
      lambda leaf, mean: tf.square(leaf - mean), self.updates, self.mean()
    )
    return tf.nest.map_structure(tf.sqrt, trees.mix(self.shares, gaps))

  def squared_distances(self) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns squared distances between rows, and to the mean.

    Returns:
      float64 `[rows, rows]` and `[rows]`, 0 where a row is not honest.
    """
    honest = tf.cast(self.is_honest, tf.float64)
    gram = gram_lib.centered_gram([self.updates], honest)
    identity = tf.eye(tf.shape(gram)[0], dtype=tf.float64)
    pairs = gram_lib.squared_distances(gram, identity)
    return (
      pairs * honest * honest[:, tf.newaxis],
      tf.linalg.diag_part(gram) * honest,
    )


def little_is_enough(rows: HonestRows, num_deviations: tf.Tensor) -> Structure:
  """Returns the mean minus some standard deviations (ALIE).

  Baruch, Baruch and Goldberg 2019, arXiv:1902.06156, Algorithm 3.

  Args:
    rows: The honest ones.
    num_deviations: z, float32 `[]`.
  """
  return tf.nest.map_structure(
    lambda mean, deviation: mean - num_deviations * deviation,
    rows.mean(),
    rows.deviation(),
  )


def hidden_deviations(num_rows: tf.Tensor, num_false: tf.Tensor) -> tf.Tensor:
  """Returns ALIE's largest number of deviations that is not detected.

  Baruch, Baruch and Goldberg 2019, arXiv:1902.06156, Algorithm 3, z_max; at
  least 0.

  Args:
    num_rows: n, all rows, int32 `[]`.
    num_false: m, rows of attackers, int32 `[]`, below n.

  Returns:
    float32 `[]`.
  """
  num_honest = tf.cast(num_rows - num_false, tf.float32)
  num_needed = tf.cast(num_rows // 2 + 1 - num_false, tf.float32)
  share = (num_honest - num_needed) / num_honest
  return tf.math.ndtri(tf.clip_by_value(share, 0.5, 1 - 1e-6))


def inner_product_manipulation(rows: HonestRows, factor: float) -> Structure:
  """Returns -factor times the mean (inner product manipulation, IPM).

  Xie, Koyejo and Gupta 2020, arXiv:1903.03936, Section 4.

  Args:
    rows: The honest ones.
    factor: epsilon, > 0.
  """
  return trees.scale(rows.mean(), -factor)


def min_max(rows: HonestRows, perturbation: str) -> Structure:
  """Returns the mean plus the largest perturbation within maximal distances.

  Its largest distance to an honest row is the largest between two honest rows.
  Shejwalkar and Houmansadr 2021, "Manipulating the Byzantine", Eq. 5; the step
  is computed exactly, without a search.

  Args:
    rows: The honest ones.
    perturbation: One of `PERTURBATIONS`: against the standard deviation, the
      mean itself or its sign.
  """
  direction = perturbation_direction(rows, perturbation)
  pairs, to_mean = rows.squared_distances()
  steps = largest_step(
    tf.cast(trees.squared_norm(direction), tf.float64),
    _inner_products(rows, direction),
    to_mean - tf.reduce_max(pairs),
  )
  step = tf.reduce_min(tf.where(rows.is_honest, steps, math.inf))
  return _move(rows.mean(), direction, step)


def min_sum(rows: HonestRows, perturbation: str) -> Structure:
  """Returns the mean plus the largest perturbation within sums of distances.

  Its sum of squared distances to the honest rows is the largest sum of an
  honest row. Shejwalkar and Houmansadr 2021, "Manipulating the Byzantine", Eq.
  6.

  Args:
    rows: The honest ones.
    perturbation: As in `min_max`.
  """
  direction = perturbation_direction(rows, perturbation)
  pairs, to_mean = rows.squared_distances()
  num_honest = tf.reduce_sum(tf.cast(rows.is_honest, tf.float64))
  step = largest_step(
    num_honest * tf.cast(trees.squared_norm(direction), tf.float64),
    tf.constant(0.0, tf.float64),
    tf.reduce_sum(to_mean) - tf.reduce_max(tf.reduce_sum(pairs, axis=1)),
  )
  return _move(rows.mean(), direction, step)


def committee_aware(
  rows: HonestRows, perturbation: str, accepted_share: float
) -> Structure:
  """Returns the mean plus the largest perturbation that a committee accepts.

  A committee ranks an update by its mean squared distance to the members'
  uploads: up to a constant, by the distance to their mean (Che et al.,
  arXiv:2108.00365, Eq. 7). The attack estimates this mean by the honest mean,
  and moves as far from it as the last accepted honest update.

  Args:
    rows: The honest ones.
    perturbation: As in `min_max`.
    accepted_share: Accepted share of the honest rows, in (0, 1]; rounded down,
      at least one row.
  """
  direction = perturbation_direction(rows, perturbation)
  _, to_mean = rows.squared_distances()
  nearest_first = tf.sort(tf.where(rows.is_honest, to_mean, math.inf))
  num_honest = tf.reduce_sum(tf.cast(rows.is_honest, tf.float32))
  # Rounding errors must not turn 0.7 of 10 rows into 6.
  num_accepted = num_honest * accepted_share + 1e-4
  last = tf.maximum(tf.cast(num_accepted, tf.int32) - 1, 0)
  step = largest_step(
    tf.cast(trees.squared_norm(direction), tf.float64),
    tf.constant(0.0, tf.float64),
    -nearest_first[last],
  )
  return _move(rows.mean(), direction, step)


def perturbation_direction(rows: HonestRows, perturbation: str) -> Structure:
  """Returns the direction of a false update from the mean."""
  if perturbation == 'std':
    return trees.scale(rows.deviation(), -1.0)
  mean = rows.mean()
  if perturbation == 'sign':
    return tf.nest.map_structure(lambda leaf: -tf.sign(leaf), mean)
  norm = tf.sqrt(trees.squared_norm(mean))
  return trees.scale(mean, -tf.math.divide_no_nan(1.0, norm))


def largest_step(
  squared: tf.Tensor, inner: tf.Tensor, rest: tf.Tensor
) -> tf.Tensor:
  """Returns the largest step >= 0 with squared step^2 + 2 inner step <= -rest.

  0 if there is none, or if `squared` is 0.

  Args:
    squared: float64, >= 0.
    inner: float64.
    rest: float64.
  """
  discriminant = inner**2 - squared * rest
  root = tf.sqrt(tf.maximum(discriminant, 0))
  step = tf.maximum(tf.math.divide_no_nan(root - inner, squared), 0)
  return tf.where(discriminant < 0, tf.zeros_like(step), step)


def _inner_products(rows: HonestRows, direction: Structure) -> tf.Tensor:
  """Returns <direction, mean - row> for each row, float64 `[rows]`."""

  def product(leaf, mean, toward):
    gaps = tf.reshape(mean - leaf, [tf.shape(leaf)[0], -1])
    return tf.linalg.matvec(gaps, tf.reshape(toward, [-1]))

  products = tf.nest.map_structure(
    product, rows.updates, rows.mean(), direction
  )
  terms = tf.nest.flatten(products) or [tf.zeros_like(rows.shares)]
  return tf.cast(tf.add_n(terms), tf.float64)


def _move(mean: Structure, direction: Structure, step: tf.Tensor) -> Structure:
  return trees.add(mean, trees.scale(direction, tf.cast(step, tf.float32)))
