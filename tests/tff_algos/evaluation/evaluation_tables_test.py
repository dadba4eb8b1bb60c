"""Tables by cluster and by source: numbers by hand."""

import types

import numpy as np
import pytest

from tff_algos.evaluation import evaluation_tables, evaluator

_SOURCES = ('lower', 'upper')
# FedSoft's letters, Linear partition: 71.8 by cluster 0, 74.1 by cluster 1.
_METRICS = {
  'held_out/lower/cluster_0/accuracy': 0.718,
  'held_out/lower/cluster_0/loss': 1.0,
  'held_out/lower/cluster_1/accuracy': 0.717,
  'held_out/lower/cluster_1/loss': 1.1,
  'held_out/upper/cluster_0/accuracy': 0.739,
  'held_out/upper/cluster_0/loss': 0.9,
  'held_out/upper/cluster_1/accuracy': 0.741,
  'held_out/upper/cluster_1/loss': 0.8,
  'unseen/test/cluster/accuracy': 0.5,
}
_ALGORITHM = types.SimpleNamespace(
  num_clusters=2, cluster_model=types.SimpleNamespace(score_name='accuracy')
)
_MEMBERSHIPS = np.array([[0.2, 0.8], [0.9, 0.1], [0.6, 0.4]])
_PLANTED = evaluator.Planted(
  _SOURCES, np.array([[0.9, 0.1], [0.1, 0.9], [0.1, 0.9]]), np.zeros([0, 2])
)


def _centers(metrics=_METRICS):
  return evaluation_tables.center_rows(metrics, _SOURCES, _ALGORITHM)


def test_every_center_on_every_source():
  assert [tuple(row.values()) for row in _centers()] == [
    ('lower', 0, 0.718, 1.0),
    ('lower', 1, 0.717, 1.1),
    ('upper', 0, 0.739, 0.9),
    ('upper', 1, 0.741, 0.8),
  ]
  assert list(_centers()[0]) == ['source', 'cluster_id', 'accuracy', 'loss']


@pytest.mark.parametrize(
  ('memberships', 'planted', 'expected'),
  [
    # Cluster 1 holds the client of the lower-case letters.
    (_MEMBERSHIPS, _PLANTED, ['upper', 'lower']),
    (_MEMBERSHIPS, None, ['lower', 'upper']),
    (None, _PLANTED, ['lower', 'upper']),
  ],
)
def test_matched_by_clients_or_by_scores(memberships, planted, expected):
  matched = evaluation_tables.matched_sources(
    _centers(), 'accuracy', memberships, planted, higher_is_better=True
  )
  assert matched == expected


def test_cluster_without_a_source_stands_for_nothing():
  memberships = np.array([[0.1, 0.8, 0.1], [0.8, 0.1, 0.1]])
  planted = _PLANTED._replace(mixture=_PLANTED.mixture[:2])
  matched = evaluation_tables.matched_sources(
    _centers(), 'accuracy', memberships, planted, higher_is_better=True
  )
  assert matched == ['upper', 'lower', None]


def test_association():
  rows = evaluation_tables.association_rows(_MEMBERSHIPS, _PLANTED)
  assert [list(row) for row in rows] == 2 * [
    [
      *('main_source', 'num_clients', 'num_main_cluster_0'),
      *('num_main_cluster_1', 'mean_membership_0', 'mean_membership_1'),
    ]
  ]
  assert list(rows[0].values()) == ['lower', 1, 0, 1, 0.2, 0.8]
  assert list(rows[1].values()) == ['upper', 2, 2, 0, 0.75, 0.25]
