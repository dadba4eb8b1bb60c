"""Tests of clustering what clients uploaded."""

import itertools
from collections import OrderedDict

import numpy as np
import pytest
import tensorflow as tf

from tff_algos.algorithms.pfedkm import regrouping
from tff_algos.core import errors
from tff_algos.rounds import aggregation

_SEED = tf.constant([4, 2])


def _uploads(first, second=None, is_valid=None):
  """Models of two weights."""
  first = np.asarray(first, np.float32)
  second = np.zeros_like(first) if second is None else second
  is_valid = np.ones(len(first), bool) if is_valid is None else is_valid
  return aggregation.Collected(
    OrderedDict(
      kernel=tf.constant(first), bias=tf.constant(second, tf.float32)
    ),
    tf.range(len(first)),
    tf.constant(is_valid),
  )


def _cluster(uploads, models, before=None, **options):
  if before is None:
    before = np.zeros(len(uploads.is_valid), np.int32)
  return regrouping.cluster_uploads(
    uploads,
    _uploads(models).values,
    tf.constant(before, tf.int32),
    _SEED,
    regrouping.KMeansConfig(**options),
  )


def _parts(assignment):
  """Returns a partition, whatever its labels."""
  labels = np.asarray(assignment)
  return {tuple(np.flatnonzero(labels == k)) for k in np.unique(labels)}


_LINE = [0.0, 1, 10, 11, 12]


def test_uploads_are_clustered():
  clusters = _cluster(_uploads(_LINE), [0.0, 0])
  assert _parts(clusters.assignment) == {(0, 1), (2, 3, 4)}
  np.testing.assert_allclose(clusters.found.inertia, 0.5 + 2)
  assert clusters.gram.shape == (5, 5)


@pytest.mark.parametrize('initialization', regrouping.INITIALIZATIONS)
@pytest.mark.parametrize('size', [1e6, 1e9, 1e30])
def test_one_huge_upload_leaves_the_others_apart(size, initialization):
  points = [0.1, 0.101, -0.2, -0.202, size]
  models = [0.1, -0.2, size]
  clusters = _cluster(_uploads(points), models, initialization=initialization)
  assert _parts(clusters.assignment) == {(0, 1), (2, 3), (4,)}
  np.testing.assert_allclose(clusters.found.inertia, 2.5e-6, rtol=1e-3)


def test_from_the_cluster_models_labels_stay():
  """The nearest of 10 and 2, then the means: no third iteration."""
  warm = _cluster(_uploads(_LINE), [10.0, 2], initialization='cluster_models')
  assert warm.assignment.numpy().tolist() == [1, 1, 0, 0, 0]
  assert warm.found.num_iterations == 1
  np.testing.assert_allclose(warm.found.inertia, 2.5)


def test_from_the_cluster_models_fewer_iterations_are_needed():
  points = np.random.default_rng(0).normal(size=60)
  cold = _cluster(_uploads(points), np.zeros(4), num_restarts=1)
  means = [points[cold.assignment == k].mean() for k in range(4)]
  warm = _cluster(_uploads(points), means, initialization='cluster_models')
  np.testing.assert_array_equal(warm.assignment, cold.assignment)
  assert warm.found.num_iterations == 1 < cold.found.num_iterations


def test_named_weights_alone_are_compared():
  """The kernels part evens from odds, the larger biases the first two."""
  uploads = _uploads([0, 1, 0, 1], [0, 0, 9, 9])
  both = _cluster(uploads, [0.0, 0])
  assert _parts(both.assignment) == {(0, 1), (2, 3)}
  kernels = _cluster(uploads, [0.0, 0], weight_names=('kernel',))
  assert _parts(kernels.assignment) == {(0, 2), (1, 3)}


def test_who_sent_nothing_valid_keeps_its_cluster():
  clusters = _cluster(
    _uploads([0, 1, 500, 11, 12], is_valid=[True, True, False, True, True]),
    [0.0, 0, 0],
    before=[0, 0, 2, 1, 1],
  )
  assert clusters.assignment[2] == 2


def test_if_all_sent_the_same_all_keep_theirs():
  clusters = _cluster(
    _uploads([7, 7, 9, 7], is_valid=[True, True, False, True]),
    [7.0, 7],
    before=[1, 0, 1, 1],
  )
  assert clusters.assignment.numpy().tolist() == [1, 0, 1, 1]


def _names(before, after, models=(0.0, 0, 0), means=(0.0, 0, 0), is_real=None):
  is_real = np.ones(len(before), bool) if is_real is None else is_real
  return regrouping.name_clusters(
    tf.constant(before),
    tf.constant(after),
    tf.constant(is_real),
    _uploads(models).values,
    _uploads(means).values,
  )


def test_new_clusters_are_named_after_those_they_share_most_clients_with():
  before, after = [0, 0, 0, 1, 1, 2, 2], [2, 2, 0, 0, 0, 1, 1]
  names = _names(before, after)
  assert names.numpy().tolist() == [2, 0, 1]
  renamed = regrouping.rename(tf.constant(after), names)
  assert renamed.numpy().tolist() == [0, 0, 1, 1, 1, 2, 2]


def test_one_client_weighs_more_than_any_distance():
  names = _names(
    [0, 0, 0, 1, 1, 2],
    [1, 1, 0, 0, 0, 2],
    models=[0, 1e6, 0],
    means=[0, 1e6, 0],
  )
  assert names.numpy().tolist() == [1, 0, 2]


def test_among_equal_numbers_distances_decide():
  before, after = [0, 0, 1, 1, 2], [0, 1, 0, 1, 2]
  assert _names(before, after, (1, 5, 0), (5, 1, 0)).numpy()[0] == 1
  assert _names(before, after, (1, 5, 0), (1, 5, 0)).numpy()[0] == 0


@pytest.mark.parametrize('num_clusters', [2, 4])
def test_names_of_equal_models_are_the_lexicographically_smallest(num_clusters):
  """As before round 1; means of other sizes leave the distances in a tie."""
  generator = np.random.default_rng(num_clusters)
  permutations = [*itertools.permutations(range(num_clusters))]
  name = tf.function(regrouping.name_clusters, autograph=False)
  num_ties = 0
  for _ in range(25):
    before, after = generator.integers(0, num_clusters, (2, 6))
    models, means = (
      _uploads(generator.normal(size=(count, 7))).values
      for count in (1, num_clusters)
    )
    models = tf.nest.map_structure(
      lambda leaf: tf.repeat(leaf, num_clusters, axis=0), models
    )
    found = name(
      tf.constant(before), tf.constant(after), tf.fill([6], True), models, means
    )
    kept = [
      sum(order[old] == new for old, new in zip(before, after, strict=True))
      for order in permutations
    ]
    num_ties += kept.count(max(kept)) > 1
    assert tuple(found.numpy()) == permutations[kept.index(max(kept))]
  assert num_ties > 3


def test_invalid_clients_have_no_say_in_names():
  before, after = [0, 1, 1, 2], [0, 0, 0, 2]
  is_real = [True, False, False, True]
  assert _names(before, after, is_real=is_real).numpy()[0] == 0
  assert _names(before, after).numpy()[1] == 0


@pytest.mark.parametrize(
  ('options', 'text'),
  [
    (
      {'initialization': 'random'},
      "must be one of 'k-means\\+\\+', 'cluster_m",
    ),
    ({'num_restarts': 0}, 'num_restarts must be an integer >= 1, got 0'),
    ({'max_iterations': 0}, 'max_iterations must be an integer >= 1, got 0'),
  ],
)
def test_options_out_of_range_are_refused(options, text):
  with pytest.raises(errors.ConfigError, match=text):
    regrouping.KMeansConfig(**options)
