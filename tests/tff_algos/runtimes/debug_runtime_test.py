import numpy as np
import pytest
import tensorflow as tf

from tests.testing import running_sum, toys
from tff_algos.core import errors
from tff_algos.runtimes import debug_runtime

_CLIENTS = ([1.0], [2.0, 3.0], [], [4.0, 5.0, 6.0])


def _run(algorithm, indices=(3, 0, 2)):
  call = running_sum.phase_call(indices, np.arange(len(indices)))
  with debug_runtime.DebugRuntime(algorithm, len(_CLIENTS)) as runtime:
    return running_sum.run_call(
      runtime, algorithm, running_sum.source(*_CLIENTS), call, total=10.0
    )


def test_phase_by_hand():
  output = _run(running_sum.algorithm())
  assert output.server_state.total == 10 + 25 + 11 + 10
  assert output.server_state.mean == (3 * 25 + 1 * 11 + 0 * 10) / 4
  np.testing.assert_array_equal(output.server_state.said, [11, 0, 10, 25])
  states = toys.states_of(output, [3, 0, 2])
  np.testing.assert_array_equal(states.num_turns, [1, 1, 1])
  np.testing.assert_array_equal(states.last[:, 1], [0, 1, 2])
  assert output.client_metrics['x'].total == 16
  assert output.num_invalid == 0


def test_stages_run_eagerly():
  was_eager = []

  def make_message(server_state):
    was_eager.append(tf.executing_eagerly())
    return server_state.total

  _run(running_sum.algorithm(make_message=make_message))
  assert was_eager == [True]


def _fails_for_client_0(message, client_input, client_state, data, seed):
  if client_input == 1.0:
    raise ZeroDivisionError('no luck')
  return running_sum.client_work(
    message, client_input, client_state, data, seed
  )


def _fail(*unused):
  raise KeyError('no luck')


@pytest.mark.parametrize(
  ('stages', 'words'),
  [
    (
      {'make_message': _fail},
      "round 1, phase 'add', stage 'make_message': KeyError: 'no luck'",
    ),
    (
      {'client_work': _fails_for_client_0},
      "round 1, phase 'add', stage 'client_work', client 'c000': "
      'ZeroDivisionError: no luck',
    ),
    (
      {'aggregation': {'absent': running_sum.aggregation.Sum()}},
      "round 1, phase 'add', stage 'aggregation', client 'c003': KeyError: "
      "'absent'",
    ),
    (
      {'server_update': _fail},
      "round 1, phase 'add', stage 'server_update': KeyError: 'no luck'",
    ),
  ],
)
def test_error_names_where_it_happened(stages, words):
  with pytest.raises(errors.RuntimeFailureError) as caught:
    _run(running_sum.algorithm(**stages))
  assert str(caught.value) == words
  assert caught.value.__cause__ is not None


def test_ctrl_c_is_no_error_of_a_stage():
  def interrupt(server_state):
    raise KeyboardInterrupt

  with pytest.raises(KeyboardInterrupt):
    _run(running_sum.algorithm(make_message=interrupt))
