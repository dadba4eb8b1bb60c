"""Association of clusters with sources: numbers by hand."""

import numpy as np
import pytest

from tff_algos.evaluation import association

_MEMBERSHIP = np.array(
  [[0.2, 0.8, 0.0], [0.1, 0.3, 0.6], [0.9, 0.05, 0.05], [0.3, 0.3, 0.3]]
)
_MIXTURE = np.array([[0.9, 0.1], [0.7, 0.3], [0.2, 0.8], [0.6, 0.4]])


def test_main_clusters():
  clusters = association.main_clusters(_MEMBERSHIP)
  np.testing.assert_array_equal(clusters, [1, 2, 0, association.UNDECIDED])
  # Two of three tie; and one cluster is everybody's.
  tied = association.main_clusters(np.array([[0.4, 0.4, 0.2]]))
  np.testing.assert_array_equal(tied, [0])
  np.testing.assert_array_equal(association.main_clusters(np.ones([2, 1])), 0)


def test_clients_by_main_source():
  found = association.associate(_MEMBERSHIP, _MIXTURE)
  np.testing.assert_array_equal(found.num_clients, [3, 1])
  # The undecided client counts in no column.
  np.testing.assert_array_equal(found.num_by_cluster, [[0, 1, 1], [1, 0, 0]])
  np.testing.assert_allclose(
    found.mean_membership, [[0.2, 1.4 / 3, 0.3], [0.9, 0.05, 0.05]]
  )


def test_source_that_is_nobodys_main_one():
  found = association.associate(_MEMBERSHIP[:2], _MIXTURE[:2])
  np.testing.assert_array_equal(found.num_clients, [2, 0])
  assert np.isnan(found.mean_membership[1]).all()


@pytest.mark.parametrize('sign', [1, -1])
def test_best_cluster_of_each_source(sign):
  scores = sign * np.array(
    [[0.5, 0.7, np.nan, 0.2], [0.6, 0.7, np.nan, np.nan]]
  )
  best = association.best_clusters(scores, higher_is_better=sign > 0)
  np.testing.assert_array_equal(best, [1, 0, -1, 0])


def test_matching_by_scores_gives_each_cluster_another_source():
  # Cluster 0 is the better one on both; the sum decides.
  scores = np.array([[0.9, 0.8], [0.5, 0.1], [0.4, 0.05]])
  matched = association.match_by_scores(scores, higher_is_better=True)
  np.testing.assert_array_equal(matched, [1, 0, -1])
  matched = association.match_by_scores(scores, higher_is_better=False)
  np.testing.assert_array_equal(matched, [-1, 1, 0])
  scores[0, 0] = np.nan
  matched = association.match_by_scores(scores, higher_is_better=True)
  np.testing.assert_array_equal(matched, [-1, -1, -1])
