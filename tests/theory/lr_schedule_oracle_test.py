"""FedAvg whose rate falls, against an independent implementation.

Squared errors of a linear model in NumPy float64; with the library it shares
`core.seeds` alone and, written a second time, the hash that shuffles examples.
"""

import numpy as np
import pytest

from tests.testing import index_hash, toys
from tff_algos.algorithms import registry
from tff_algos.core import seeds
from tff_algos.rounds import lr_schedule
from tff_algos.runtimes import debug_runtime
from tff_algos.runtimes.tff import tff_runtime

_SEED, _NUM_ROUNDS = 3, 4
_RATE, _MOMENTUM, _DECAY, _BATCH = 0.05, 0.9, 0.01, 4
_SIZES = (7, 1, 12, 5)
_SOURCE = toys.linear_clients(
  np.array([[3.0, 0, -1], [-1, 2, 2]]), np.full((4, 2), 0.5), _SIZES
)
# After round 1 once, and after round 3 once more.
_RATES = [_RATE, _RATE * 0.1, _RATE * 0.1, _RATE * 0.01]
_SECTION = {
  'name': 'fed_avg',
  'cohort_size': len(_SIZES),
  'loss_scale': 0.5,
  'local_training': {
    'num_local_epochs': 2,
    'batch_size': _BATCH,
    'optimizer': {
      'name': 'sgd',
      'learning_rate': _RATE,
      'momentum': _MOMENTUM,
    },
    'weight_decay': _DECAY,
  },
}


def _train(x, y, weights, rate, seed):
  velocity = np.zeros_like(weights)
  for rows in index_hash.batches(seed, 2, len(y), _BATCH):
    slope = x[rows].T @ (x[rows] @ weights - y[rows]) / len(rows)
    velocity = _MOMENTUM * velocity + rate * (slope + _DECAY * weights)
    weights = weights - velocity
  return weights


def _fed_avg(weights):
  """Yields the weights after each round."""
  ids = _SOURCE.population.client_ids
  for t, rate in enumerate(_RATES, start=1):
    models = []
    for k, client_id in enumerate(ids):
      one = _SOURCE.examples(k)
      seed = seeds.derive_seed(_SEED, 'train', t, client_id)
      models.append(
        _train(one.x.astype(float), one.y.astype(float), weights, rate, seed)
      )
    weights = np.average(models, axis=0, weights=_SIZES)
    yield weights


_RUNTIMES = {
  'debug': debug_runtime.DebugRuntime,
  'graphs': toys.graph_runtime,
  'tff': tff_runtime.TffRuntime,
}


@pytest.mark.parametrize(
  'name',
  [
    pytest.param(name, marks=[pytest.mark.verify] * (name == 'graphs'))
    for name in _RUNTIMES
  ],
)
def test_every_round_has_its_rate(name):
  algorithm = registry.build_algorithm(
    registry.parse_config(_SECTION),
    toys.linear(3),
    schedule=lr_schedule.LrScheduleConfig((1, 3), 0.1),
  )
  start = toys.initial_states(algorithm, _SOURCE.population, _SEED)
  first = start[0].model_weights['kernel'][:, 0].astype(float)
  moved = []
  with _RUNTIMES[name](algorithm, len(_SIZES)) as runtime:
    for t, expected in enumerate(_fed_avg(first), start=1):
      *start, _ = toys.run_rounds(
        algorithm, _SOURCE, 1, _SEED, start, t, runtime=runtime
      )
      found = start[0].model_weights['kernel'][:, 0]
      np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)
      moved.append(np.abs(expected - first).max())
      first = expected
  # Else a rate that stayed would have passed.
  assert moved[0] > 5 * moved[1] > 5 * moved[3] > 1e-3
