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


def _build(options):
  """Returns our algorithm for the options of the oracle."""
  return ifca.build_ifca(
    toys.linear(3),
    ifca.IfcaConfig(
      num_clusters=options.num_clusters,
      cohort_size=options.cohort_size,
      averaging=options.averaging,
      weighting=options.weighting,
      server_learning_rate=options.server_learning_rate,
      loss_scale=options.loss_scale,
      local_training=local_training.LocalTrainingConfig(
        options.epochs,
        options.batch_size,
        optimizers.OptimizerConfig('sgd', options.learning_rate),
      ),
    ),
  )


def _expected(algorithm, options):
  server_state, _ = toys.initial_states(algorithm, _SOURCE.population, _SEED)
  return ifca_oracle.run(
    oracle_rounds.clients(_SOURCE),
    _SOURCE.population.client_ids,
    server_state.cluster_models['kernel'][..., 0],
    options,
    _NUM_ROUNDS,
    _SEED,
  )


def _compare(runtime_name, algorithm, expected):
  """Runs round by round and compares everything that a round leaves behind."""
  for oracle, server_state, states, (output,) in oracle_rounds.rounds(
    runtime_name, algorithm, _SOURCE, expected, _SEED
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
@pytest.mark.parametrize(
  'runtime_name',
  [pytest.param('graphs', marks=pytest.mark.verify), 'debug'],
)
def test_runtimes_follow_the_oracle(name, runtime_name):
  options = dataclasses.replace(ifca_oracle.Options(), **_OPTIONS[name])
  algorithm = _build(options)
  expected = _expected(algorithm, options)
  assert min(one.margin for one in expected) > _MARGIN
  # Every case has clients in at least two clusters.
  assert expected[-1].choices.max() > 0
  _compare(runtime_name, algorithm, expected)
