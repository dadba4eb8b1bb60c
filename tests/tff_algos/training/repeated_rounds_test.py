"""Tests of one round, several times."""

import numpy as np

from tests.testing import full_batch_rounds as rounds
from tests.testing import toys
from tff_algos.algorithms import fed_avg
from tff_algos.algorithms.filter_decomposition import kernel_variance
from tff_algos.runtimes import debug_runtime
from tff_algos.training import repeated_rounds


def _repeat(cohort_size, seeds):
  config = fed_avg.FedAvgConfig(
    cohort_size=cohort_size, loss_scale=0.5, local_training=rounds.TRAINING
  )
  algorithm = fed_avg.build_fed_avg(rounds.model(), config)
  population = rounds.SOURCE.population
  server_state, _ = toys.initial_states(algorithm, population)
  states = repeated_rounds.repeat(
    algorithm,
    debug_runtime.DebugRuntime(algorithm, population.num_clients),
    server_state,
    lambda indices: (),
    rounds.SOURCE,
    round_num=1,
    seeds=seeds,
  )
  assert states[0] is not server_state
  models = [rounds.vector(one.model_weights) for one in states]
  return algorithm, np.array(models)


def test_the_runs_own_seed_gives_what_the_run_makes():
  algorithm, models = _repeat(2, (0, 1, 2, 3))
  expected, _, _ = rounds.run(algorithm, 1)
  np.testing.assert_array_equal(
    models[0], rounds.vector(expected.model_weights)
  )
  assert len(np.unique(models[:, 0])) > 1


def test_more_clients_leave_less_variance_and_all_leave_none():
  """Full batches: nothing but the cohort is random."""
  variances = [
    kernel_variance.estimate(_repeat(count, range(8))[1]).variance
    for count in (1, 3, 4)
  ]
  assert variances[0] > variances[1] > 1e-6
  assert variances[2] < 1e-12
