"""Cluster recovery: hand-computed numbers, and no memory of cluster numbers."""

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from sklearn import metrics

from tff_algos.evaluation import recovery


def test_ties_take_the_lowest_cluster():
  labels = recovery.hard_labels([[0.5, 0.5], [0.1, 0.9], [0.0, 0.0]])
  np.testing.assert_array_equal(labels, [0, 1, 0])


def test_a_renumbered_partition_is_recovered():
  found = recovery.recovery([1, 1, 0, 0], [0, 0, 1, 1])
  np.testing.assert_allclose(found, (1, 1, 1))


def test_hand_computed_agreement():
  # Clusters {0, 0, 1} and {1, 1, 1}. Purity (2 + 3) / 6. Pairs: same in both
  # 1 + 3 = 4, same cluster 6, same label 1 + 6 = 7, all 15, so
  # ARI = (4 - 6 * 7 / 15) / ((6 + 7) / 2 - 6 * 7 / 15).
  found = recovery.recovery([0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 1])
  assert found.purity == pytest.approx(5 / 6)
  assert found.ari == pytest.approx((4 - 2.8) / (6.5 - 2.8))
  # Entropies in bits: clusters 1, labels h(1/3) = 0.9183; the information
  # that they share is 0.9183 - (0.9183 + 0) / 2.
  assert found.nmi == pytest.approx(0.45915 / ((1 + 0.9183) / 2), abs=1e-4)


def test_one_cluster_for_all_recovers_nothing():
  found = recovery.recovery([0, 0, 0, 0], [0, 0, 1, 1])
  np.testing.assert_allclose(found, (0, 0, 0.5), atol=1e-12)


@hypothesis.given(st.data())
@hypothesis.settings(max_examples=50)
def test_renumbering_and_reordering_change_nothing(data):
  size = data.draw(st.integers(1, 20))
  ids = np.array(
    data.draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
  )
  planted = np.array(
    data.draw(st.lists(st.integers(0, 2), min_size=size, max_size=size))
  )
  numbers = np.array(data.draw(st.permutations(range(4))))
  order = np.array(data.draw(st.permutations(range(size))))
  found = recovery.recovery(ids, planted)
  again = recovery.recovery(numbers[ids][order], planted[order])
  np.testing.assert_allclose(again, found, atol=1e-12)
  assert found.ari == pytest.approx(metrics.adjusted_rand_score(planted, ids))
  # Purity is a weighted precision: no lower than the largest label's share.
  assert np.bincount(planted).max() / size <= found.purity <= 1


def test_matching_finds_the_permutation():
  mixture = np.array([[0.9, 0.1], [0.1, 0.9], [0.9, 0.1]])
  membership = mixture[:, ::-1] + [[0.02, -0.02]] * 3
  np.testing.assert_array_equal(
    recovery.match_clusters(membership, mixture), [1, 0]
  )
  assert recovery.membership_error(membership, mixture) == pytest.approx(0.02)


def test_clusters_without_a_source_stay_unmatched():
  mixture = np.array([[1.0, 0.0], [0.0, 1.0]])
  membership = np.array([[0.0, 0.3, 0.7], [0.8, 0.2, 0.0]])
  np.testing.assert_array_equal(
    recovery.match_clusters(membership, mixture), [1, recovery.UNMATCHED, 0]
  )
  # |0 - 0|, |0.8 - 1| for source 1 and |0.7 - 1|, |0 - 0| for source 0.
  assert recovery.membership_error(membership, mixture) == pytest.approx(
    (0.2 + 0.3) / 4
  )


def test_more_sources_than_clusters():
  matched = recovery.match_clusters([[1.0], [0.0]], [[0.0, 1.0], [1.0, 0.0]])
  np.testing.assert_array_equal(matched, [1])


@hypothesis.given(
  st.integers(1, 12), st.integers(1, 4), st.integers(1, 4), st.randoms()
)
@hypothesis.settings(max_examples=50)
def test_the_error_is_the_same_for_permuted_clusters(
  clients, clusters, sources, random
):
  draw = lambda columns: np.array(
    [[random.random() for _ in range(columns)] for _ in range(clients)]
  )
  membership, mixture = draw(clusters), draw(sources)
  numbers = random.sample(range(clusters), clusters)
  assert recovery.membership_error(
    membership[:, numbers], mixture
  ) == pytest.approx(recovery.membership_error(membership, mixture))


def test_bad_input_is_named():
  with pytest.raises(ValueError, match=r'\(2,\) and \(3,\)'):
    recovery.recovery([0, 1], [0, 1, 1])
  with pytest.raises(ValueError, match='at least one client'):
    recovery.recovery([], [])
  with pytest.raises(ValueError, match='NaN in row 1'):
    recovery.hard_labels([[0.0, 1.0], [np.nan, 1.0]])
  with pytest.raises(ValueError, match='1 and 2 rows'):
    recovery.match_clusters([[1.0]], [[1.0], [1.0]])
