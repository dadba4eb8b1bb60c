"""FedSoft against an independent implementation, step by step.

`tests.testing.fed_soft_oracle` is written from the paper in NumPy float64. The
library computes in float32; the largest gap seen between two models, whose
entries are about 1, is 2e-7 with SGD and 7e-6 with Adam. `_TOLERANCE` is 5e-5.
No example may lie so close to the border of two clusters that rounding could
flip it; `_MARGIN` makes sure of that, and `_SEED` was chosen so that it holds.
"""

import dataclasses
import itertools

import numpy as np
import pytest

from tests.testing import fed_soft_oracle, oracle_rounds, toys
from tff_algos.algorithms.fed_soft import fed_soft
from tff_algos.numerics import optimizers, statistics
from tff_algos.stages.client import local_training

_TOLERANCE = {'rtol': 5e-5, 'atol': 5e-5}
_MARGIN = 4e-4
_NUM_ROUNDS = 4
_SEED = 39
_SOURCE = toys.linear_clients(
  oracle_rounds.THETAS,
  np.random.default_rng(0).dirichlet(np.ones(3), len(oracle_rounds.SIZES)),
  oracle_rounds.SIZES,
)


def _expected(algorithm, config):
  server_state, states = toys.initial_states(
    algorithm, _SOURCE.population, _SEED
  )
  return fed_soft_oracle.run(
    oracle_rounds.clients(_SOURCE),
    _SOURCE.population.client_ids,
    server_state.cluster_models['kernel'][..., 0],
    [state.personalized_weights['kernel'][:, 0] for state in states],
    config,
    _NUM_ROUNDS,
    _SEED,
  )


def _compare(algorithm, expected):
  """Runs round by round and compares everything that a round leaves behind."""
  num_updates = np.zeros(len(oracle_rounds.SIZES))
  for oracle, server_state, states, outputs in oracle_rounds.rounds(
    algorithm, _SOURCE, expected, _SEED
  ):
    np.testing.assert_allclose(
      server_state.importance_weights, oracle.importance, rtol=1e-6
    )
    num_updates += oracle.multiplicity.sum(axis=1) > 0
    np.testing.assert_array_equal(
      [state.num_updates for state in states], num_updates
    )
    np.testing.assert_allclose(
      server_state.cluster_models['kernel'][..., 0],
      oracle.centers,
      **_TOLERANCE,
    )
    local_models = [
      state.personalized_weights['kernel'][:, 0] for state in states
    ]
    np.testing.assert_allclose(local_models, oracle.local_models, **_TOLERANCE)
    loss = statistics.value_of(outputs[-1].client_metrics['loss'])
    np.testing.assert_allclose(loss, oracle.loss, **_TOLERANCE)


# Options that the phases depend on; between them, every start, optimizer,
# loss scale, proximal weight, number of clusters and short or whole batches.
_SOLVERS = {
  'own, sgd': fed_soft.FedSoftConfig(
    start='own',
    proximal_weight=0.4,
    loss_scale=0.5,
    local_training=local_training.LocalTrainingConfig(
      3, 4, optimizers.OptimizerConfig('sgd', 0.03)
    ),
  ),
  'mixed_center, adam': fed_soft.FedSoftConfig(
    num_clusters=3,
    start='mixed_center',
    proximal_weight=1.0,
    local_training=local_training.LocalTrainingConfig(
      2, 5, optimizers.OptimizerConfig('adam', 0.05)
    ),
  ),
  'best_center, momentum': fed_soft.FedSoftConfig(
    start='best_center',
    proximal_weight=1.0,
    importance_smoother=0.3,
    loss_scale=0.5,
    local_training=local_training.LocalTrainingConfig(
      1, 3, optimizers.OptimizerConfig('sgd', 0.03, momentum=0.6)
    ),
  ),
  'own, adam, no proximal term': fed_soft.FedSoftConfig(
    num_clusters=3,
    proximal_weight=0.0,
    local_training=local_training.LocalTrainingConfig(
      2, 32, optimizers.OptimizerConfig('adam', 0.1)
    ),
  ),
}
# What the plan alone depends on: the selection, K and tau.
_PLANS = {
  'without replacement': ('without_replacement', 3, 2),
  'without replacement, tau=3': ('without_replacement', 2, 3),
  'K=N': ('without_replacement', oracle_rounds.NUM_AVAILABLE, 2),
  'with replacement': ('with_replacement', 4, 1),
  'with replacement, tau=3': ('with_replacement', 2, 3),
  'weighted full': ('weighted_full', 2, 1),
  'weighted full, tau=3': ('weighted_full', 2, 3),
}


# Every plan once, with a solver; every solver once among the last four.
_CASES = tuple(zip(_PLANS, itertools.cycle(_SOLVERS), strict=False))


@pytest.mark.parametrize(('plan', 'solver'), _CASES)
def test_rounds_follow_the_oracle(plan, solver):
  selection, cohort_size, interval = _PLANS[plan]
  config = dataclasses.replace(
    _SOLVERS[solver],
    selection=selection,
    cohort_size_per_cluster=cohort_size,
    estimation_interval=interval,
  )
  algorithm = fed_soft.build_fed_soft(toys.linear(3), config)
  expected = _expected(algorithm, config)
  assert min(one.margin for one in expected) > _MARGIN
  _compare(algorithm, expected)
