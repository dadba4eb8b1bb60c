"""The driver of `docs/tff.md` gives what our loop gives."""

import numpy as np
import tensorflow as tf

from docs.examples import federated_rounds
from tests.testing import running_sum, toys
from tff_algos.algorithms.fed_soft import fed_soft
from tff_algos.runtimes import debug_runtime
from tff_algos.stages.client import local_training
from tff_algos.training import simulation


def test_a_client_without_examples_has_a_row_of_padding(native_context):
  def work(message, client_input, client_state, data, seed):
    output = running_sum.client_work(
      message, client_input, client_state, data, seed
    )
    num_rows = tf.cast(tf.shape(data.x)[0], tf.float32)
    return output._replace(result={**output.result, 'value': num_rows})

  algorithm = running_sum.algorithm(client_work=work)
  source = running_sum.source([1.0], [], [2.0])
  server_state, _ = federated_rounds.run(algorithm, source, num_rounds=1)
  assert server_state.total == 3
  assert server_state.mean == 1.5


def test_rounds_of_fed_soft_equal_our_loop(native_context):
  algorithm = fed_soft.build_fed_soft(
    toys.linear(3),
    fed_soft.FedSoftConfig(
      cohort_size_per_cluster=2,
      local_training=local_training.LocalTrainingConfig(batch_size=4),
    ),
  )
  source = toys.linear_clients(np.eye(3)[:2], np.eye(2)[[0, 1, 0]], [5, 3, 4])
  states = federated_rounds.run(algorithm, source, num_rounds=2, seed=3)
  with debug_runtime.DebugRuntime(algorithm, 3) as runtime:
    ours = simulation.Simulation(algorithm, source, runtime, seed=3)
    before = ours.client_states
    for _ in range(2):
      ours.run_round()
  # The personalized models of sampled clients have changed.
  assert any(
    not np.array_equal(*pair)
    for pair in zip(
      tf.nest.flatten(before), tf.nest.flatten(ours.client_states), strict=True
    )
  )
  tf.nest.map_structure(
    lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-5),
    states,
    (ours.server_state, ours.client_states),
  )
