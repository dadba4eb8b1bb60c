"""Tests of agglomerative clustering, against SciPy and against all bipartitions."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from scipy.cluster import hierarchy
from scipy.spatial import distance

from tff_algos.algorithms.cfl import linkage


def _distances(seed, num_rows):
  points = np.random.default_rng(seed).normal(size=(num_rows, 3))
  return distance.squareform(distance.pdist(points, 'cosine'))


def _bipartition(distances, is_member, method):
  is_member = np.asarray(is_member, bool)
  return linkage.bipartition(
    tf.constant(distances), tf.constant(is_member), method
  ).numpy()


@pytest.mark.parametrize('method', linkage.LINKAGES)
@pytest.mark.parametrize('seed', range(10))
def test_agrees_with_scipy(method, seed):
  """With every third row left out: indices are those of all rows."""
  distances = _distances(seed, 14)
  members = np.flatnonzero(np.arange(14) % 3 != 1)
  found = _bipartition(distances, np.isin(np.arange(14), members), method)
  condensed = distance.squareform(distances[np.ix_(members, members)])
  labels = hierarchy.fcluster(
    hierarchy.linkage(condensed, method), 2, 'maxclust'
  )
  assert not found[members[0]]
  assert not found[np.arange(14) % 3 == 1].any()
  np.testing.assert_array_equal(found[members], labels != labels[0])


@pytest.mark.parametrize('seed', range(5))
def test_single_linkage_keeps_the_halves_as_far_apart_as_can_be(seed):
  """Of all bipartitions of seven rows, by trying them."""
  distances = _distances(seed, 7)

  def gap(second):
    return distances[np.ix_(second, ~second)].min()

  found = _bipartition(distances, np.ones(7), 'single')
  others = itertools.product([False, True], repeat=6)
  best = max(gap(np.array([False, *rest])) for rest in others if any(rest))
  assert gap(found) == best


@pytest.mark.parametrize(
  ('method', 'second'), [('single', [4]), ('complete', [2, 3, 4])]
)
def test_the_two_linkages_differ_on_a_chain(method, second):
  """Steps of 1, 1.1, 1.2, 1.3. Single takes the last off; complete merges the
  first two at 1, the next two at 1.2, and the last to these at 2.5.
  """
  places = np.cumsum([0, 1, 1.1, 1.2, 1.3])
  distances = np.abs(places[:, np.newaxis] - places)
  found = _bipartition(distances, np.ones(5), method)
  assert np.flatnonzero(found).tolist() == second


@pytest.mark.parametrize('members', [[], [2], [1, 3]])
def test_few_members(members):
  is_member = np.isin(np.arange(4), members)
  found = _bipartition(_distances(0, 4), is_member, 'complete')
  assert np.flatnonzero(found).tolist() == members[1:]
