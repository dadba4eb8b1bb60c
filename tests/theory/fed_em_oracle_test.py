"""FedEM against an independent implementation, round by round.

`tests.testing.fed_em_oracle` is written from the paper in NumPy float64 and
trains each model by itself; the library computes in float32 and trains all in
one loop.
"""

import dataclasses

import numpy as np
import pytest

from tests.testing import fed_em_oracle, oracle_rounds, toys
from tff_algos.algorithms import fed_em
from tff_algos.numerics import optimizers, statistics
from tff_algos.stages.client import local_training

_TOLERANCE = {'rtol': 1e-4, 'atol': 1e-4}
_NUM_ROUNDS = 4
_SEED = 3
_SOURCE = oracle_rounds.SOURCE
# Squared errors of hundreds: exp of their negatives is 0 in float32.
_FAR_SOURCE = toys.linear_clients(
  10 * oracle_rounds.THETAS, oracle_rounds.MIXTURES, oracle_rounds.SIZES
)


_CONFIG = fed_em.FedEmConfig(
  cohort_size=4,
  loss_scale=0.5,
  local_training=local_training.LocalTrainingConfig(
    2, 4, optimizers.OptimizerConfig('sgd', 0.05)
  ),
)


def _expected(algorithm, config, source):
  server_state, _ = toys.initial_states(algorithm, source.population, _SEED)
  return fed_em_oracle.run(
    oracle_rounds.clients(source),
    source.population.client_ids,
    server_state.cluster_models['kernel'][..., 0],
    config,
    _NUM_ROUNDS,
    _SEED,
  )


def _compare(algorithm, source, expected):
  """Runs round by round and compares everything that a round leaves behind."""
  for oracle, server_state, states, (output,) in oracle_rounds.rounds(
    algorithm, source, expected, _SEED
  ):
    np.testing.assert_allclose(
      server_state.cluster_models['kernel'][..., 0],
      oracle.centers,
      **_TOLERANCE,
    )
    memberships = np.stack([state.membership for state in states])
    np.testing.assert_allclose(memberships, oracle.memberships, **_TOLERANCE)
    np.testing.assert_allclose(memberships.sum(axis=1), 1, rtol=1e-5)
    for name in ('loss', 'mixture_loss'):
      np.testing.assert_allclose(
        statistics.value_of(output.client_metrics[name]),
        getattr(oracle, name),
        **_TOLERANCE,
      )


_CASES = {
  'sgd': ({}, _SOURCE),
  'adam, three models, uniform': (
    {
      'local_training': local_training.LocalTrainingConfig(
        2, 4, optimizers.OptimizerConfig('adam', 0.05)
      ),
      'num_clusters': 3,
      'weighting': 'uniform',
      'cohort_size': oracle_rounds.NUM_AVAILABLE,
    },
    _SOURCE,
  ),
  'whole squared error': (
    {
      'loss_scale': 1.0,
      'local_training': local_training.LocalTrainingConfig(
        2, 4, optimizers.OptimizerConfig('sgd', 0.02)
      ),
    },
    _SOURCE,
  ),
  'losses of hundreds': (
    {'cohort_size': oracle_rounds.NUM_AVAILABLE},
    _FAR_SOURCE,
  ),
}


@pytest.mark.parametrize('name', _CASES)
def test_rounds_follow_the_oracle(name):
  changes, source = _CASES[name]
  config = dataclasses.replace(_CONFIG, **changes)
  algorithm = fed_em.build_fed_em(toys.linear(3), config)
  expected = _expected(algorithm, config, source)
  if source is _FAR_SOURCE:
    assert expected[0].mixture_loss > 100
  _compare(algorithm, source, expected)
