"""PPFL whose server steps towards the mean (Reddi et al., arXiv:2003.00295)."""

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import toys
from tff_algos.algorithms.ppfl import ppfl
from tff_algos.numerics import optimizers
from tff_algos.stages.client import local_training

_SOURCE = toys.image_clients(4)


def _run(canonical, server_optimizer, num_rounds=1):
  algorithm = ppfl.build_ppfl(
    toys.mlp(),
    ppfl.PpflConfig(
      canonical=(canonical,),
      server_optimizer=server_optimizer,
      local_training=local_training.LocalTrainingConfig(1, 4),
    ),
  )
  start = toys.initial_states(algorithm, _SOURCE.population)
  state, states, _ = toys.run_rounds(
    algorithm, _SOURCE, num_rounds, start=start
  )
  return start[0], state, states


@pytest.mark.parametrize('canonical', ['all', 'last_layer'])
def test_server_goes_half_way_or_takes_a_step_of_adam(canonical):
  """With shared and canonical weights alike; memberships move as without it."""
  start, whole, states = _run(canonical, optimizers.OptimizerConfig('sgd', 1.0))
  assert whole.optimizer_slots == ()
  _, half, half_states = _run(canonical, optimizers.OptimizerConfig('sgd', 0.5))
  _, adam, adam_states = _run(
    canonical, optimizers.OptimizerConfig('adam', 0.01, epsilon=1e-12)
  )
  assert float(adam.optimizer_slots.num_steps) == 1
  for leaf, mean, middle, stepped in zip(
    *(tf.nest.flatten(one.model_weights) for one in (start, whole, half, adam)),
    strict=True,
  ):
    np.testing.assert_allclose(middle, (leaf + mean) / 2, atol=1e-6)
    moved = np.abs(mean - leaf) > 1e-6
    assert moved.any()
    np.testing.assert_allclose(
      (stepped - leaf)[moved], 0.01 * np.sign(mean - leaf)[moved], rtol=1e-3
    )
  for one in (half_states, adam_states):
    tf.nest.map_structure(np.testing.assert_array_equal, one, states)
