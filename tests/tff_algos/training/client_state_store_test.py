import contextlib
import weakref
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.testing import full_disk
from tff_algos.core import errors
from tff_algos.training import client_state_store as store_lib

_NUM_CLIENTS = 5


class State(NamedTuple):
  weights: dict[str, np.ndarray]
  num_updates: np.ndarray  # int32 []


def _state(value: float, num_updates: int) -> State:
  kernel = np.full([2, 3], value, np.float32)
  return State(
    {'kernel': kernel, 'bias': kernel[0, :1] + 1}, np.int32(num_updates)
  )


def _stack(states: list[State]) -> State:
  return tf.nest.map_structure(lambda *leaves: np.stack(leaves), *states)


@pytest.fixture(params=[store_lib.MEMORY, store_lib.DISK])
def store(request, tmp_path):
  return store_lib.ClientStateStore(
    lambda index, seed: _state(-index, 0), _NUM_CLIENTS, tmp_path, request.param
  )


def _stage(store, indices, value, num_updates=1):
  states = [_state(value + index, num_updates) for index in indices]
  store.stage(np.array(indices), _stack(states))


def _values(store, indices=range(_NUM_CLIENTS)) -> list[float]:
  states = store.load(np.array(indices))
  bias, kernel = states.weights['bias'], states.weights['kernel']
  np.testing.assert_array_equal(kernel[:, 1, 2] + 1, bias[:, 0])
  return kernel[:, 0, 0].tolist()


def _save(store, round_num):
  index = store.write_segment(round_num)
  store.mark_saved(index)
  return index


def test_initial_states_are_made_when_asked_for(tmp_path):
  asked = []

  def initial_state(index, seed):
    asked.append(index)
    return _state(-index, 0)

  store = store_lib.ClientStateStore(initial_state, 10**6, tmp_path)
  asked.clear()  # The state of client 0 says what states look like.
  states = store.load(np.array([7, 999_999]))
  assert asked == [7, 999_999]
  np.testing.assert_array_equal(states.num_updates, [0, 0])
  assert states.weights['kernel'].shape == (2, 2, 3)
  assert states.weights['kernel'].dtype == np.float32
  assert states.num_updates.dtype == np.int32


def test_who_took_part_has_a_state(store):
  assert store.has_state().tolist() == [False] * _NUM_CLIENTS
  _stage(store, [1], 10)
  store.commit()
  index = _save(store, 1)
  _stage(store, [3], 20)
  assert store.has_state().tolist() == [False, True, False, True, False]
  store.discard()
  store.restore(index)
  assert store.has_state().tolist() == [False, True, False, False, False]


def test_load_keeps_the_order_it_was_asked_in(store):
  _stage(store, [4, 0], 10)
  assert _values(store, [4, 2, 0]) == [14, -2, 10]


def test_rows_of_an_earlier_run_are_taken_over(store):
  row = store.encode(_state(7, 2))
  store.import_rows(4, [3, 1], iter([row[np.newaxis], row[np.newaxis]]))
  assert _values(store) == [0, 7, -2, 7, -4]
  assert store.load(np.array([3])).num_updates.tolist() == [2]


def test_a_folder_in_the_place_of_a_segment_is_named(store):
  row = store.encode(_state(7, 2))
  store.segment_path(4).mkdir(parents=True)
  with pytest.raises(errors.DataError, match='round_000004.npy is a folder'):
    store.import_rows(4, [3], iter([row[np.newaxis]]))
  _stage(store, [1], 10)
  store.commit()
  with pytest.raises(errors.DataError, match='round_000004.npy is a folder'):
    store.write_segment(4)


def test_rows_of_an_earlier_run_that_do_not_fit_on_the_disk(store):
  """The disk is full after the opening."""
  with contextlib.ExitStack() as stack:

    def blocks():
      stack.enter_context(full_disk.after(100))
      yield store.encode(_state(7, 2))[np.newaxis]

    with pytest.raises(OSError, match='File too large'):
      store.import_rows(4, [3], blocks())
  assert not store.has_state().any()


def test_segment_holds_only_what_changed(store, tmp_path):
  _stage(store, [1, 3], 10)
  store.commit()
  first = _save(store, 1)
  assert np.load(store.segment_path(1)).shape == (2, 4 * (6 + 1 + 1))
  np.testing.assert_array_equal(first.segment, [0, 1, 0, 1, 0])
  np.testing.assert_array_equal(first.position[[1, 3]], [0, 1])
  _stage(store, [3], 20)
  store.commit()
  _stage(store, [0], 30)
  store.commit()
  second = _save(store, 3)
  assert len(np.load(store.segment_path(3))) == 2
  np.testing.assert_array_equal(second.segment, [3, 1, 0, 3, 0])
  assert _values(store) == [30, 11, -2, 23, -4]
  _save(store, 4)
  assert not store.segment_path(4).exists()
  assert len(list(tmp_path.iterdir())) == 2


def test_states_that_are_staged_but_not_committed_are_not_written(store):
  _stage(store, [2], 10)
  index = store.write_segment(1)
  assert not store.segment_path(1).exists()
  assert not index.segment.any()


def test_write_without_mark_changes_nothing(store):
  _stage(store, [2], 10)
  store.commit()
  store.write_segment(1)
  _stage(store, [1], 20)
  store.commit()
  index = _save(store, 2)
  np.testing.assert_array_equal(index.segment, [0, 2, 2, 0, 0])


def test_initial_states_are_those_of_the_seed(tmp_path):
  store = store_lib.ClientStateStore(
    lambda index, seed: _state(100 * seed + index, 0), 3, tmp_path, seed=2
  )
  assert _values(store, range(3)) == [200, 201, 202]
  store.seed = 5
  _stage(store, [1], 10)
  assert _values(store, range(3)) == [500, 11, 502]


def test_restore_goes_back_to_a_saved_index(store, tmp_path):
  _stage(store, [1, 3], 10)
  store.commit()
  index = _save(store, 1)
  _stage(store, [1, 2], 20)
  store.commit()
  _stage(store, [4], 30)
  store.restore(index)
  assert _values(store) == [0, 11, -2, 13, -4]
  for kind in (store_lib.MEMORY, store_lib.DISK):
    fresh = store_lib.ClientStateStore(
      lambda i, seed: _state(-i, 0), _NUM_CLIENTS, tmp_path, kind
    )
    fresh.restore(index)
    assert _values(fresh) == [0, 11, -2, 13, -4]


@pytest.mark.parametrize('indices', [[1], [1, 2], [2, 1], [1, 0]])
def test_loaded_states_cannot_be_changed(store, indices):
  _stage(store, [1, 2], 10)
  store.commit()
  for _ in range(2):
    kernel = store.load(np.array(indices)).weights['kernel']
    with pytest.raises(ValueError, match='read-only'):
      kernel[:] = 99
    _save(store, 1)


def test_same_cohort_gets_the_staged_tensors_back_uncopied(store):
  states = tf.nest.map_structure(
    tf.constant, _stack([_state(1, 1), _state(2, 1)])
  )
  store.stage(np.array([3, 1]), states)
  store.commit()
  loaded = store.load(np.array([3, 1]))
  assert loaded.weights['kernel'] is states.weights['kernel']
  assert _values(store, [1, 3]) == [2, 1]
  assert _values(store, [3]) == [1]


def test_states_of_old_cohorts_are_freed(store):
  """One live row must not keep the memory of a large cohort."""
  references = []
  for round_num in range(1, 6):
    states = _stack([_state(round_num, 1) for _ in range(_NUM_CLIENTS)])
    references.append(weakref.ref(states.weights['kernel']))
    store.stage(np.arange(_NUM_CLIENTS), states)
    store.commit()
  del states
  assert [one() is None for one in references] == [True] * 4 + [False]
  for first in range(1, _NUM_CLIENTS):
    _stage(store, list(range(first, _NUM_CLIENTS)), 10 * first)
    store.commit()
  assert references[-1]() is None
  assert _values(store) == [5, 11, 22, 33, 44]


def test_empty_states_write_no_segment(tmp_path):
  store = store_lib.ClientStateStore(lambda index, seed: (), 3, tmp_path)
  assert store.load(np.array([0, 2])) == ()
  store.stage(np.array([0]), ())
  store.commit()
  index = _save(store, 1)
  store.restore(index)
  assert store.load(np.array([0])) == ()
  assert not list(tmp_path.iterdir())


def test_disk_store_keeps_nothing_in_memory_after_a_save(tmp_path):
  """Whoever removes the segment finds that the rows came from there."""
  store = store_lib.ClientStateStore(
    lambda index, seed: _state(0, 0), 2, tmp_path, store_lib.DISK
  )
  _stage(store, [0], 10)
  store.commit()
  _save(store, 1)
  store.segment_path(1).unlink()
  with pytest.raises(FileNotFoundError):
    store.load(np.array([0]))


_EVENTS = st.one_of(
  st.tuples(
    st.just('stage'),
    st.lists(
      st.integers(0, _NUM_CLIENTS - 1), min_size=1, max_size=3, unique=True
    ),
  ),
  st.tuples(st.sampled_from(['commit', 'discard', 'save', 'restore'])),
)


@settings(max_examples=60)
@given(events=st.lists(_EVENTS, max_size=25))
def test_both_kinds_behave_like_dictionaries(events, tmp_path_factory):
  """Against a model: dictionaries of what is staged, committed and saved."""
  folder = tmp_path_factory.mktemp('stores')
  stores = [
    store_lib.ClientStateStore(
      lambda i, seed: _state(-i, 0), _NUM_CLIENTS, folder / kind, kind
    )
    for kind in (store_lib.MEMORY, store_lib.DISK)
  ]
  staged, committed, saved = {}, {}, {}
  indices = [None, None]
  for step, (event, *argument) in enumerate(events, start=1):
    if event == 'stage':
      staged |= {index: 10 * step + index for index in argument[0]}
      for store in stores:
        _stage(store, argument[0], 10 * step)
    elif event == 'commit':
      committed, staged = committed | staged, {}
      for store in stores:
        store.commit()
    elif event == 'discard':
      staged = {}
      for store in stores:
        store.discard()
    elif event == 'save':
      saved = dict(committed)
      indices = [_save(store, step) for store in stores]
    elif indices[0] is not None:
      committed, staged = dict(saved), {}
      for store, index in zip(stores, indices, strict=True):
        store.restore(index)
    expected = {i: -i for i in range(_NUM_CLIENTS)} | committed | staged
    for store in stores:
      assert _values(store) == [expected[i] for i in range(_NUM_CLIENTS)]
