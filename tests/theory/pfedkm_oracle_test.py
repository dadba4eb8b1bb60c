"""pFedKM against an independent implementation, round by round.

`tests.testing.pfedkm_oracle` is written from the paper in NumPy float64; the
library computes in float32. The best partition of every round must be better
than all others by `_MARGIN`, so that rounding cannot change it.
"""

import dataclasses

import numpy as np
import pytest

from tests.testing import oracle_rounds, pfedkm_oracle, toys
from tff_algos.algorithms.pfedkm import pfedkm, regrouping
from tff_algos.numerics import statistics
from tff_algos.stages.client import moreau_envelope

_TOLERANCE = {'rtol': 5e-5, 'atol': 5e-5}
_MARGIN = 1e-3
_NUM_ROUNDS = 3
_SEED = 3
# One client without examples, one with a single one, and short last batches.
_SIZES = (7, 0, 1, 12, 5, 30, 4, 9)
_SOURCE = oracle_rounds.in_turns(_SIZES)


_TRAINING = moreau_envelope.MoreauEnvelopeConfig(
  num_local_steps=5,
  batch_size=4,
  client_learning_rate=0.05,
  proximal_weight=3.0,
  num_proximal_steps=3,
  personal_learning_rate=0.05,
)
_CONFIG = pfedkm.PFedKMConfig(
  loss_scale=0.5,
  local_training=_TRAINING,
  k_means=regrouping.KMeansConfig(num_restarts=20),
)


def _expected(algorithm, config):
  server_state, _ = toys.initial_states(algorithm, _SOURCE.population, _SEED)
  return pfedkm_oracle.run(
    oracle_rounds.clients(_SOURCE),
    _SOURCE.population.client_ids,
    server_state.cluster_models['kernel'][0, :, 0],
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
      oracle.models,
      **_TOLERANCE,
    )
    np.testing.assert_array_equal(
      server_state.cluster_assignment, oracle.assignment
    )
    for state, theta in zip(states, oracle.personalized, strict=True):
      assert (state.num_updates > 0) == np.isfinite(theta).all()
      if state.num_updates:
        found = state.personalized_weights['kernel'][:, 0]
        np.testing.assert_allclose(found, theta, **_TOLERANCE)
    loss = statistics.value_of(output.client_metrics['loss'])
    np.testing.assert_allclose(loss, oracle.loss, **_TOLERANCE)
    if algorithm.num_clusters > 1:
      metrics = output.server_metrics
      np.testing.assert_allclose(
        metrics['k_means_inertia'], oracle.inertia, rtol=1e-3
      )
      np.testing.assert_allclose(metrics['moved_clients'], oracle.moved)


_OPTIONS = {
  'as printed': {},
  'three clusters, half way, by examples': {
    'num_clusters': 3,
    'server_mixing': 0.5,
    'weighting': 'examples',
  },
  'five of seven, beyond the mean': {'cohort_size': 5, 'server_mixing': 1.5},
  'clustered by theta, with decay': {
    'num_clusters': 3,
    'cluster_on': 'personalized_model',
    'local_training': dataclasses.replace(_TRAINING, weight_decay=0.3),
  },
  'one cluster': {
    'num_clusters': 1,
    'server_mixing': 0.5,
    'weighting': 'examples',
  },
}
_SECOND_TIER = ('three clusters, half way, by examples', 'one cluster')


@pytest.mark.parametrize(
  'name',
  [
    # One cluster is pFedMe, which `pfedkm_reductions_test` compares bit for bit.
    pytest.param(name, marks=[pytest.mark.verify] * (name in _SECOND_TIER))
    for name in _OPTIONS
  ],
)
def test_rounds_follow_the_oracle(name):
  config = dataclasses.replace(_CONFIG, **_OPTIONS[name])
  algorithm = pfedkm.build_pfedkm(toys.linear(3), config)
  expected = _expected(algorithm, config)
  assert min(one.margin for one in expected) > _MARGIN
  _compare(algorithm, expected)
