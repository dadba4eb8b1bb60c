"""Tests of when a cluster splits, and who goes where."""

import numpy as np
import pytest
import tensorflow as tf
from scipy.cluster import hierarchy
from scipy.spatial import distance

from tff_algos.algorithms.cfl import splitting
from tff_algos.core import errors

# Two directions, and a client whose update vanishes: the mean is (0, 0).
_UPDATES = np.array([[3, 1], [-3, 1], [3, -1], [-3, -1], [0, 0]], float)
_CONFIG = splitting.SplittingConfig(0.5, 2.0, first_round=1)


def _split(
  updates=_UPDATES,
  before=(0, 0, 0, 0, 0),
  counts=None,
  num_active=1,
  num_clusters=3,
  is_open=True,
  config=_CONFIG,
):
  updates = np.asarray(updates, float)
  counts = np.ones(len(updates)) if counts is None else np.array(counts, float)
  return splitting.split(
    tf.constant(updates @ updates.T),
    tf.constant(before, tf.int32),
    tf.constant(counts),
    tf.constant(num_active),
    num_clusters,
    tf.constant(is_open),
    config,
  )


def test_halves_are_those_of_similar_directions():
  """Complete linkage of cosines; a vanishing update goes with the first pair."""
  clusters = _split()
  assert clusters.assignment.numpy().tolist() == [0, 1, 0, 1, 0]
  assert int(clusters.num_active) == 2
  assert clusters.parents.numpy().tolist() == [0, 0, 2]
  assert float(clusters.smallest_mean_norm) == 0
  np.testing.assert_allclose(float(clusters.largest_norm), 10**0.5)


@pytest.mark.parametrize(
  'options',
  [
    {'is_open': False},
    # Two clients stay together, though their mean vanishes.
    {'counts': [1, 0, 0, 1, 0]},
    # The mean is as long as (1, 0), by the counts 2, 1, 2, 1, 0.
    {'counts': [2, 1, 2, 1, 0]},
    # The mean may be as short as it likes: no update is long enough.
    {'config': splitting.SplittingConfig(0.5, 3.2, first_round=1)},
    {'num_clusters': 1},
  ],
)
def test_no_split(options):
  clusters = _split(**options)
  assert clusters.assignment.numpy().tolist() == [0] * 5
  assert int(clusters.num_active) == 1
  assert clusters.parents.numpy().tolist() == list(
    range(options.get('num_clusters', 3))
  )


def test_two_clusters_split_in_one_round_and_numbers_are_of_all_clients():
  """Cluster 1 is the odd clients, of which the last two point elsewhere."""
  updates = [[3, 0], [3, 0], [-3, 0], [-1.5, 3], [3, 0], [-1.5, -3], [-3, 0]]
  before = [0, 1, 0, 1, 0, 1, 0]
  clusters = _split(updates, before, num_active=2, num_clusters=5)
  # 2 and 6 are the other half of cluster 0. Of 1, 3 and 5 the nearest are
  # those whose cosine is least negative: 1 with 3, at -0.447.
  assert clusters.assignment.numpy().tolist() == [0, 1, 2, 1, 0, 3, 2]
  assert clusters.parents.numpy().tolist() == [0, 1, 0, 1, 4]
  assert int(clusters.num_active) == 4


def test_the_last_free_number_goes_to_the_first_cluster_in_need():
  updates = [[3, 0], [3, 0], [-3, 0], [-1.5, 3], [3, 0], [-1.5, -3], [-3, 0]]
  before = [0, 1, 0, 1, 0, 1, 0]
  clusters = _split(updates, before, num_active=2, num_clusters=3)
  assert clusters.assignment.numpy().tolist() == [0, 1, 2, 1, 0, 1, 2]
  assert int(clusters.num_active) == 3


def test_who_counts_nothing_keeps_its_number_and_decides_nothing():
  """The last one alone would make the mean long."""
  updates = np.concatenate([_UPDATES, [[100, 0]]])
  clusters = _split(updates, [0] * 6, [1, 1, 1, 1, 1, 0])
  assert clusters.assignment.numpy().tolist() == [0, 1, 0, 1, 0, 0]
  np.testing.assert_allclose(float(clusters.largest_norm), 10**0.5)


@pytest.mark.parametrize(
  ('options', 'text'),
  [
    ({'mean_norm_below': 0.0}, 'mean_norm_below must be a finite number > 0'),
    ({'largest_norm_above': -1.0}, 'largest_norm_above must be a finite numbe'),
    ({'first_round': 0}, 'first_round must be an integer >= 1, got 0'),
  ],
)
def test_options_out_of_range_are_refused(options, text):
  with pytest.raises(errors.ConfigError, match=text):
    splitting.SplittingConfig(**options)


def _distances(seed, num_rows):
  points = np.random.default_rng(seed).normal(size=(num_rows, 3))
  return distance.squareform(distance.pdist(points, 'cosine'))


def _bipartition(distances, is_member):
  is_member = np.asarray(is_member, bool)
  return splitting.bipartition(
    tf.constant(distances), tf.constant(is_member)
  ).numpy()


@pytest.mark.parametrize('seed', range(10))
def test_halves_are_those_of_scipy(seed):
  """With every third row left out: indices are those of all rows."""
  distances = _distances(seed, 14)
  members = np.flatnonzero(np.arange(14) % 3 != 1)
  found = _bipartition(distances, np.isin(np.arange(14), members))
  condensed = distance.squareform(distances[np.ix_(members, members)])
  labels = hierarchy.fcluster(
    hierarchy.linkage(condensed, 'complete'), 2, 'maxclust'
  )
  assert not found[members[0]]
  assert not found[np.arange(14) % 3 == 1].any()
  np.testing.assert_array_equal(found[members], labels != labels[0])


def test_linkage_is_complete():
  """A chain with steps of 1, 1.1, 1.2, 1.3; single linkage takes the last off.

  Complete merges the first two at 1, the next two at 1.2, and the last to these
  at 2.5.
  """
  places = np.cumsum([0, 1, 1.1, 1.2, 1.3])
  distances = np.abs(places[:, np.newaxis] - places)
  found = _bipartition(distances, np.ones(5))
  assert np.flatnonzero(found).tolist() == [2, 3, 4]


@pytest.mark.parametrize('members', [[], [2], [1, 3]])
def test_few_members(members):
  is_member = np.isin(np.arange(4), members)
  found = _bipartition(_distances(0, 4), is_member)
  assert np.flatnonzero(found).tolist() == members[1:]
