"""Tests of FedAvg, against NumPy and in its reductions."""

import collections

import numpy as np
import pytest

from tests.testing import cohorts, index_hash, toys
from tff_algos.algorithms import fed_avg
from tff_algos.core import errors, seeds
from tff_algos.numerics import optimizers, statistics
from tff_algos.stages.client import local_training

_THETAS = np.array([[2.0, -1, 0.5], [1, 1, 1]])
_SIZES = (7, 0, 1, 12, 5)
_SOURCE = toys.linear_clients(_THETAS, np.full((5, 2), 0.5), _SIZES)
_NUM_AVAILABLE = 4


def _build(**options):
  training = local_training.LocalTrainingConfig(
    1, 32, optimizers.OptimizerConfig('sgd', 0.05)
  )
  defaults = {'cohort_size': _NUM_AVAILABLE, 'local_training': training}
  config = fed_avg.FedAvgConfig(loss_scale=0.5, **(defaults | options))
  return fed_avg.build_fed_avg(toys.linear(3), config)


def _kernel(server_state):
  return server_state.model_weights['kernel'][:, 0]


def _data(k):
  examples = _SOURCE.examples(k)
  return examples.x.astype(np.float64), examples.y.astype(np.float64)


def _drawn(cohort_size, round_num):
  """The library's draw, made again."""
  return cohorts.drawn(0, round_num, np.flatnonzero(_SIZES), cohort_size)


@pytest.mark.parametrize(
  ('proximal_weight', 'momentum', 'is_kept'),
  [(0.0, 0.0, False), (2.0, 0.5, False), (0.0, 0.5, True), (2.0, 0.5, True)],
)
def test_rounds_agree_with_numpy(proximal_weight, momentum, is_kept):
  """Weighted means of local solvers, FedProx's with a pull; float32, to 1e-4.

  Also if each client's velocity goes on from its own last round.
  """
  rate, batch_size, server_rate = 0.03, 4, 0.5
  algorithm = _build(
    cohort_size=3,
    local_training=local_training.LocalTrainingConfig(
      2,
      batch_size,
      optimizers.OptimizerConfig('sgd', rate, momentum),
      keeps_optimizer_state=is_kept,
    ),
    proximal_weight=proximal_weight,
    server_optimizer=optimizers.OptimizerConfig('sgd', server_rate),
  )
  w = _kernel(toys.initial_states(algorithm, _SOURCE.population)[0])
  w = w.astype(np.float64)
  losses, velocities = [], collections.defaultdict(float)
  for round_num in range(1, 4):
    updates, weights, losses = [], [], []
    for k in _drawn(3, round_num):
      x, y = _data(k)
      client_id = _SOURCE.population.client_ids[k]
      seed = seeds.derive_seed(0, 'train', round_num, client_id)
      local, velocity = w, velocities[k] if is_kept else 0.0
      for rows in index_hash.batches(seed, 2, len(y), batch_size):
        residual = x[rows] @ local - y[rows]
        losses.extend(residual**2)
        slope = x[rows].T @ residual / len(rows)
        slope = slope + proximal_weight * (local - w)
        velocity = momentum * velocity + rate * slope
        local = local - velocity
      velocities[k] = velocity
      updates.append(w - local)
      weights.append(len(y))
    w = w - server_rate * np.average(updates, axis=0, weights=weights)
  with toys.graph_runtime(algorithm, len(_SIZES)) as runtime:
    server_state, _, outputs = toys.run_rounds(
      algorithm, _SOURCE, 3, runtime=runtime
    )
  np.testing.assert_allclose(_kernel(server_state), w, rtol=1e-4)
  loss = statistics.value_of(outputs[-1].client_metrics['loss'])
  np.testing.assert_allclose(loss, np.mean(losses), rtol=1e-4)


def test_adam_at_the_server_steps_along_the_change_of_the_mean():
  """Adam's first step is its rate times the sign, and it keeps its moments."""
  start = _kernel(toys.initial_states(_build(), _SOURCE.population)[0])
  moved = _kernel(toys.run_rounds(_build(), _SOURCE, 1)[0]) - start
  adam = optimizers.OptimizerConfig('adam', 0.01)
  server_state, _, _ = toys.run_rounds(
    _build(server_optimizer=adam), _SOURCE, 1
  )
  np.testing.assert_allclose(
    _kernel(server_state) - start, 0.01 * np.sign(moved), rtol=1e-3
  )
  slots = server_state.optimizer_slots
  assert slots.num_steps == 1
  np.testing.assert_allclose(
    slots.first['kernel'][:, 0], -0.1 * moved, rtol=1e-4
  )


def test_plan_draws_clients_with_examples_and_counts_the_cost():
  """P numbers down and up for each client, and one local problem."""
  algorithm = _build(cohort_size=3)
  server_state, _ = toys.initial_states(algorithm, _SOURCE.population)
  seen = set()
  for round_num in range(1, 9):
    plan = algorithm.plan_round(server_state, _SOURCE.population, round_num, 0)
    (call,) = plan
    assert call.phase == 'train'
    assert call.client_indices.tolist() == _drawn(3, round_num).tolist()
    assert call.cost == (9, 9, 3)
    seen.add(tuple(call.client_indices))
  assert len(seen) > 1


@pytest.mark.parametrize(
  ('options', 'text'),
  [
    ({'cohort_size': -1}, 'cohort_size must be an integer >= 0, got -1'),
    ({'proximal_weight': -1.0}, 'proximal_weight must be a finite number >= 0'),
    ({'loss_scale': -1.0}, 'loss_scale must be a finite number > 0, got -1.0'),
  ],
)
def test_options_out_of_range_are_refused(options, text):
  with pytest.raises(errors.ConfigError, match=text):
    fed_avg.FedAvgConfig(**options)
