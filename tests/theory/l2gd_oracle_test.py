"""L2GD against an independent implementation, round by round.

`tests.testing.l2gd_oracle` takes the paper's iterations one coin at a time in
NumPy float64; the library takes whole runs of them in float32.
"""

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
_OPTIONS = {
  'proximal_weight': 0.7,
  'aggregation_prob': 0.4,
  'client_learning_rate': 0.15,
  'loss_scale': 0.5,
}
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


def _expected(algorithm, config):
  server_state, _ = toys.initial_states(algorithm, _SOURCE.population, _SEED)
  return l2gd_oracle.run(
    oracle_rounds.clients(_SOURCE),
    server_state.model_weights['kernel'][:, 0],
    config,
    _NUM_ROUNDS,
    server_state.seed,
  )


@pytest.mark.parametrize('name', _CASES)
def test_rounds_follow_the_oracle(name):
  """Compares everything that a round leaves behind."""
  config = l2gd.L2gdConfig(**_OPTIONS | _CASES[name])
  algorithm = l2gd.build_l2gd(toys.linear(3), config)
  expected_rounds = _expected(algorithm, config)
  longest = np.zeros(2)
  for oracle, server_state, states, (output,) in oracle_rounds.rounds(
    algorithm, _SOURCE, expected_rounds, _SEED
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
