"""Tests of robust means by distances: by hand; the rest is in robust_rules."""

import numpy as np
import tensorflow as tf

from tests.testing import robust_oracle
from tff_algos.numerics import robust_distances


def _distances(points):
  points = np.asarray(points, np.float64)
  return tf.constant((points[:, np.newaxis] - points) ** 2)


def _real(num_rows, *absent):
  is_real = np.ones(num_rows, bool)
  is_real[list(absent)] = False
  return tf.constant(is_real)


def test_krum_scores_by_hand():
  """Points 0, 1, 3, 10 and f = 0: two neighbours each; f = 1: one."""
  distances = _distances([0, 1, 3, 10])
  scores = robust_distances.krum_scores(distances, _real(4), 0)
  np.testing.assert_array_equal(scores, [1 + 9, 1 + 4, 4 + 9, 49 + 81])
  scores = robust_distances.krum_scores(distances, _real(4), 1)
  np.testing.assert_array_equal(scores, [1, 1, 4, 49])


def test_ranks_break_ties_by_position_and_put_the_unranked_last():
  found = robust_distances.rank(
    tf.constant([2.0, 0.0, 3.0, 1.0, 2.0], tf.float64), _real(5, 1)
  )
  np.testing.assert_array_equal(found, [1, 4, 3, 0, 2])


def test_krum_scores_agree_with_numpy_for_every_f():
  generator = np.random.default_rng(4)
  points = generator.normal(size=(9, 5))
  distances = robust_oracle.squared_distances(points)
  for num_byzantine in range(8):
    scores = robust_distances.krum_scores(
      tf.constant(distances), _real(9), num_byzantine
    )
    np.testing.assert_allclose(
      scores, robust_oracle.krum_scores(points, num_byzantine)
    )


def test_krum_with_the_true_f_never_chooses_a_planted_outlier():
  """n = 2 f + 3. Outliers lie together, so a smaller f falls for them."""
  generator = np.random.default_rng(5)
  is_fooled = []
  for num_byzantine in (1, 2, 3, 4):
    for _ in range(5):
      points = generator.normal(size=(2 * num_byzantine + 3, 4))
      points[:num_byzantine] = 50 + 1e-3 * points[:num_byzantine]
      distances = tf.constant(robust_oracle.squared_distances(points))
      real = _real(len(points))
      scores = robust_distances.krum_scores(distances, real, num_byzantine)
      assert np.argmin(scores) >= num_byzantine
      # One neighbour for everybody: n - f - 2 with f = n - 3.
      scores = robust_distances.krum_scores(distances, real, len(points) - 3)
      is_fooled.append(np.argmin(scores) < num_byzantine)
  assert any(is_fooled)


def test_krum_takes_one_neighbor_at_least_and_a_single_row_as_it_is():
  distances = _distances([0, 1, 3, 10])
  scores = robust_distances.krum_scores(distances, _real(4), 3)
  np.testing.assert_array_equal(scores, [1, 1, 4, 49])
  scores = robust_distances.krum_scores(distances, _real(4, 0, 1, 3), 1)
  np.testing.assert_array_equal(scores, [np.inf, np.inf, 0, np.inf])


def test_rows_that_are_not_real_are_nobodys_neighbors():
  """Without the point 1, f = 0 leaves one neighbour of three points."""
  scores = robust_distances.krum_scores(
    _distances([0, 1, 3, 10]), _real(4, 1), 0
  )
  np.testing.assert_array_equal(scores, [9, np.inf, 9, 49])


def test_best_rows_takes_the_first_of_equals_and_never_an_infinite_one():
  scores = tf.constant([2.0, 1, np.inf, 1], tf.float64)
  for count, expected in (
    (1, [False, True, False, False]),
    (2, [False, True, False, True]),
    (4, [True, True, False, True]),
  ):
    np.testing.assert_array_equal(
      robust_distances.best_rows(scores, count), expected
    )


def test_committee_rows_by_hand():
  """Of 0, 1, 3, 4.5, 10 the middle two of the ranking 3, 4.5, 1, 0, 10 are members.

  Summed squared distances are 130.25, 98.25, 64.25, 65 and 260.25. To the members
  3 is at a mean of 3.125, 0 at 10.625 and 10 at 55.625.
  """
  distances = _distances([0, 1, 3, 4.5, 10])
  for accepted_share, expected in (
    (0.34, [0, 0, 1, 0, 0]),
    (0.67, [1, 0, 1, 0, 0]),
    (1.0, [1, 0, 1, 0, 1]),
  ):
    found = robust_distances.committee_rows(
      distances, _real(5), 0.4, accepted_share
    )
    np.testing.assert_array_equal(found, np.array(expected, bool))


def test_committees_of_few_rows():
  """Of two rows one judges the other; a row alone is accepted; nobody is nobody."""
  distances = _distances([0, 1, 3])
  for absent, expected in (
    ((2,), [False, True, False]),
    ((0, 2), [False, True, False]),
    ((0, 1, 2), [False, False, False]),
  ):
    found = robust_distances.committee_rows(
      distances, _real(3, *absent), 0.4, 0.4
    )
    np.testing.assert_array_equal(found, expected)


def test_a_minority_of_liars_is_neither_elected_nor_accepted():
  """Four equal ones of eleven, far away: four members and three of seven."""
  for seed in range(20):
    points = np.random.default_rng(seed).normal(size=11)
    points[[0, 3, 4, 8]] = 50.0
    accepted = robust_distances.committee_rows(
      _distances(points), _real(11), 0.4, 0.4
    ).numpy()
    assert accepted.sum() == 3
    assert not accepted[[0, 3, 4, 8]].any()


def test_bulyan_rows_by_hand():
  """Seven points, f = 1: five are chosen, and the outlier is left."""
  chosen = robust_distances.bulyan_rows(
    _distances([0, 1, 2, 3, 4, 5, 99]), _real(7), 1
  ).numpy()
  assert chosen.sum() == 5
  assert not chosen[6]


def test_nearest_neighbor_mixing_by_hand():
  """Three of four points each; the absent one is in no mean."""
  mixing = robust_distances.nearest_neighbor_mixing(
    _distances([0, 1, 3, 10]), _real(4), 1
  )
  third = np.array([[1, 1, 1, 0], [1, 1, 1, 0], [1, 1, 1, 0], [0, 1, 1, 1]]) / 3
  np.testing.assert_allclose(mixing, third)
  mixing = robust_distances.nearest_neighbor_mixing(
    _distances([0, 1, 3, 10]), _real(4, 1), 1
  )
  half = np.array([[1, 0, 1, 0], [0, 0, 0, 0], [1, 0, 1, 0], [0, 0, 1, 1]]) / 2
  np.testing.assert_allclose(mixing, half)


def test_a_row_is_in_its_own_mean_even_among_equal_rows():
  mixing = robust_distances.nearest_neighbor_mixing(
    _distances([7, 7, 7]), _real(3), 2
  )
  np.testing.assert_array_equal(mixing, np.eye(3))


def test_geometric_median_on_a_line_by_hand():
  """The weighted median: half of the weight is on each side of it."""
  points = np.array([0.0, 1, 5, 0])
  factors = robust_distances.geometric_median(
    tf.constant(np.outer(points, points)),
    tf.constant([0.25, 0.45, 0.3], tf.float64),
    1e-9,
    200,
  ).numpy()
  np.testing.assert_allclose(factors @ points, 1, atol=1e-6)
  np.testing.assert_allclose(factors.sum(), 1)


def test_centered_clipping_by_hand():
  """From 0 with radius 1: mean(1, 0.5) = 0.75; then mean(1, -0.25)."""
  points = np.array([3.0, 0.5, 0])
  shares = tf.constant([0.5, 0.5], tf.float64)
  gram = tf.constant(np.outer(points, points))
  for num_iterations, expected in ((1, 0.75), (2, 0.75 + 0.375)):
    factors = robust_distances.centered_clipping(
      gram, shares, 1.0, num_iterations
    ).numpy()
    np.testing.assert_allclose(factors @ points, expected)
    np.testing.assert_allclose(factors.sum(), 1)
