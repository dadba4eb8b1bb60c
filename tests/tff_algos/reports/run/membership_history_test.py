"""Memberships over rounds, from hand-made files."""

import numpy as np
import pytest

from tests.testing import fake_workdir
from tff_algos.core import errors
from tff_algos.reports.run import membership_history


def _one_hot(*clusters):
  return np.eye(3)[list(clusters)]


def _history(tmp_path, memberships, last_round=99):
  fake_workdir.write_memberships(tmp_path, memberships)
  return membership_history.read(tmp_path, last_round)


def test_rounds_and_values(tmp_path):
  history = _history(
    tmp_path, {10: _one_hot(2, 1), 0: np.ones([2, 3]), 5: _one_hot(0, 1)}
  )
  np.testing.assert_array_equal(history.rounds, [0, 5, 10])
  assert history.num_clients == 2
  np.testing.assert_array_equal(
    history.main_clusters, [[-1, -1], [0, 1], [2, 1]]
  )
  np.testing.assert_array_equal(
    history.at(np.array([2, 0])), [_one_hot(2, 1), np.ones([2, 3])]
  )
  sums = history.map(lambda memberships: memberships.sum(axis=0))
  np.testing.assert_array_equal(sums, [[2, 2, 2], [1, 1, 0], [0, 1, 1]])


def test_a_membership_sums_to_one_or_more():
  """Before an estimate all are 0, or FedSoft's smoother."""
  memberships = np.array([[0, 0], [1e-4, 1e-4], [0.3, 0.3], [0.3, 0.7], [1, 1]])
  found = membership_history.has_membership(memberships)
  assert found.tolist() == [False, False, False, True, True]


@pytest.mark.parametrize(
  ('clusters', 'settled'),
  [
    ([(0, 1), (1, 1), (1, 0), (1, 0)], 20),
    ([(1, 0), (1, 0)], 0),
    ([(1, 0), (0, 0), (1, 0)], None),
    ([(1, 0)], None),
  ],
)
def test_settled_round(tmp_path, clusters, settled):
  rounds = {10 * i: _one_hot(*row) for i, row in enumerate(clusters)}
  assert _history(tmp_path, rounds).settled_round == settled


@pytest.mark.parametrize(
  ('last', 'settled'), [((0.4, 0.6), None), ((0.3, 0.7), 2), ((0.6, 0.4), None)]
)
def test_soft_memberships_that_were_not_estimated_anew_show_nothing(
  tmp_path, last, settled
):
  rounds = [(0.7, 0.3), (0.6, 0.4), (0.4, 0.6), last]
  history = _history(tmp_path, {r: np.array([m]) for r, m in enumerate(rounds)})
  assert history.settled_round == settled
  assert history.last_change == (3 if last == (0.6, 0.4) else 2)


def test_a_round_after_the_last_row_does_not_count(tmp_path):
  rounds = {0: _one_hot(0), 1: _one_hot(0), 2: _one_hot(1)}
  assert _history(tmp_path, rounds, last_round=1).settled_round == 0


def test_other_files_are_no_rounds(tmp_path):
  rounds = {0: _one_hot(0), 1: _one_hot(0)}
  fake_workdir.write_memberships(tmp_path, rounds)
  for name in ('round_000001 (copy).npy', 'round_2.npy', 'round_.npy'):
    (tmp_path / 'memberships' / name).write_bytes(b'')
  history = membership_history.read(tmp_path, 99)
  np.testing.assert_array_equal(history.rounds, [0, 1])


def test_without_files_there_is_no_history(tmp_path):
  assert membership_history.read(tmp_path, 99) is None
  assert _history(tmp_path, {3: _one_hot(0)}, last_round=2) is None


def test_damaged_file_is_named(tmp_path):
  history = _history(tmp_path, {0: _one_hot(0), 1: _one_hot(1)})
  path = tmp_path / 'memberships' / 'round_000001.npy'
  path.write_bytes(path.read_bytes()[:-5])
  with pytest.raises(errors.DataError, match='round_000001.npy cannot be read'):
    history.main_clusters  # noqa: B018


def test_file_of_another_run_is_named(tmp_path):
  history = _history(tmp_path, {0: _one_hot(0), 1: _one_hot(1, 1)})
  with pytest.raises(errors.DataError, match=r'round_000001.npy.*\(2, 3\)'):
    history.main_clusters  # noqa: B018
