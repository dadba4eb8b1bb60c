"""What FedEM becomes in special cases, and what it finds.

Marfoq et al. (2021). Equal models stay equal, and one model is FedAvg; every
round makes the data likelier; mixtures are found.
"""

import numpy as np
import pytest

from tests.testing import points, toys
from tff_algos.algorithms import fed_avg, fed_em
from tff_algos.numerics import optimizers, statistics
from tff_algos.stages.client import local_training


def _training(
  learning_rate, num_epochs=2, batch_size=4, momentum=0.0, **options
):
  return local_training.LocalTrainingConfig(
    num_epochs,
    batch_size,
    optimizers.OptimizerConfig('sgd', learning_rate, momentum),
    **options,
  )


_SIZES = (7, 0, 1, 12, 4)


@pytest.mark.parametrize(
  ('num_clusters', 'options'),
  [(1, {}), (3, {}), (3, {'momentum': 0.5, 'keeps_optimizer_state': True})],
)
def test_equal_models_are_fed_avg(num_clusters, options):
  """Up to rounding; S equal models take steps of 1 / S and stay equal."""
  source = toys.linear_clients(
    np.array([[1.0, 2, -1]]), np.ones([len(_SIZES), 1]), _SIZES
  )
  one = fed_em.build_fed_em(
    toys.linear(3),
    fed_em.FedEmConfig(
      num_clusters=num_clusters,
      cohort_size=3,
      local_training=_training(0.06, **options),
    ),
  )
  other = fed_avg.build_fed_avg(
    toys.linear(3),
    fed_avg.FedAvgConfig(
      cohort_size=3,
      local_training=_training(0.06 / num_clusters, **options),
    ),
  )
  first, others = toys.initial_states(other, source.population)
  _, states = toys.initial_states(one, source.population)
  equal = {'kernel': np.stack([first.model_weights['kernel']] * num_clusters)}
  found, states, outputs = toys.run_rounds(
    one, source, 2, start=(fed_em.ServerState(equal), states)
  )
  expected, _, expected_outputs = toys.run_rounds(
    other, source, 2, start=(first, others)
  )
  for kernel in found.cluster_models['kernel']:
    np.testing.assert_array_equal(kernel, found.cluster_models['kernel'][0])
    np.testing.assert_allclose(
      kernel, expected.model_weights['kernel'], rtol=1e-5, atol=1e-6
    )
  for state in states:
    np.testing.assert_allclose(state.membership, 1 / num_clusters, rtol=1e-6)
  for output, expected_output in zip(outputs, expected_outputs, strict=True):
    np.testing.assert_allclose(
      output.client_metrics['loss'],
      expected_output.client_metrics['loss'],
      rtol=1e-5,
    )


_THETAS = np.array([[2.0, 1], [-2, 0]])
_SHARES = np.array([0.9, 0.7, 0.5, 0.2, 0.1])
_NUM_POINTS = 60


def _planted():
  """Clients with points around both thetas, in unequal shares."""
  generator = np.random.default_rng(7)
  counts = np.rint(_SHARES * _NUM_POINTS).astype(int)
  clients = []
  for count in counts:
    source = np.repeat([0, 1], [count, _NUM_POINTS - count])
    clients.append(_THETAS[source] + generator.normal(size=(_NUM_POINTS, 2)))
  return points.clients(clients), clients


def _expectation_maximization(clients):
  """Exact steps on all points, from what was planted, to the fixed point."""
  centers, memberships = _THETAS, np.full((len(clients), 2), 0.5)
  for _ in range(100):
    squares = ((clients[:, :, np.newaxis] - centers) ** 2).sum(axis=-1)
    joint = memberships[:, np.newaxis] * np.exp(-squares / 2)
    shares = joint / joint.sum(axis=-1, keepdims=True)
    memberships = shares.mean(axis=1)
    totals = shares.sum(axis=(0, 1))[:, np.newaxis]
    centers = np.einsum('kns,knd->sd', shares, clients) / totals
  return centers, memberships


@pytest.mark.verify
def test_every_round_makes_the_data_likelier_until_the_mixtures_are_found():
  """All clients, and one full-batch step of rate 1: the curvature of each
  model's problem is the mean of its responsibilities, so at most 1, and no step
  goes too far. An EM step that is not wrong never lowers the likelihood.
  """
  source, clients = _planted()
  algorithm = fed_em.build_fed_em(
    points.model(2),
    fed_em.FedEmConfig(
      cohort_size=len(clients),
      loss_scale=0.5,
      local_training=_training(1.0, 1, _NUM_POINTS),
    ),
  )
  num_rounds = 40
  with toys.graph_runtime(algorithm, len(clients)) as runtime:
    server_state, states, outputs = toys.run_rounds(
      algorithm, source, num_rounds, runtime=runtime
    )
  losses = [
    statistics.value_of(output.client_metrics['mixture_loss'])
    for output in outputs
  ]
  # Up to the rounding of float32 numbers near 2.
  assert np.diff(losses).max() < 1e-6
  assert losses[0] - losses[-1] > 0.5
  centers, memberships = _expectation_maximization(np.array(clients))
  found = server_state.cluster_models['point']
  order = np.argsort(-found[:, 0])
  np.testing.assert_allclose(found[order], centers, atol=1e-3)
  np.testing.assert_allclose(
    np.stack([state.membership for state in states])[:, order],
    memberships,
    atol=1e-3,
  )


def test_far_models_train_each_on_the_examples_that_fit_it_best():
  """Then a client's membership is the share of its examples that fit."""
  clients = [np.array([[0, 1], [0, 3], [19, 0]]), np.array([[21.0, 1]])]
  algorithm = fed_em.build_fed_em(
    points.model(2),
    fed_em.FedEmConfig(
      cohort_size=2, loss_scale=0.5, local_training=_training(1.0, 1, 8)
    ),
  )
  start = fed_em.ServerState({'point': np.float32([[0, 0], [20, 0]])})
  source = points.clients(clients)
  _, states = toys.initial_states(algorithm, source.population)
  server_state, states, _ = toys.run_rounds(
    algorithm, source, 1, start=(start, states)
  )
  np.testing.assert_allclose(states[0].membership, [2 / 3, 1 / 3], rtol=1e-5)
  np.testing.assert_allclose(states[1].membership, [0, 1], atol=1e-6)
  # Of 4 points, a sum of (0, 4) pulls the one, and (-1, 0) + (1, 1) the other.
  np.testing.assert_allclose(
    server_state.cluster_models['point'], [[0, 1], [20, 0.25]], atol=1e-5
  )
