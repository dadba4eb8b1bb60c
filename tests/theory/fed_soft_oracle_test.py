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


def _build(options):
  """Returns our algorithm for the options of the oracle."""
  optimizer = optimizers.OptimizerConfig(
    options.optimizer, options.learning_rate, options.momentum
  )
  return fed_soft.build_fed_soft(
    toys.linear(3),
    fed_soft.FedSoftConfig(
      num_clusters=options.num_clusters,
      cohort_size_per_cluster=options.K,
      estimation_interval=options.tau,
      importance_smoother=options.sigma,
      proximal_weight=options.lam,
      selection=options.selection,
      start=options.start,
      loss_scale=options.loss_scale,
      local_training=local_training.LocalTrainingConfig(
        options.epochs, options.batch_size, optimizer
      ),
    ),
  )


def _expected(algorithm, options):
  server_state, states = toys.initial_states(
    algorithm, _SOURCE.population, _SEED
  )
  return fed_soft_oracle.run(
    oracle_rounds.clients(_SOURCE),
    _SOURCE.population.client_ids,
    server_state.cluster_models['kernel'][..., 0],
    [state.personalized_weights['kernel'][:, 0] for state in states],
    options,
    _NUM_ROUNDS,
    _SEED,
  )


def _compare(runtime_name, algorithm, expected):
  """Runs round by round and compares everything that a round leaves behind."""
  num_updates = np.zeros(len(oracle_rounds.SIZES))
  for oracle, server_state, states, outputs in oracle_rounds.rounds(
    runtime_name, algorithm, _SOURCE, expected, _SEED
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
  'own, sgd': fed_soft_oracle.Options(
    start='own',
    lam=0.4,
    loss_scale=0.5,
    epochs=3,
    batch_size=4,
    learning_rate=0.03,
  ),
  'mixed_center, adam': fed_soft_oracle.Options(
    num_clusters=3,
    start='mixed_center',
    lam=1.0,
    epochs=2,
    batch_size=5,
    optimizer='adam',
    learning_rate=0.05,
  ),
  'best_center, momentum': fed_soft_oracle.Options(
    start='best_center',
    lam=1.0,
    sigma=0.3,
    loss_scale=0.5,
    batch_size=3,
    learning_rate=0.03,
    momentum=0.6,
  ),
  'own, adam, no proximal term': fed_soft_oracle.Options(
    num_clusters=3,
    lam=0.0,
    batch_size=32,
    epochs=2,
    optimizer='adam',
    learning_rate=0.1,
  ),
}
# Options that the plan alone depends on.
_PLANS = {
  'without replacement': {'selection': 'without_replacement', 'K': 3},
  'without replacement, tau=3': {'tau': 3, 'K': 2},
  'K=N': {'selection': 'without_replacement', 'K': oracle_rounds.NUM_AVAILABLE},
  'with replacement': {'selection': 'with_replacement', 'K': 4, 'tau': 1},
  'with replacement, tau=3': {'selection': 'with_replacement', 'tau': 3},
  'weighted full': {'selection': 'weighted_full', 'tau': 1},
  'weighted full, tau=3': {'selection': 'weighted_full', 'tau': 3},
}


# Every plan once, with a solver; every solver once among the last four.
_CASES = tuple(zip(_PLANS, itertools.cycle(_SOLVERS), strict=False))


@pytest.mark.parametrize(
  ('runtime_name', 'plan', 'solver'),
  [
    *(('debug', *case) for case in _CASES),
    *(
      pytest.param('graphs', *case, marks=pytest.mark.verify)
      for case in _CASES[-len(_SOLVERS) :]
    ),
  ],
)
def test_runtimes_follow_the_oracle(runtime_name, plan, solver):
  options = dataclasses.replace(_SOLVERS[solver], **_PLANS[plan])
  algorithm = _build(options)
  expected = _expected(algorithm, options)
  assert min(one.margin for one in expected) > _MARGIN
  _compare(runtime_name, algorithm, expected)
