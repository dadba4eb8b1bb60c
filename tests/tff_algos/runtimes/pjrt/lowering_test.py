import numpy as np
import pytest
import tensorflow as tf

from tests.testing import running_sum
from tff_algos.core import errors
from tff_algos.rounds import phase_types
from tff_algos.runtimes.pjrt import lowering


def _lowering(**stages):
  algorithm = running_sum.algorithm(**stages)
  types = phase_types.check_algorithm(algorithm, 3)
  return lowering.PhaseLowering(
    algorithm.phases[running_sum.PHASE], types[running_sum.PHASE], True
  )


def test_types_follow_the_sizes():
  lowered = _lowering().lower(num_rows=9, block_size=4, capacity=2)
  # Message; rows x, y; state; index, input, span, seed; which are real.
  assert [shape for _, shape in lowered.arguments] == [
    *([], [9, 1], [9]),
    *([4], [4, 2], [4], [4], [4], [4], [4, 2], [4]),
  ]
  assert lowered.name == 'add at once, 9 rows, 4 x 2'
  # The turns of each client, and what it said last.
  assert [shape for _, shape in lowered.outputs[-2:]] == [[4], [4, 2]]
  assert lowered.hlo.dtype == np.uint8


def test_what_was_traced_before_changes_nothing():
  """So the cache of compiled programs knows it in any process."""
  first, again = (_lowering().lower(9, 4, 2) for _ in range(2))
  np.testing.assert_array_equal(first.hlo, again.hlo)


def test_an_operation_that_xla_does_not_know_is_named():
  def work(message, client_input, client_state, data, seed):
    output = running_sum.client_work(
      message, client_input, client_state, data, seed
    )
    length = tf.strings.length(tf.strings.as_string(data.x[0, 0]))
    value = output.result['value'] + tf.cast(length, tf.float32)
    return output._replace(result={**output.result, 'value': value})

  with pytest.raises(errors.ConfigError, match=r"'add'.*vectorized.*AsString"):
    _lowering(client_work=work).lower(9, 4, 2)
