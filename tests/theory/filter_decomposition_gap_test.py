"""How far a trained round's product of means is from its mean of kernels.

The gap is the covariance of the clients' factors, Chen and Qiu (2025),
arXiv:2503.08652, Eq. 7: of second order in how far they go, so a learning rate of
half the size leaves a quarter of it.
"""

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import factored, tiny_convolution, toys
from tff_algos.algorithms import registry
from tff_algos.numerics import factored_weights


def _gap(activation, learning_rate, num_steps):
  """Returns the distance of the two kernels after a round of full batches."""
  # As many atoms as pixels: any mean of kernels can be factored anew.
  model = tiny_convolution.build(2, 4, activation)
  host = factored.host(learning_rate=learning_rate)
  host['local_training'] |= {'num_local_epochs': num_steps, 'batch_size': 64}
  kernels = []
  for averaging in ('factors', 'kernels'):
    section = {'name': 'filter_decomposition', 'host': host}
    algorithm = registry.build_algorithm(
      registry.parse_config(section | {'averaging': averaging}), model
    )
    state, _, _ = toys.run_rounds(algorithm, factored.SOURCE, 1)
    plain = factored_weights.build_kernels(state.model_weights)
    kernels.append(np.asarray(plain['conv/kernel'], np.float64))
  return np.linalg.norm(kernels[0] - kernels[1])


@pytest.mark.parametrize('activation', [tf.nn.relu, tf.tanh])
def test_after_one_step_half_the_rate_leaves_a_quarter(activation):
  """Exactly: a step goes straight, whatever the loss."""
  gaps = [_gap(activation, rate, 1) for rate in (0.4, 0.2, 0.1)]
  np.testing.assert_allclose(np.divide(gaps[:-1], gaps[1:]), 4, rtol=0.02)
  assert gaps[-1] > 1e-5


@pytest.mark.parametrize('activation', [tf.nn.relu, tf.tanh])
def test_after_four_steps_it_does_as_the_rate_goes_to_zero(activation):
  """A path that bends has gaps of higher orders, too, and at 0.8 these rule."""
  gaps = [_gap(activation, rate, 4) for rate in (0.8, 0.4, 0.0125, 0.00625)]
  np.testing.assert_allclose(gaps[2] / gaps[3], 4, rtol=0.2)
  assert gaps[0] / gaps[1] < 3
  assert gaps[-1] > 3e-6
