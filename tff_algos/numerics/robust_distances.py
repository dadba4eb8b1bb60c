"""Distance-based robust means of rows, as coefficients of the rows.

Each mean is a linear combination of the rows, whose coefficients follow from
squared distances or inner products of the rows (`gram`), so no array here is as
large as the rows. Rows that are not real get the coefficient 0.
"""

import math
from collections.abc import Callable

import tensorflow as tf

from tff_algos.numerics import gram as gram_lib


def krum_scores(
  distances: tf.Tensor, is_real: tf.Tensor, num_byzantine: int
) -> tf.Tensor:
  """Returns the Krum score of each row.

  Blanchard et al. 2017, "Machine Learning with Adversaries", Section 4: the
  sum of the squared distances to the n - f - 2 nearest other rows (at least
  one) of n real ones.

  Args:
    distances: Squared, float64 `[rows, rows]`.
    is_real: bool `[rows]`.
    num_byzantine: f, >= 0.

  Returns:
    float64 `[rows]`; infinity for a row that is not real.
  """
  num_rows = tf.shape(distances)[0]
  num_real = tf.reduce_sum(tf.cast(is_real, tf.int32))
  is_other = is_real & tf.logical_not(tf.eye(num_rows, dtype=tf.bool))
  ascending = tf.sort(tf.where(is_other, distances, math.inf), axis=1)
  num_neighbors = tf.maximum(num_real - num_byzantine - 2, 1)
  num_neighbors = tf.minimum(num_neighbors, num_real - 1)
  is_near = tf.range(num_rows) < num_neighbors
  scores = tf.reduce_sum(tf.where(is_near, ascending, 0.0), axis=1)
  return tf.where(is_real, scores, math.inf)


def best_rows(scores: tf.Tensor, num_selected: tf.Tensor | int) -> tf.Tensor:
  """Returns which rows have the lowest finite scores, bool `[rows]`.

  Args:
    scores: float64 `[rows]`; of equal ones the first row is the best.
    num_selected: How many, int32 `[]`.
  """
  is_finite = tf.math.is_finite(scores)
  return (rank(scores, is_finite) < num_selected) & is_finite


def rank(values: tf.Tensor, is_ranked: tf.Tensor) -> tf.Tensor:
  """Returns each row's rank by ascending value, ties by position.

  Args:
    values: float64 `[rows]`, finite where ranked.
    is_ranked: bool `[rows]`; the others follow all ranked rows.

  Returns:
    int32 `[rows]`, a permutation of 0 to rows - 1.
  """
  values = tf.where(is_ranked, values, math.inf)
  return tf.math.invert_permutation(tf.argsort(values, stable=True))


def committee_rows(
  distances: tf.Tensor,
  is_real: tf.Tensor,
  committee_share: float,
  accepted_share: float,
) -> tf.Tensor:
  """Returns which rows a committee of rows accepts, bool `[rows]`.

  Che et al. (TPDS 2022, CMFL), Eq. 7 and 8 and its strategies, within one
  round: all rows elect those in the middle of the ranking by mean squared
  distance; of the others, those nearest to the elected ones are accepted, and
  the elected ones are not.

  Args:
    distances: Squared, float64 `[rows, rows]`.
    is_real: bool `[rows]`; the others neither judge nor are judged.
    committee_share: Share of the rows that is elected, in (0, 0.5]; at least
      one row, but none where there is one row only.
    accepted_share: Share of the others that is accepted, in (0, 1]; at least
      one.
  """
  num_real = tf.reduce_sum(tf.cast(is_real, tf.int32))
  num_members = tf.minimum(_share(num_real, committee_share), num_real - 1)

  def ranks(judges: tf.Tensor, are_judged: tf.Tensor) -> tf.Tensor:
    share = tf.math.divide_no_nan(
      tf.cast(judges, tf.float64),
      tf.reduce_sum(tf.cast(judges, tf.float64)),
    )
    return rank(tf.linalg.matvec(distances, share), are_judged)

  places = ranks(is_real, is_real)
  first = (num_real - num_members) // 2
  is_member = is_real & (places >= first) & (places < first + num_members)
  is_judged = is_real & tf.logical_not(is_member)
  num_accepted = _share(num_real - num_members, accepted_share)
  return is_judged & (ranks(is_member, is_judged) < num_accepted)


def _share(number: tf.Tensor, share: float) -> tf.Tensor:
  """Returns a share of a number, rounded half up, at least 1; int32 `[]`."""
  # 1e-9 makes up for products that are rounded to just below a half.
  found = tf.floor(share * tf.cast(number, tf.float64) + 0.5 + 1e-9)
  return tf.maximum(tf.cast(found, tf.int32), 1)


def bulyan_rows(
  distances: tf.Tensor, is_real: tf.Tensor, num_byzantine: int
) -> tf.Tensor:
  """Returns the n - 2f rows (at least one) that Krum chooses, bool `[rows]`.

  The first step of Bulyan, El Mhamdi et al. 2018, arXiv:1802.07927: Krum
  chooses a row, which then leaves, and chooses again from the rest.

  Args:
    distances: Squared, float64 `[rows, rows]`.
    is_real: bool `[rows]`.
    num_byzantine: f, >= 0.
  """
  num_real = tf.reduce_sum(tf.cast(is_real, tf.int32))
  num_selected = tf.minimum(
    tf.maximum(num_real - 2 * num_byzantine, 1), num_real
  )

  def choose(i: tf.Tensor, is_left: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    scores = krum_scores(distances, is_left, num_byzantine)
    return i + 1, is_left & tf.logical_not(best_rows(scores, 1))

  _, is_left = tf.while_loop(
    lambda i, _: i < num_selected,
    choose,
    (tf.constant(0), is_real),
    parallel_iterations=1,
  )
  return is_real & tf.logical_not(is_left)


def nearest_neighbor_mixing(
  distances: tf.Tensor, is_real: tf.Tensor, num_byzantine: int
) -> tf.Tensor:
  """Returns the matrix that replaces each row by the mean of its neighbours.

  Allouah et al. 2023, arXiv:2302.01772, Algorithm 2: the mean of the n - f
  nearest rows (at least one), itself among them.

  Args:
    distances: Squared, float64 `[rows, rows]`.
    is_real: bool `[rows]`.
    num_byzantine: f, >= 0.

  Returns:
    float64 `[rows, rows]`, row i the factors of row i's mean; zeros for a row
    that is not real.
  """
  num_rows = tf.shape(distances)[0]
  num_real = tf.reduce_sum(tf.cast(is_real, tf.int32))
  num_near = tf.maximum(num_real - num_byzantine, 1)
  # Each row comes first among its neighbours, despite rounding or equal rows.
  near = tf.linalg.set_diag(
    distances, tf.fill([num_rows], tf.constant(-1.0, tf.float64))
  )
  near = tf.where(is_real, near, math.inf)
  order = tf.argsort(near, axis=1, stable=True)
  ranks = tf.argsort(order, axis=1)
  is_near = (ranks < num_near) & is_real & is_real[:, tf.newaxis]
  return tf.cast(is_near, tf.float64) / tf.cast(num_near, tf.float64)


def geometric_median(
  gram: tf.Tensor, shares: tf.Tensor, smoothing: float, num_iterations: int
) -> tf.Tensor:
  """Returns the weighted geometric median as factors of the rows.

  Smoothed Weiszfeld iterations, Pillutla, Kakade and Harchaoui 2022,
  arXiv:1912.13445, Algorithm 2, from the last row as start.

  Args:
    gram: Inner products of the rows, and of the start as one row more, float64
      `[rows + 1, rows + 1]`.
    shares: Weights of the rows, float64 `[rows]`, sum 1; 0 for one that is not
      real.
    smoothing: Lower bound of the distances that are divided by, > 0.
    num_iterations: >= 1.

  Returns:
    float64 `[rows + 1]`, sum 1; the start's is 0.
  """

  def iterate(factors: tf.Tensor) -> tf.Tensor:
    distances = _distances_to(gram, factors)[:-1]
    pulls = shares / tf.maximum(distances, smoothing)
    return _with_last(tf.math.divide_no_nan(pulls, tf.reduce_sum(pulls)), 0.0)

  return _repeat(iterate, shares, num_iterations)


def centered_clipping(
  gram: tf.Tensor, shares: tf.Tensor, radius: float, num_iterations: int
) -> tf.Tensor:
  """Returns the result of centered clipping as factors of the rows.

  Karimireddy, He and Jaggi 2021, arXiv:2012.10333, Algorithm 2: v <- v +
  sum_i share_i (row_i - v) min(1, radius / |row_i - v|). One iteration is the
  mean of the rows with clipped norms (Sun et al. 2019, arXiv:1911.07963).

  Args:
    gram: Inner products of the rows, and of the start as one row more, float64
      `[rows + 1, rows + 1]`.
    shares: Weights of the rows, float64 `[rows]`, sum 1; 0 for one that is not
      real.
    radius: Longest step, > 0.
    num_iterations: >= 1.

  Returns:
    float64 `[rows + 1]`, sum 1.
  """

  def iterate(factors: tf.Tensor) -> tf.Tensor:
    distances = _distances_to(gram, factors)[:-1]
    steps = shares * radius / tf.maximum(distances, radius)
    return (1 - tf.reduce_sum(steps)) * factors + _with_last(steps, 0.0)

  return _repeat(iterate, shares, num_iterations)


def _distances_to(gram: tf.Tensor, factors: tf.Tensor) -> tf.Tensor:
  """Returns every row's distance to a combination of rows, `[rows]`."""
  squared = gram_lib.squared_distances(gram, factors[tf.newaxis])
  return tf.sqrt(squared[:, 0])


def _repeat(
  iterate: Callable[[tf.Tensor], tf.Tensor],
  shares: tf.Tensor,
  num_iterations: int,
) -> tf.Tensor:
  """Returns the factors after some iterations from the last row."""
  start = _with_last(tf.zeros_like(shares), 1.0)
  return tf.while_loop(
    lambda i, _: i < num_iterations,
    lambda i, factors: (i + 1, iterate(factors)),
    (tf.constant(0), start),
    parallel_iterations=1,
  )[1]


def _with_last(factors: tf.Tensor, last: float) -> tf.Tensor:
  return tf.concat([factors, tf.constant([last], tf.float64)], 0)
