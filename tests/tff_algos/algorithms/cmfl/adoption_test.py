from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tff_algos.algorithms.cmfl import adoption
from tff_algos.rounds import aggregation


class _Outcome(NamedTuple):
  is_accepted: bool
  num_views: int


class _State(NamedTuple):
  agreed: adoption.Agreed
  proposed: adoption.Agreed
  num_selections: tf.Tensor
  num_in_vain: tf.Tensor


def _agreed(value, member, selected):
  return adoption.Agreed(
    {'kernel': tf.fill([2], value)},
    tf.range(3) == member,
    tf.range(3) == selected,
  )


def _adopt(is_accepted):
  """What comes of a state in which client 0 was averaged once."""
  phase = adoption.build_phase(_Outcome._fields)
  told = adoption.tell_all(_Outcome(is_accepted, 3), 4)
  outcome = {name: tf.constant(values[0]) for name, values in told.items()}
  output = phase.client_work((), outcome, (), None, None)
  mean = aggregation.Mean(output.result['outcome'], tf.constant(4.0))
  state = _State(
    _agreed(1.0, 0, 1),
    _agreed(2.0, 2, 0),
    tf.constant([1, 0, 0]),
    tf.constant(2),
  )
  return phase.server_update(state, {'outcome': mean})


def test_every_member_is_told_the_same():
  told = adoption.tell_all(_Outcome(True, 3), 4)
  np.testing.assert_array_equal(told['is_accepted'], [1, 1, 1, 1])
  np.testing.assert_array_equal(told['num_views'], [3, 3, 3, 3])
  assert told['num_views'].dtype == np.float32


def test_agreement_puts_the_proposal_in_force():
  state, metrics = _adopt(True)
  np.testing.assert_array_equal(state.agreed.model_weights['kernel'], [2, 2])
  np.testing.assert_array_equal(state.agreed.is_member, [False, False, True])
  np.testing.assert_array_equal(state.num_selections, [2, 0, 0])
  assert state.num_in_vain == 0
  assert metrics['num_views'] == 3


def test_a_proposal_is_adopted_once():
  """A second vote, without training between, counts and changes nothing."""
  for is_accepted in (True, False):
    state, _ = _adopt(is_accepted)
    np.testing.assert_array_equal(
      state.proposed.model_weights['kernel'],
      state.agreed.model_weights['kernel'],
    )
    np.testing.assert_array_equal(
      state.proposed.is_member, state.agreed.is_member
    )
    assert not state.proposed.is_selected.numpy().any()


def test_without_agreement_all_stays():
  state, metrics = _adopt(False)
  np.testing.assert_array_equal(state.agreed.model_weights['kernel'], [1, 1])
  np.testing.assert_array_equal(state.agreed.is_member, [True, False, False])
  np.testing.assert_array_equal(state.num_selections, [1, 0, 0])
  assert state.num_in_vain == 3
  assert metrics['is_accepted'] == 0
