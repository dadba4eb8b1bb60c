import numpy as np
import pytest
import tensorflow as tf

from tests.testing import accelerator, running_sum, toys
from tff_algos.runtimes import debug_runtime
from tff_algos.runtimes.pjrt import pjrt_config, pjrt_runtime

_SIZES = [3, 0, 17, 1, 5]


@pytest.mark.parametrize(
  ('block_size', 'positions', 'capacities'),
  [
    (2, [[[2, 4]], [[0, 3]], [[1, 1]]], [32, 4, 1]),
    (4, [[[2, 4, 0, 3]], [[1, 1, 1, 1]]], [32, 1]),
    (50, [[[2, 4, 0, 3, 1, 1, 1, 1]]], [32]),
  ],
)
def test_blocks_are_nearly_equal_and_few_sizes(
  block_size, positions, capacities
):
  groups = pjrt_runtime.deal(np.array(_SIZES), block_size)
  assert [group.positions.tolist() for group in groups] == positions
  assert [group.capacity for group in groups] == capacities
  flat = np.concatenate([group.positions.ravel() for group in groups])
  real = np.concatenate([group.is_real.ravel() for group in groups])
  assert sorted(flat[real]) == [0, 1, 2, 3, 4]


@accelerator.needed
@pytest.mark.parametrize('vectorizes', [True, False])
def test_every_aggregate_state_and_metric_is_that_of_the_debug_runtime(
  vectorizes, tmp_path
):
  """One client is not finite; two rows of the blocks only fill them."""
  algorithm = running_sum.algorithm(vectorizes)
  clients = [[1.0], [2.0, 3.0], [], [float('nan')], [4.0, 5.0, 6.0], [7.0]]
  source = running_sum.source(*clients)
  config = pjrt_config.PjrtConfig(
    clients_per_block=4, cache=str(tmp_path / 'cache')
  )
  with pjrt_runtime.PjrtRuntime(algorithm, len(clients), config) as runtime:
    *states, outputs = toys.run_rounds(algorithm, runtime, source, 2)
  debug = debug_runtime.DebugRuntime(algorithm, len(clients))
  *expected, expected_outputs = toys.run_rounds(algorithm, debug, source, 2)
  tf.nest.map_structure(np.testing.assert_array_equal, states, expected)
  for output, other in zip(outputs, expected_outputs, strict=True):
    assert output.num_invalid == other.num_invalid == 1
    toys.assert_outputs_close(output, other, rtol=1e-6)
  # By hand: the total is 28 after the first round, 28 + 28 + 5 * 28 after two.
  assert states[0].total == 196
