"""Tests of the best of restarts: which wins, by what, at which price."""

import dataclasses
import logging

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import points, recorder, running_sum, sum_run
from tff_algos.algorithms import ifca
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import errors, seeds
from tff_algos.runtimes import debug_runtime
from tff_algos.training import loop, restarts, selection

_COST = algorithm_lib.Cost(100, 10, 1)


def _trials(*results):
  """Returns the trial of each restart by its seed; the run's is 3."""
  return {
    restarts.seed_of(3, r): restarts.Trial(num_unfit, loss, _COST)
    for r, (num_unfit, loss) in enumerate(results)
  }


@pytest.mark.parametrize(
  ('results', 'best'),
  [
    ([(0, 2.0), (0, 1.0), (0, 1.5)], 1),
    ([(0, 1.0), (0, 1.0)], 0),
    # A loss of fewer clients says less.
    ([(4, 0.1), (0, 9.0), (1, 0.2)], 1),
    # Data that are NaN are so for all.
    ([(1, 3.0), (1, 2.0)], 1),
    ([(5, float('inf')), (5, float('inf'))], 0),
  ],
)
def test_lowest_loss_of_the_most_clients_wins(results, best, caplog):
  trials = _trials(*results)
  config = restarts.RestartsConfig(len(results), 4)
  with caplog.at_level(logging.INFO, logger='absl'):
    seed, cost = restarts.choose(config, 3, trials.__getitem__)
  assert seed == restarts.seed_of(3, best)
  assert cost == {
    'cost/downlink_floats': 100 * len(results),
    'cost/uplink_floats': 10 * len(results),
    'cost/local_solves': len(results),
  }
  (line,) = caplog.messages
  assert f'Restart {best} of 0 ... {len(results) - 1} is the best' in line
  for trial in trials.values():
    assert f'{trial.loss:.4g}' in line


def test_one_restart_is_not_tried():
  assert restarts.choose(restarts.RestartsConfig(), 3, None) == (3, {})


def test_seeds_of_restarts_differ_and_the_first_is_the_runs():
  assert restarts.seed_of(3, 0) == 3
  tried = {restarts.seed_of(seed, r) for seed in range(5) for r in range(20)}
  assert len(tried) == 100
  assert min(tried) == 0


def _judge(centers, clients, cost=_COST):
  source = points.clients([np.array(one, float) for one in clients])
  algorithm = ifca.build_ifca(points.model(2), ifca.IfcaConfig(cohort_size=1))
  with debug_runtime.DebugRuntime(algorithm, len(clients)) as runtime:
    state = ifca.ServerState({'point': np.array(centers, np.float32)})
    return restarts.judge(algorithm, runtime, source, state, cost)


# Mean squared distances to (0, 0) and (8, 0): 1 and 65, 42.5 and 10.5; the
# client between them has no example.
_CLIENTS = ([[0, 1]], np.zeros((0, 2)), [[5, 0], [6, 0], [6, 0], [8, 0]])
_CENTERS = [[0, 0], [8, 0]]


def test_a_client_counts_once_with_its_best_cluster():
  """The second: (9 + 4 + 4 + 0) / 4 = 4.25 from (8, 0)."""
  trial = _judge(_CENTERS, _CLIENTS)
  assert trial.num_unfit == 0
  np.testing.assert_allclose(trial.loss, (1 + 4.25) / 2, rtol=1e-6)
  # Two clients take two models of two numbers, and say one number each.
  assert trial.cost == (100 + 2 * 2 * 2, 10 + 2, 1)


def test_a_client_with_nan_is_counted_apart():
  trial = _judge(_CENTERS, (*_CLIENTS, [[np.nan, 0]]))
  assert trial.num_unfit == 1
  np.testing.assert_allclose(trial.loss, (1 + 4.25) / 2, rtol=1e-6)


def test_a_broken_model_fits_nobody():
  trial = _judge([[0, 0], [np.nan, 0]], _CLIENTS)
  assert trial[:2] == (2, float('inf'))


@pytest.mark.parametrize('name', ['num_restarts', 'num_rounds'])
def test_config_refuses(name):
  with pytest.raises(errors.ConfigError, match=f'{name} must be an integer'):
    dataclasses.replace(restarts.RestartsConfig(), **{name: 0})


def _restarted_run(folder):
  """A running sum that starts at random; its third client never takes part.

  Two examples of 1 turn a total t into 3 t + 2. Under the model t their squared
  error is t^2.
  """

  def init_server_state(seed, num_clients):
    start = tf.random.stateless_normal([], seed)
    return running_sum.ServerState(start, start, tf.zeros([num_clients]))

  def plan_round(server_state, population, round_num, seed):
    yield running_sum.phase_call([0, 1], [round_num] * 2)

  algorithm = dataclasses.replace(
    running_sum.algorithm(),
    init_server_state=init_server_state,
    init_client_state=lambda run_seed, client_seed: running_sum.ClientState(
      tf.constant(0), tf.random.stateless_normal([2], client_seed)
    ),
    plan_round=plan_round,
  )
  return sum_run.SumRun(folder, algorithm, ([1.0], [1.0], [1.0]))


_RESTARTS = {
  'restarts': restarts.RestartsConfig(4, 2),
  'checkpoint_interval': 1,
}


def _start(seed):
  return tf.random.stateless_normal([], seeds.derive_seed(seed, 'initialize'))


def test_training_goes_by_the_best_restart(tmp_path):
  """After two rounds of 3 t + 2, the loss is (9 t + 8)^2."""
  run = _restarted_run(tmp_path)
  result = run.train(3, **_RESTARTS)
  tried = [restarts.seed_of(0, r) for r in range(4)]
  best = min(tried, key=lambda seed: abs(9 * _start(seed) + 8))
  assert best != 0  # Else this would show little.
  assert run.store.seed == best
  rows, start = run.recorder.rows, float(_start(best))
  totals = [rows[r]['total'] for r in range(4)]
  expected = [start, 3 * start + 2, 9 * start + 8, 27 * start + 26]
  np.testing.assert_allclose(totals, expected, rtol=1e-5)
  assert result.server_state.total == totals[3]
  # Four trials: two calls of cost (1, 2, 3); then 3 clients take a model of one
  # number, and say one.
  assert rows[0].keys() - rows[1].keys() == set()
  assert [rows[0][f'cost/{name}'] for name in algorithm_lib.Cost._fields] == [
    4 * (2 * 1 + 3),
    4 * (2 * 2 + 3),
    4 * (2 * 3),
  ]
  assert rows[1]['cost/local_solves'] == 3
  client_seed = seeds.derive_seed(best, 'initialize', 0, 'c002')
  np.testing.assert_array_equal(
    run.store.load(np.array([2])).last[0],
    tf.random.stateless_normal([2], client_seed),
  )


def test_a_metric_that_is_misspelt_is_refused_before_the_trials(tmp_path):
  run = _restarted_run(tmp_path)
  run.algorithm = dataclasses.replace(run.algorithm, plan_round=None)
  with pytest.raises(errors.ConfigError, match="'totl'.* it has total"):
    run.train(3, selection=selection.SelectionConfig('totl'), **_RESTARTS)


def test_every_round_draws_with_the_seed_of_the_best_restart(tmp_path):
  """Those before and those after a checkpoint; of the trials, each its own."""
  drawn = []

  def run(num_rounds):
    made = _restarted_run(tmp_path)
    plan_round = made.algorithm.plan_round

    def record_seed(server_state, population, round_num, seed):
      drawn.append((round_num, seed))
      return plan_round(server_state, population, round_num, seed)

    made.algorithm = dataclasses.replace(made.algorithm, plan_round=record_seed)
    made.train(num_rounds, **_RESTARTS)
    return made.store.seed

  best = run(2)
  assert best != 0
  tried = [restarts.seed_of(0, r) for r in range(4)]
  trials = [(r, seed) for seed in tried for r in (1, 2)]
  assert drawn == [*trials, (1, best), (2, best)]
  assert run(4) == best
  assert drawn[-2:] == [(3, best), (4, best)]


@pytest.fixture(name='whole', scope='module')
def _whole(tmp_path_factory):
  """A run of three rounds, and its result."""
  run = _restarted_run(tmp_path_factory.mktemp('whole'))
  return run, run.train(3, **_RESTARTS)


@pytest.mark.parametrize('stop', [0, 1, 3])
def test_chosen_restart_survives_ctrl_c(whole, tmp_path, stop):
  """In the recording of a round: before the first checkpoint all is tried anew."""
  whole, expected = whole
  first = _restarted_run(tmp_path / 'stopped')
  first.recorder = recorder.InterruptedRecorder(stop, True)
  with pytest.raises(KeyboardInterrupt):
    first.train(3, **_RESTARTS)
  second = _restarted_run(tmp_path / 'stopped')
  second.recorder = first.recorder
  np.testing.assert_equal(second.train(3, **_RESTARTS), expected)
  assert second.recorder.rows == whole.recorder.rows
  everyone = np.arange(3)
  np.testing.assert_equal(
    second.store.load(everyone), whole.store.load(everyone)
  )


def test_a_checkpoint_says_the_seed(tmp_path):
  run = _restarted_run(tmp_path)
  run.train(3, **_RESTARTS)
  assert run.checkpoints.seed(3) == run.store.seed != 0
  fresh = _restarted_run(tmp_path)
  fresh.checkpoints.restore(
    3, loop.initial_server_state(run.algorithm, 3, 0), fresh.store
  )
  assert fresh.store.seed == run.store.seed


def test_identity_is_that_of_the_run_unless_something_is_tried():
  assert restarts.RestartsConfig(1, 9).identity() == {}
  tried = restarts.RestartsConfig(2, 9).identity()
  assert tried == {'restarts': {'num_restarts': 2, 'num_rounds': 9}}
