"""L2GD against an independent implementation, round by round.

`tests.testing.l2gd_oracle` takes the paper's iterations one coin at a time in
NumPy float64; the library takes whole runs of them in float32.
"""

import dataclasses

import numpy as np
import pytest

from tests.testing import l2gd_oracle, oracle_rounds, toys
from tff_algos.algorithms import l2gd
from tff_algos.numerics import statistics

_TOLERANCE = {'rtol': 5e-5, 'atol': 5e-5}
_NUM_ROUNDS = 6
_SEED = 5
# One client without examples, and one with a single one.
_SIZES = (7, 0, 1, 12, 5)
_SOURCE = oracle_rounds.in_turns(_SIZES, 2)
_CASES = {
  'as it is': {},
  'nobody is pulled': {'proximal_weight': 0.0},
  'all the way to the mean': {
    'client_learning_rate': 0.1,
    'proximal_weight': 4.0,
    'loss_scale': 1.0,
  },
  'long runs of aggregation': {'aggregation_prob': 0.8},
}


def _build(name):
  """Returns our algorithm of a case, and the oracle's options."""
  options = dataclasses.replace(l2gd_oracle.Options(), **_CASES[name])
  config = l2gd.L2gdConfig(**dataclasses.asdict(options))
  return l2gd.build_l2gd(toys.linear(3), config), options


def _expected(algorithm, options):
  server_state, _ = toys.initial_states(algorithm, _SOURCE.population, _SEED)
  return l2gd_oracle.run(
    oracle_rounds.clients(_SOURCE),
    server_state.model_weights['kernel'][:, 0],
    options,
    _NUM_ROUNDS,
    server_state.seed,
  )


def _compare(runtime_name, name):
  """Runs round by round and compares everything that a round leaves behind."""
  algorithm, options = _build(name)
  expected_rounds = _expected(algorithm, options)
  longest = np.zeros(2)
  for oracle, server_state, states, (output,) in oracle_rounds.rounds(
    runtime_name, algorithm, _SOURCE, expected_rounds, _SEED
  ):
    models = [one.personalized_weights['kernel'][:, 0] for one in states]
    loss = statistics.value_of(output.client_metrics['loss'])
    for found, expected in (
      (server_state.model_weights['kernel'][:, 0], oracle.mean),
      (models, oracle.models),
      (loss, oracle.loss),
    ):
      np.testing.assert_allclose(found, expected, **_TOLERANCE)
    steps = [int(value) for value in output.server_metrics.values()]
    assert steps == [oracle.coins.count(1), oracle.coins.count(0)]
    longest = np.maximum(longest, steps)
  # What a round starts with is the communication of the round before.
  communications = [one.num_communications for one in expected_rounds]
  assert communications == list(range(_NUM_ROUNDS))
  # Else the comparison would not see how often a client steps.
  assert longest.min() > 1


@pytest.mark.parametrize('name', _CASES)
def test_debug_runtime_follows_the_oracle(name):
  _compare('debug', name)


@pytest.mark.verify
def test_graphs_follow_the_oracle():
  _compare('graphs', 'as it is')
