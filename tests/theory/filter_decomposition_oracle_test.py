"""Algorithms 1 and 2 of Chen and Qiu (2025), arXiv:2503.08652, in NumPy.

A convolution in factors, ReLU and a dense layer, differentiated by hand: of a kernel's
gradient G the coefficients have atoms^T G and the atoms G coefficients^T. Clients
train all of them at once, by SGD with momentum which starts anew in every round.
"""

import numpy as np
import pytest

from tests.testing import cohorts, factored, index_hash, toys
from tff_algos.algorithms import registry
from tff_algos.core import seeds

_RATE, _MOMENTUM, _EPOCHS, _BATCH, _COHORT = 0.05, 0.9, 2, 4, 3
_POPULATION = factored.SOURCE.population
_NAMES = ('conv/atoms', 'conv/coefficients', 'dense/kernel')


def _patches(x):
  """Of 3x3 pixels, 2 apart, `[n, 4, 9]`; SAME pads one pixel at the end."""
  padded = np.pad(x[..., 0], [(0, 0), (0, 1), (0, 1)])
  corners = [(i, j) for i in (0, 2) for j in (0, 2)]
  windows = [padded[:, i : i + 3, j : j + 3] for i, j in corners]
  return np.stack(windows, axis=1).reshape(len(x), 4, 9)


def _gradients(weights, x, labels):
  """Of the mean cross-entropy, for atoms `[9, 2]`, coefficients and head."""
  atoms, coefficients, head = weights
  patches = _patches(x)
  before = patches @ (atoms @ coefficients)
  hidden = np.maximum(before, 0).reshape(len(x), 8)
  exponentials = np.exp(hidden @ head)
  slopes = exponentials / exponentials.sum(axis=1, keepdims=True)
  slopes[np.arange(len(x)), labels] -= 1
  slopes /= len(x)
  back = (slopes @ head.T).reshape(before.shape) * (before > 0)
  kernel = np.einsum('npi,npo->io', patches, back)
  return kernel @ coefficients.T, atoms.T @ kernel, hidden.T @ slopes


def _train(weights, k, round_num, phase):
  """Returns a client's weights after its epochs."""
  examples = factored.SOURCE.examples(k)
  client_id = _POPULATION.client_ids[k]
  seed = seeds.derive_seed(0, phase, round_num, client_id)
  velocities = [np.zeros_like(leaf) for leaf in weights]
  for rows in index_hash.batches(seed, _EPOCHS, len(examples.y), _BATCH):
    x = examples.x[rows].astype(np.float64)
    gradients = _gradients(weights, x, examples.y[rows])
    velocities = [
      _MOMENTUM * velocity + gradient
      for velocity, gradient in zip(velocities, gradients, strict=True)
    ]
    weights = [
      leaf - _RATE * velocity
      for leaf, velocity in zip(weights, velocities, strict=True)
    ]
  return weights


def _round(weights, round_num, slow_period):
  """Returns the means of atoms, coefficients and head, each apart."""
  sizes = np.array(
    [len(factored.SOURCE.examples(k).y) for k in range(_POPULATION.num_clients)]
  )
  cohort = cohorts.drawn(0, round_num, np.flatnonzero(sizes), _COHORT)
  is_full = (round_num - 1) % slow_period == 0
  phase = 'train' if is_full else 'fast'
  trained = [_train(weights, k, round_num, phase) for k in cohort]
  atoms, coefficients, head = (
    np.average(leaves, axis=0, weights=sizes[cohort])
    for leaves in zip(*trained, strict=True)
  )
  return [atoms, coefficients if is_full else weights[1], head]


@pytest.mark.parametrize('slow_period', [1, 2])
def test_rounds_agree_with_numpy(slow_period):
  """Three rounds, of which the second is fast in Algorithm 2."""
  host = factored.host(learning_rate=_RATE, cohort_size=_COHORT)
  host['local_training'] |= {'num_local_epochs': _EPOCHS, 'batch_size': _BATCH}
  host['local_training']['optimizer']['momentum'] = _MOMENTUM
  section = {
    **{'name': 'filter_decomposition', 'host': host},
    'schedule': {'slow_period': slow_period},
  }
  algorithm = registry.build_algorithm(
    registry.parse_config(section), factored.model()
  )
  start, _ = toys.initial_states(algorithm, _POPULATION)
  weights = [
    np.asarray(start.model_weights[name], np.float64).reshape(shape)
    for name, shape in zip(_NAMES, ((9, 2), (2, 2), (8, 3)), strict=True)
  ]
  first = weights
  for round_num in (1, 2, 3):
    weights = _round(weights, round_num, slow_period)
  with toys.graph_runtime(algorithm, 5) as runtime:
    state, _, _ = toys.run_rounds(
      algorithm, factored.SOURCE, 3, runtime=runtime
    )
  for name, expected, old in zip(_NAMES, weights, first, strict=True):
    found = np.asarray(state.model_weights[name]).reshape(expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)
    # The oracle has something to say: weights have gone far.
    assert np.abs(expected - old).max() > 0.05
