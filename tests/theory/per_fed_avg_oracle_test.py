"""Per-FedAvg against an independent implementation, round by round.

`tests.testing.per_fed_avg_oracle` is written from the paper in NumPy float64;
the library computes in float32.
"""

import numpy as np
import pytest

from tests.testing import oracle_rounds, per_fed_avg_oracle, toys
from tff_algos.algorithms import per_fed_avg
from tff_algos.numerics import statistics

_TOLERANCE = {'rtol': 5e-5, 'atol': 5e-5}
_NUM_ROUNDS = 4
_SEED = 3
# One client without examples, one with a single one, and short batches.
_SIZES = (7, 0, 1, 12, 5, 10, 3)
_SOURCE = oracle_rounds.in_turns(_SIZES, 2)
_OPTIONS = {
  'cohort_size': 4,
  'variant': 'exact',
  'client_learning_rate': 0.05,
  'num_local_steps': 3,
  'batch_size': 4,
  'finite_difference_step': 0.1,
  'loss_scale': 0.5,
}
_CASES = {
  'exact, all clients': {'cohort_size': 6},
  'hessian_free': {'variant': 'hessian_free'},
  'first_order, by examples': {
    'variant': 'first_order',
    'weighting': 'examples',
    'loss_scale': 1.0,
  },
  'exact, three personal steps': {
    'num_personal_steps': 3,
    'num_local_steps': 1,
    'batch_size': 20,
  },
}


def _expected(algorithm, config):
  server_state, _ = toys.initial_states(algorithm, _SOURCE.population, _SEED)
  return per_fed_avg_oracle.run(
    oracle_rounds.clients(_SOURCE),
    _SOURCE.population.client_ids,
    server_state.model_weights['kernel'][:, 0],
    config,
    _NUM_ROUNDS,
    _SEED,
  )


@pytest.mark.parametrize('name', _CASES)
def test_rounds_follow_the_oracle(name):
  """Compares everything that a round leaves behind."""
  config = per_fed_avg.PerFedAvgConfig(**_OPTIONS | _CASES[name])
  algorithm = per_fed_avg.build_per_fed_avg(toys.linear(3), config)
  expected_rounds = _expected(algorithm, config)
  for oracle, server_state, states, outputs in oracle_rounds.rounds(
    algorithm, _SOURCE, expected_rounds, _SEED
  ):
    personalized = [one.personalized_weights['kernel'][:, 0] for one in states]
    losses = [
      statistics.value_of(output.client_metrics['loss']) for output in outputs
    ]
    for found, expected in (
      (server_state.model_weights['kernel'][:, 0], oracle.model),
      (personalized, oracle.personalized),
      (losses, [oracle.loss, oracle.personal_loss]),
    ):
      np.testing.assert_allclose(found, expected, **_TOLERANCE)
