"""Per-FedAvg against an independent implementation, round by round.

`tests.testing.per_fed_avg_oracle` is written from the paper in NumPy float64;
the library computes in float32.
"""

import dataclasses

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


def _build(name):
  """Returns our algorithm of a case, and the oracle's options."""
  options = dataclasses.replace(per_fed_avg_oracle.Options(), **_CASES[name])
  config = per_fed_avg.PerFedAvgConfig(**dataclasses.asdict(options))
  return per_fed_avg.build_per_fed_avg(toys.linear(3), config), options


def _expected(algorithm, options):
  server_state, _ = toys.initial_states(algorithm, _SOURCE.population, _SEED)
  return per_fed_avg_oracle.run(
    oracle_rounds.clients(_SOURCE),
    _SOURCE.population.client_ids,
    server_state.model_weights['kernel'][:, 0],
    options,
    _NUM_ROUNDS,
    _SEED,
  )


def _compare(runtime_name, name):
  """Runs round by round and compares everything that a round leaves behind."""
  algorithm, options = _build(name)
  expected_rounds = _expected(algorithm, options)
  for oracle, server_state, states, outputs in oracle_rounds.rounds(
    runtime_name, algorithm, _SOURCE, expected_rounds, _SEED
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


@pytest.mark.parametrize('name', _CASES)
def test_debug_runtime_follows_the_oracle(name):
  _compare('debug', name)


@pytest.mark.verify
def test_graphs_follow_the_oracle():
  _compare('graphs', 'hessian_free')
