"""What clients keep from round to round survives a stop: the end is the same.

Algorithms around filter decomposition, in which a client has own atoms,
coefficients that persist, or a control; and rates that fall while it has. Three
clients of five a round, so that some states are older than the last checkpoint.
"""

import types

import numpy as np
import pytest

from tests.testing import accelerator, contract, factored
from tests.testing import recorder as recorder_lib
from tff_algos.algorithms import registry
from tff_algos.evaluation import evaluator
from tff_algos.rounds import lr_schedule
from tff_algos.runtimes import cohort as cohort_lib
from tff_algos.runtimes import debug_runtime
from tff_algos.runtimes.pjrt import pjrt_config, pjrt_runtime
from tff_algos.training import checkpoint, loop

_SEED = 7
_NUM_ROUNDS = 4
_ALGORITHMS = {
  'own_atoms': lambda: factored.build(
    local_atoms={'own': 'atoms', 'refit_interval': 4}
  ),
  'persisted_coefficients': lambda: factored.build(
    schedule={'slow_period': 3, 'fast_rounds': 'persist'}
  ),
  'controls': lambda: registry.build_algorithm(
    registry.parse_config(factored.host('scaffold')),
    factored.model(),
  ),
  'lr_schedule': lambda: registry.build_algorithm(
    registry.parse_config(factored.host('scaffold')),
    factored.model(),
    schedule=lr_schedule.LrScheduleConfig((1, 3), 0.5),
  ),
}
_NO_EVALUATION = types.SimpleNamespace(
  selection_metric='none',
  evaluate=lambda server_state: evaluator.Evaluation({}),
)


class _Killed(Exception):
  """Ends a process."""


class _Run:
  """Trains one algorithm, in one folder after another."""

  def __init__(self, algorithm, runtime=None):
    self.algorithm = algorithm
    self.runtime = runtime or debug_runtime.DebugRuntime(
      algorithm, len(contract.SIZES)
    )

  def train(self, folder, recorder, num_rounds=_NUM_ROUNDS, killed_at=None):
    """Returns where it ends and every client's state, in a process anew."""
    population = factored.SOURCE.population
    checkpoints = checkpoint.CheckpointManager(folder, {})
    checkpoints.remove_unfinished()
    store = loop.build_store(
      self.algorithm, population, _SEED, checkpoints.states_folder, 'memory'
    )
    runtime = self.runtime
    if killed_at is not None:
      runtime = recorder_lib.FailingRuntime(runtime, killed_at, _Killed())
    result = loop.train(
      self.algorithm,
      runtime,
      factored.SOURCE,
      store,
      checkpoints,
      _NO_EVALUATION,
      recorder,
      loop.TrainingConfig(num_rounds, checkpoint_interval=2),
      _SEED,
    )
    states = store.load(np.arange(population.num_clients))
    return result, cohort_lib.to_numpy(states)


@pytest.mark.parametrize('name', _ALGORITHMS)
def test_a_stop_changes_nothing(name, tmp_path):
  """After round 3; and within round 4, when the last checkpoint is of round 2."""
  run = _Run(_ALGORITHMS[name]())
  _stop(run, run, tmp_path)


@pytest.mark.verify
@accelerator.needed
def test_states_that_stay_on_a_device_resume_on_another_worker(tmp_path):
  algorithm = _ALGORITHMS['controls']()

  def runtime():
    config = pjrt_config.PjrtConfig(clients_per_block=2)
    return pjrt_runtime.PjrtRuntime(algorithm, len(contract.SIZES), config)

  with runtime() as one, runtime() as other:
    _stop(_Run(algorithm, one), _Run(algorithm, other), tmp_path)


def _stop(first, run, tmp_path):
  """Compares a whole run with runs that are stopped and go on."""
  recorder = recorder_lib.Recorder()
  whole = first.train(tmp_path / 'whole', recorder)
  assert whole[0].round_num == _NUM_ROUNDS
  rows = recorder.rows
  folder, recorder = tmp_path / 'ended', recorder_lib.Recorder()
  run.train(folder, recorder, 3)
  np.testing.assert_equal(run.train(folder, recorder), whole)
  np.testing.assert_equal(recorder.rows, rows)
  folder, recorder = tmp_path / 'killed', recorder_lib.Recorder()
  with pytest.raises(_Killed):
    run.train(folder, recorder, killed_at=4)
  np.testing.assert_equal(run.train(folder, recorder), whole)
  np.testing.assert_equal(recorder.rows, rows)


def test_metrics_of_all_periods_have_one_name(tmp_path):
  recorder = recorder_lib.Recorder()
  _Run(_ALGORITHMS['lr_schedule']()).train(tmp_path, recorder)
  names = [set(recorder.rows[t]) for t in range(1, _NUM_ROUNDS + 1)]
  assert 'train/loss' in names[0]
  assert names == [names[0]] * _NUM_ROUNDS


def test_states_are_kept_by_some_clients_and_not_by_all(tmp_path):
  """Else the test above would compare nothing."""
  run = _Run(_ALGORITHMS['own_atoms']())
  _, states = run.train(tmp_path, recorder_lib.Recorder(), 2)
  assert set(states.own.num_updates.tolist()) >= {0, 1}
  assert np.abs(states.own.weights['conv/atoms']).max() > 0
