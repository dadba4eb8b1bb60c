"""IFCA against an independent implementation, round by round.

`tests.testing.ifca_oracle` is written from the paper in NumPy float64; the
library computes in float32. No choice may lie so close to the border of two
clusters that rounding could flip it; `_MARGIN` makes sure of that.
"""

import dataclasses

import numpy as np
import pytest

from tests.testing import ifca_oracle, oracle_rounds, toys
from tff_algos.algorithms import ifca
from tff_algos.numerics import optimizers, statistics
from tff_algos.stages.client import local_training

_TOLERANCE = {'rtol': 5e-5, 'atol': 5e-5}
_MARGIN = 1e-3
_NUM_ROUNDS = 5
_SEED = 3
_SOURCE = oracle_rounds.in_turns(oracle_rounds.SIZES)


_CONFIG = ifca.IfcaConfig(
  cohort_size=4,
  loss_scale=0.5,
  local_training=local_training.LocalTrainingConfig(
    2, 4, optimizers.OptimizerConfig('sgd', 0.05)
  ),
)


def _expected(algorithm, config):
  server_state, _ = toys.initial_states(algorithm, _SOURCE.population, _SEED)
  return ifca_oracle.run(
    oracle_rounds.clients(_SOURCE),
    _SOURCE.population.client_ids,
    server_state.cluster_models['kernel'][..., 0],
    config,
    _NUM_ROUNDS,
    _SEED,
  )


def _compare(algorithm, expected):
  """Runs round by round and compares everything that a round leaves behind."""
  for oracle, server_state, states, (output,) in oracle_rounds.rounds(
    algorithm, _SOURCE, expected, _SEED
  ):
    np.testing.assert_allclose(
      server_state.cluster_models['kernel'][..., 0],
      oracle.centers,
      **_TOLERANCE,
    )
    choices = [
      state.membership.argmax() if state.membership.any() else -1
      for state in states
    ]
    np.testing.assert_array_equal(choices, oracle.choices)
    loss = statistics.value_of(output.client_metrics['loss'])
    np.testing.assert_allclose(loss, oracle.loss, **_TOLERANCE)


_OPTIONS = {
  'all clients': {'cohort_size': oracle_rounds.NUM_AVAILABLE},
  'by examples': {'weighting': 'examples'},
  'four clusters, half steps': {
    'num_clusters': 4,
    'server_learning_rate': 0.5,
    'cohort_size': 5,
  },
  'gradients': {
    'averaging': 'gradients',
    'server_learning_rate': 0.3,
    'loss_scale': 1.0,
  },
  'gradients by examples': {
    'averaging': 'gradients',
    'weighting': 'examples',
    'num_clusters': 3,
  },
}


@pytest.mark.parametrize('name', _OPTIONS)
def test_rounds_follow_the_oracle(name):
  config = dataclasses.replace(_CONFIG, **_OPTIONS[name])
  algorithm = ifca.build_ifca(toys.linear(3), config)
  expected = _expected(algorithm, config)
  assert min(one.margin for one in expected) > _MARGIN
  # Every case has clients in at least two clusters.
  assert expected[-1].choices.max() > 0
  _compare(algorithm, expected)
