"""PPFL against an independent implementation, round by round.

`tests.testing.ppfl_oracle` is written from the paper in NumPy float64 and builds
the Laplacian as a matrix; the library computes in float32 and never builds it.
"""

import dataclasses

import numpy as np
import pytest

from tests.testing import oracle_rounds, ppfl_oracle, toys
from tff_algos.algorithms import registry
from tff_algos.algorithms.ppfl import affinity, membership_descent, ppfl
from tff_algos.core import config as config_lib
from tff_algos.numerics import optimizers
from tff_algos.rounds import lr_schedule
from tff_algos.stages.client import local_training

_TOLERANCE = {'rtol': 1e-4, 'atol': 1e-4}
_NUM_ROUNDS = 5
_SEED = 3
_SOURCE = oracle_rounds.SOURCE
_NUM_CLIENTS = len(oracle_rounds.SIZES)


def _build(options):
  """Returns our algorithm for the options of the oracle."""
  config = ppfl.PpflConfig(
    num_clusters=3,
    schedule=options.schedule,
    cohort_size=options.cohort_size,
    weighting=options.weighting,
    shared_prob=options.shared_prob,
    loss_scale=options.loss_scale,
    membership=membership_descent.MembershipConfig(
      options.membership_rate,
      options.membership_steps,
      gradient_weight='client_weight' if options.is_weighed else 'none',
    ),
    laplacian=affinity.LaplacianConfig(
      options.laplacian_weight, 'uniform', options.form
    ),
    local_training=local_training.LocalTrainingConfig(
      options.epochs,
      options.batch_size,
      optimizers.OptimizerConfig('sgd', options.learning_rate),
    ),
  )
  falls = (options.decay_after,) if options.decay_after < 100 else ()
  return registry.build_algorithm(
    registry.parse_config({'name': 'ppfl', **config_lib.to_dict(config)}),
    toys.linear(3),
    schedule=lr_schedule.LrScheduleConfig(falls, 0.1),
  )


_CASES = {
  'Algorithm 3': {'laplacian_weight': 0.01},
  'Algorithm 3, no penalty, uniform weights': {'weighting': 'uniform'},
  'Algorithm 3, four of six, unweighed, three steps': {
    'cohort_size': 4,
    'is_weighed': False,
    'membership_rate': 0.2,
    'membership_steps': 3,
    'laplacian_weight': 0.05,
    'decay_after': 3,
  },
  'Algorithm 1': {
    'schedule': 'random_block',
    'shared_prob': 0.365,
    'laplacian_weight': 0.01,
  },
  'Algorithm 1, four of six': {
    'schedule': 'random_block',
    'shared_prob': 0.365,
    'cohort_size': 4,
    'decay_after': 2,
  },
  'released': {
    'schedule': 'shared_first',
    'is_weighed': False,
    'membership_rate': 0.2,
    'laplacian_weight': 0.02,
    'form': 'degree',
    'decay_after': 2,
  },
}


@pytest.mark.parametrize('name', _CASES)
def test_rounds_follow_the_oracle(name):
  options = dataclasses.replace(ppfl_oracle.Options(), **_CASES[name])
  algorithm = _build(options)
  server_state, _ = toys.initial_states(algorithm, _SOURCE.population, _SEED)
  expected = ppfl_oracle.run(
    oracle_rounds.clients(_SOURCE),
    _SOURCE.population.client_ids,
    server_state.model_weights['canonical']['kernel'][..., 0],
    np.ones((_NUM_CLIENTS, _NUM_CLIENTS)),
    options,
    _NUM_ROUNDS,
    _SEED,
  )
  blocks = set()
  for oracle, server_state, states, outputs in oracle_rounds.rounds(
    algorithm, _SOURCE, expected, _SEED
  ):
    np.testing.assert_allclose(
      server_state.model_weights['canonical']['kernel'][..., 0],
      oracle.theta,
      **_TOLERANCE,
    )
    memberships = np.stack(
      [
        algorithm.membership(server_state, state, index)
        for index, state in enumerate(states)
      ]
    )
    np.testing.assert_allclose(memberships, oracle.memberships, **_TOLERANCE)
    np.testing.assert_allclose(memberships.sum(axis=1), 1, rtol=1e-5)
    blocks |= {name for output in outputs for name in output.client_metrics}
  assert blocks == {'loss', 'membership_loss'}
  assert np.abs(expected[-1].memberships - 1 / 3).max() > 0.05
  moves_all = options.laplacian_weight and not options.cohort_size
  if moves_all and options.form == 'laplacian':
    # Who has no examples is moved by the penalty alone.
    assert np.abs(expected[-1].memberships[1] - 1 / 3).max() > 1e-4
