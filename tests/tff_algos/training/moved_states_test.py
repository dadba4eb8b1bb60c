from typing import Any, NamedTuple

import numpy as np
import pytest

from tff_algos.core import carrying, durable, errors
from tff_algos.training import checkpoint, client_state_store, moved_states


class _State(NamedTuple):
  value: Any


# Clients b and d stay, x is new, and a returns, of a parent run with b, c, d.
_MOVES = moved_states.Moves(np.array([0, -1, 2, 3], np.int32), 3)
_GONE = moved_states.Departed(
  ('a',), (2,), np.array([True]), np.uint8([[9]]), (np.array([[7.0]]),)
)


def _move(rule, old, initial, is_anew=False):
  carrier = moved_states.Carrier(
    carrying.Carry({'value': rule}), _MOVES, _GONE, np.ones(4, bool), is_anew
  )
  moved = carrier.move(_State(np.array(old)), _State(np.array(initial)))
  return moved.value.tolist(), carrier


def test_rows_move_with_their_clients():
  old, initial = [[1.0], [2.0], [3.0]], [[0.0]] * 4
  for rule in (carrying.CLIENTS, carrying.CLUSTER):
    moved, carrier = _move(rule, old, initial)
    assert moved == [[1], [0], [3], [7]]
    (rows,) = carrier.known_rows
    assert rows.tolist() == [[1], [2], [3], [7]]


def test_without_archived_rows_who_had_left_has_the_initial_row():
  """FedSoft archives no importance in a run with `fixed_importance`."""
  carrier = moved_states.Carrier(
    carrying.Carry({'value': carrying.CLIENTS}),
    _MOVES,
    _GONE._replace(server_rows=()),
    np.ones(4, bool),
    False,
  )
  old, initial = np.array([[1.0], [2.0], [3.0]]), np.full((4, 1), 0.5)
  moved = carrier.move(_State(old), _State(initial)).value
  assert moved.tolist() == [[1], [0.5], [3], [0.5]]
  # Who does not return is archived again.
  (rows,) = carrier.known_rows
  assert rows.tolist() == [[1], [2], [3], [0.5]]


def test_rows_of_who_stays_move_and_who_returns_is_initial():
  old, initial = [[1.0], [2.0], [3.0]], [[0.0]] * 4
  moved, _ = _move(carrying.STAYING, old, initial)
  assert moved == [[1], [0], [3], [0]]


@pytest.mark.parametrize(
  ('rule', 'is_anew', 'expected'),
  [
    (carrying.KEEP, True, [4.0]),
    (carrying.OPTIMIZER, False, [4.0]),
    (carrying.OPTIMIZER, True, [0.5]),
    (carrying.INITIAL, False, [0.5]),
  ],
)
def test_fields_without_clients(rule, is_anew, expected):
  assert _move(rule, [4.0], [0.5], is_anew)[0] == expected


def test_a_sum_is_scaled_by_the_clients_that_bring_a_state():
  # Of five clients, one without a state, one with it stays, and that without;
  # two come, and one returns.
  moves = moved_states.Moves(np.array([-1, 2, -1, 4, 5], np.int32), 5)
  has_state = np.array([1, 1, 1, 1, 0, 1], bool)
  carrier = moved_states.Carrier(
    carrying.Carry({'value': carrying.CLIENT_SUM}),
    moves,
    _GONE,
    has_state,
    False,
  )
  moved = carrier.move(_State(np.float32([4])), _State(np.zeros(1)))
  assert moved.value.tolist() == [2]


def test_pairs_move_with_both_clients():
  old = [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
  moved, _ = _move(carrying.PAIRS, old, np.zeros((4, 4), int))
  assert moved == [[1, 0, 3, 0], [0, 0, 0, 0], [7, 0, 9, 0], [0, 0, 0, 0]]


@pytest.fixture
def rows(tmp_path):
  """Rows of b, c, d (c has none), and of a, which had left."""
  np.save(client_state_store.segment_path(tmp_path, 2), np.uint8([[1], [3]]))
  index = client_state_store.StoreIndex(
    np.array([2, 0, 2], np.int32), np.array([0, 0, 1], np.int32)
  )
  return moved_states.StoredRows(tmp_path, index, _GONE)


def test_stored_rows(rows):
  assert rows.has_state().tolist() == [True, False, True, True]
  assert [rows.row(known).tolist() for known in (0, 2, 3)] == [[1], [3], [9]]


def test_rows_of_a_training_that_goes_on_may_be_gone(tmp_path, rows):
  client_state_store.segment_path(tmp_path, 2).unlink()
  with pytest.raises(errors.CheckpointError, match='run the same command agai'):
    rows.row(0)


@pytest.mark.parametrize(
  ('keep', 'left'), [(3, {'b': 1, 'a': 3}), (2, {'b': 1})]
)
def test_departed_clients_are_kept_for_some_runs(tmp_path, rows, keep, left):
  moves = moved_states.Moves(np.array([1, 2, -1], np.int32), 3)
  carrier = moved_states.Carrier(
    carrying.Carry({'value': carrying.CLIENTS}),
    moves,
    _GONE,
    rows.has_state(),
    False,
  )
  carrier.move(
    _State(np.array([[1.0], [2.0], [3.0]])), _State(np.zeros((3, 1)))
  )
  for _ in range(2):  # A start that was interrupted is repeated.
    moved_states.write_departed(
      tmp_path, ('b', 'c', 'd', 'a'), _GONE, moves, rows, carrier, keep
    )
  found = moved_states.read_departed(tmp_path)
  assert dict(zip(found.client_ids, found.num_runs, strict=True)) == left
  assert found.has_state.all()
  assert found.client_states.ravel().tolist() == [1, 9][: len(left)]
  assert found.server_rows[0].ravel().tolist() == [1, 7][: len(left)]
  assert [path.name for path in (tmp_path / 'checkpoints').iterdir()] == [
    'departed'
  ]


def test_departed_clients_that_are_half_written_are_removed(
  tmp_path, rows, monkeypatch
):
  monkeypatch.setattr(durable, 'publish', lambda *_: None)
  moves = moved_states.Moves(np.array([-1], np.int32), 3)
  carrier = moved_states.Carrier(
    carrying.Carry({}), moves, _GONE, rows.has_state(), False
  )
  moved_states.write_departed(
    tmp_path, ('b', 'c', 'd', 'a'), _GONE, moves, rows, carrier, 3
  )
  folder = tmp_path / checkpoint.FOLDER
  assert [*folder.iterdir()]
  checkpoint.CheckpointManager(folder, {}).remove_unfinished()
  assert not [*folder.iterdir()]


def test_nobody_left(tmp_path):
  assert moved_states.read_departed(tmp_path).client_ids == ()
