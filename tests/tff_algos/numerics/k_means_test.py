"""Tests of k-means, against scikit-learn and by hand."""

import numpy as np
import pytest
import tensorflow as tf
from sklearn import cluster

from tff_algos.numerics import gram, k_means

_SEED = tf.constant([3, 5])
# One trace for all tests of a number of clusters.
_GRAPHS = {}


def _gram(points):
  counts = tf.ones([len(points)], tf.float64)
  return gram.centered_gram([{'w': np.asarray(points, np.float32)}], counts)


def _run(points, num_clusters, num_restarts=1, seed=_SEED, is_real=None):
  key = num_clusters, num_restarts
  if key not in _GRAPHS:
    _GRAPHS[key] = tf.function(
      lambda table, is_real, seed: k_means.k_means(
        table, is_real, num_clusters, seed, num_restarts
      ),
      autograph=False,
      input_signature=[
        tf.TensorSpec([None, None], tf.float64),
        tf.TensorSpec([None], tf.bool),
        tf.TensorSpec([2], tf.int32),
      ],
    )
  if is_real is None:
    is_real = np.ones(len(points), bool)
  return _GRAPHS[key](_gram(points), is_real, seed)


def _blobs(seed, num_points=40, num_clusters=4, size=30, spread=0.5):
  generator = np.random.default_rng(seed)
  centers = generator.normal(size=(num_clusters, size))
  labels = generator.integers(0, num_clusters, num_points)
  noise = spread * generator.normal(size=(num_points, size))
  return (100 + centers[labels] + noise).astype(np.float32)


def _inertia(points, assignment):
  points = np.asarray(points, np.float64)
  return sum(
    (
      (points[assignment == k] - points[assignment == k].mean(axis=0)) ** 2
    ).sum()
    for k in np.unique(assignment)
  )


@pytest.mark.parametrize('seed', range(6))
def test_inertia_is_that_of_scikit_learn(seed):
  points = _blobs(seed)
  found = _run(points, 4, num_restarts=10)
  theirs = cluster.KMeans(4, n_init=10, random_state=seed).fit(
    points.astype(np.float64)
  )
  np.testing.assert_allclose(found.inertia, theirs.inertia_, rtol=1e-6)
  np.testing.assert_allclose(
    found.inertia, _inertia(points, found.assignment.numpy()), rtol=1e-9
  )


def test_lloyd_follows_scikit_learn_from_the_same_start():
  """Overlapping blobs and a bad start, so that there are several iterations."""
  points = _blobs(1, num_points=200, size=2, spread=1.0).astype(np.float64)
  theirs = cluster.KMeans(4, init=points[:4], n_init=1, tol=0).fit(points)
  distances = ((points[:, np.newaxis] - points[:4]) ** 2).sum(axis=2)
  found = k_means.lloyd(
    _gram(points),
    tf.fill([200], True),
    tf.constant(distances.argmin(1), tf.int32),
    4,
  )
  np.testing.assert_array_equal(found.assignment, theirs.labels_)
  assert found.num_iterations > 3


def test_a_step_never_increases_the_inertia():
  """From an arbitrary assignment, one iteration after the other."""
  points = _blobs(2, num_points=60, size=3, spread=1.0)
  table, is_real = _gram(points), tf.fill([60], True)
  assignment, inertias = tf.range(60) % 5, []
  for _ in range(8):
    inertias.append(_inertia(points, assignment.numpy()))
    assignment = k_means.lloyd(table, is_real, assignment, 5, 1).assignment
  assert (np.diff(inertias) <= 1e-9).all()
  assert inertias[-1] < 0.9 * inertias[0]


def test_no_center_is_better_than_the_mean():
  """Of each cluster: the inertia, and what any other centre adds to it."""
  points = _blobs(4, num_points=30, size=3, spread=1.0)
  found = _run(points, 3)
  assignment = np.asarray(found.assignment)
  means = np.stack([points[assignment == k].mean(axis=0) for k in range(3)])
  moved = means + np.random.default_rng(0).normal(size=means.shape)
  added = np.sum((moved - means) ** 2, axis=1) @ np.bincount(assignment)
  np.testing.assert_allclose(
    np.sum((points - moved[assignment]) ** 2), found.inertia + added, rtol=1e-6
  )


def test_the_same_seed_gives_the_same_and_another_draws_otherwise():
  points = _blobs(3, num_points=60, size=2, spread=1.0)
  one, same = (_run(points, 6) for _ in range(2))
  np.testing.assert_array_equal(one.assignment, same.assignment)
  others = [_run(points, 6, seed=tf.constant([s, 0])) for s in range(5)]
  assert len({float(other.inertia) for other in others}) > 1


def test_more_restarts_are_never_worse():
  points = _blobs(3, num_points=60, size=2, spread=1.0)
  inertias = [_run(points, 6, n).inertia.numpy() for n in (1, 3, 9)]
  assert inertias[0] >= inertias[1] >= inertias[2]
  assert inertias[0] > inertias[2]


def test_seeds_are_drawn_by_squared_distance():
  """Two of 0, 1 and 3; the second has the chances 1 : 9 after 0 (of 1 and 3),
  1 : 4 after 1 (of 0 and 3) and 9 : 4 after 3. Which is nearer tells who came.
  2000 draws, five standard errors: a false alarm in 10^6 runs.
  """
  table, is_real = _gram([[0], [1], [3]]), tf.fill([3], True)
  draws = 2000
  graph = tf.function(
    lambda: tf.map_fn(
      lambda number: k_means._plus_plus(table, is_real, 2, _SEED, number),
      tf.range(draws),
    )
  )
  starts = graph().numpy()
  chances = {
    (0, 1, 1): 1 / 10 / 3,  # 0, then 1.
    (0, 0, 1): (9 / 10 + 4 / 5) / 3,  # 0 or 1, then 3.
    (1, 0, 0): 1 / 5 / 3,  # 1, then 0.
    (1, 1, 0): 1 / 3,  # 3 first.
  }
  for start, chance in chances.items():
    share = (starts == start).all(axis=1).mean()
    error = 5 * np.sqrt(chance * (1 - chance) / draws)
    assert abs(share - chance) < error, start


def test_no_seed_is_drawn_where_another_lies():
  """Three pairs of equal points: three seeds part them, whichever came last."""
  table, is_real = _gram([[0], [0], [1], [1], [5], [5]]), tf.fill([6], True)
  for number in range(10):
    start = k_means._plus_plus(table, is_real, 3, _SEED, number).numpy()
    assert len(set(start)) == 3
    np.testing.assert_array_equal(start[::2], start[1::2])


def test_points_that_do_not_count_change_nothing():
  points = _blobs(4)
  is_real = np.arange(40) % 7 != 3
  counts = tf.constant(is_real, tf.float64)
  far = points + 1e3 * ~is_real[:, np.newaxis]
  table = gram.centered_gram([{'w': far.astype(np.float32)}], counts)
  found = k_means.k_means(table, tf.constant(is_real), 4, _SEED, 3)
  expected = _run(points[is_real], 4, 3)
  np.testing.assert_array_equal(
    found.assignment.numpy()[is_real], expected.assignment
  )
  np.testing.assert_allclose(found.inertia, expected.inertia, rtol=1e-6)


def test_equal_points_are_one_cluster():
  found = _run(np.full([7, 3], 0.1), 3)
  assert len(set(found.assignment.numpy())) == 1
  assert found.inertia == 0


def test_fewer_distinct_points_than_clusters_leave_some_empty():
  points = np.repeat([[0.0, 1], [5, 2], [9, 9]], [4, 3, 2], axis=0) + 0.1
  found = _run(points, 5)
  labels = found.assignment.numpy()
  assert found.inertia == 0
  assert [len(set(part)) for part in np.split(labels, [4, 7])] == [1, 1, 1]
  assert len(set(labels)) == 3


def test_as_many_clusters_as_points_part_all():
  found = _run(_blobs(5, num_points=6), 6)
  assert sorted(found.assignment.numpy()) == list(range(6))
  assert found.inertia == 0


def test_empty_clusters_take_the_farthest_points():
  """All in cluster 1: the mean is 3; 10 lies farthest, then 0."""
  points, is_real = [[0], [1], [1], [10]], tf.fill([4], True)
  start = tf.constant([1, 1, 1, 1])
  once = k_means.lloyd(_gram(points), is_real, start, 3, 1)
  assert once.assignment.numpy().tolist() == [2, 2, 2, 0]
  whole = k_means.lloyd(_gram(points), is_real, start, 3)
  assert len(set(whole.assignment.numpy())) == 3
  assert whole.inertia == 0


def test_empty_clusters_take_no_point_that_does_not_count():
  """The same, beside one at 100."""
  points, is_real = [[0], [1], [1], [10], [100]], tf.range(5) < 4
  table = gram.centered_gram(
    [{'w': np.asarray(points, np.float32)}], tf.cast(is_real, tf.float64)
  )
  once = k_means.lloyd(table, is_real, tf.fill([5], 1), 3, 1)
  assert once.assignment.numpy()[:4].tolist() == [2, 2, 2, 0]


def test_a_cluster_stays_empty_where_all_points_lie_on_their_centers():
  start, is_real = tf.constant([1, 1, 2]), tf.fill([3], True)
  found = k_means.lloyd(_gram([[0], [0], [5]]), is_real, start, 3)
  assert found.assignment.numpy().tolist() == [1, 1, 2]
  assert found.num_iterations == 1


def test_a_tie_goes_to_the_lowest_cluster():
  """The means are 0 and 2; 1 is as near to both."""
  start = tf.constant([0, 1, 1])
  points, is_real = [[0], [1], [3]], tf.fill([3], True)
  found = k_means.lloyd(_gram(points), is_real, start, 2, 1)
  assert found.assignment.numpy().tolist() == [0, 0, 1]


def test_iterations_are_counted_and_capped():
  points, is_real = (
    _gram(_blobs(1, 200, size=2, spread=1.0)),
    tf.fill([200], True),
  )
  start = tf.range(200) % 4
  whole = k_means.lloyd(points, is_real, start, 4)
  n = int(whole.num_iterations)
  assert n > 3
  again = k_means.lloyd(points, is_real, whole.assignment, 4)
  assert again.num_iterations == 1
  assert k_means.lloyd(points, is_real, start, 4, 2).num_iterations == 2
