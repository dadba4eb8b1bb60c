"""Order, results and end of runs side by side, on an engine that fakes them."""

import itertools
import types

import pytest

from configs.fed_soft import synthetic
from tests.testing import fake_sweep
from tff_algos.core import errors
from tff_algos.experiments.sweeps import grid, run_process, runs, side_by_side
from tff_algos.reports.sweep import plan as plan_lib

_BASE = synthetic.get_config('smoke').to_dict()


class _Handle:
  """A run that ends at its third poll."""

  def __init__(self, engine, task):
    self._engine, self._task = engine, task
    self._polls = 0

  def poll(self):
    self._polls += 1
    if self._polls < 3:
      return None
    seed = self._task.config['seed']
    outcome = self._engine.outcomes.get(seed, 'done')
    if isinstance(outcome, Exception):
      raise outcome
    if outcome == 'done':
      fake_sweep.write_run(self._task.folder, score='mse')
    return outcome

  def terminate(self):
    self._engine.calls.append(('terminate', self._task.config['seed']))

  def end(self):
    self._engine.running.discard(self._task.run)
    self._engine.calls.append(('end', self._task.config['seed']))


class _Engine:
  """Outcomes by seed; `calls` of handles, and the most runs at a time."""

  def __init__(self, capacity, outcomes=None):
    self.capacity = capacity
    self.outcomes = outcomes or {}
    self.calls, self.running, self.most, self.started = [], set(), 0, []

  def start(self, task):
    self.started.append(task)
    if isinstance(self.outcomes.get(task.config['seed']), MemoryError):
      raise errors.RuntimeFailureError('no memory for a process')
    self.running.add(task.run)
    self.most = max(self.most, len(self.running))
    return _Handle(self, task)


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
  monkeypatch.setattr(side_by_side, '_POLL_SECONDS', 0.0)


def _failure(error):
  def make(*_, **__):
    raise error

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(runs, 'make', make)
    config = grid.expand({'smoke': _BASE}, [], 1).configs[0]
    task = side_by_side.make_task(config, '/', 'run', ())
    return run_process._execute(task)


def _sweep(tmp_path, engine, num_seeds=3):
  expanded = grid.expand({'smoke': _BASE}, [], num_seeds)
  return side_by_side.sweep(expanded, tmp_path, engine, ('json',))


def test_runs_are_made_as_planned_and_never_more_at_a_time(tmp_path):
  engine = _Engine(2)
  plan = _sweep(tmp_path, engine, 5)
  assert engine.most == 2
  assert [task.run for task in engine.started] == [
    f'seed_{seed}' for seed in range(5)
  ]
  assert engine.started[1].config['dataset']['seed'] == 1
  assert engine.started[1].plugins == ('json',)
  assert plan_lib.read(tmp_path) == plan
  runs.check_all_ran(plan)
  assert not any(call[0] == 'terminate' for call in engine.calls)


def test_a_sweep_waits_for_workers_that_come_between_two_looks(tmp_path):
  looks = itertools.chain([0], itertools.repeat(2))

  class Engine(_Engine):
    capacity = property(lambda self: next(looks), lambda self, value: None)

  plan = _sweep(tmp_path, engine := Engine(2))
  assert [task.run for task in engine.started] == ['seed_0', 'seed_1', 'seed_2']
  runs.check_all_ran(plan)


@pytest.mark.parametrize(
  ('looks_with_one', 'num_seeds', 'num_told'), [((), 1, 0), ((10, 20), 3, 2)]
)
def test_a_sweep_ends_though_all_workers_have_gone(
  tmp_path, caplog, looks_with_one, num_seeds, num_told
):
  """They go as each run ends; some come back where there are more runs."""
  looks = itertools.count()

  class Engine(_Engine):
    @property
    def capacity(self):
      look = next(looks)
      assert look < 50, 'the sweep does not end'
      has_gone = self.started and not self.running
      return int(not has_gone or look in looks_with_one)

    @capacity.setter
    def capacity(self, value):
      pass

  engine = Engine(1)
  plan = _sweep(tmp_path, engine, num_seeds)
  assert len(engine.started) == num_seeds
  runs.check_all_ran(plan)
  told = [one.message for one in caplog.records]
  text = 'There is no worker; the sweep waits for one.'
  assert told.count(text) == num_told


def test_finished_runs_are_not_started(tmp_path, monkeypatch):
  monkeypatch.setattr(
    runs, 'is_finished', lambda config, folder: config.seed != 1
  )
  engine = _Engine(2)
  _sweep(tmp_path, engine)
  assert [task.run for task in engine.started] == ['seed_1']


@pytest.mark.parametrize(
  'outcome',
  [
    _failure(errors.PartitionError('184 wanted, 182 exist')),
    errors.RuntimeFailureError('184 wanted, 182 exist'),
  ],
)
def test_a_refused_or_lost_run_is_told_and_the_others_go_on(tmp_path, outcome):
  engine = _Engine(2, {1: outcome})
  plan = _sweep(tmp_path, engine)
  assert [run.error for run in plan.runs] == ['', '184 wanted, 182 exist', '']
  assert plan_lib.read(tmp_path) == plan
  assert len(engine.started) == 3


def test_a_run_that_cannot_be_started_is_told_and_the_others_go_on(tmp_path):
  engine = _Engine(2, {1: MemoryError()})
  plan = _sweep(tmp_path, engine)
  assert [run.error for run in plan.runs] == ['', 'no memory for a process', '']
  assert not engine.running


@pytest.mark.parametrize(
  ('outcome', 'kind', 'words'),
  [
    (
      _failure(errors.InfrastructureError('disk full')),
      errors.InfrastructureError,
      'disk full',
    ),
    (_failure(OSError(28, 'No space left')), OSError, 'No space left'),
    (_failure(ZeroDivisionError('nothing')), RuntimeError, 'in make\n'),
  ],
)
def test_a_failing_machine_or_a_bug_ends_all_runs(
  tmp_path, outcome, kind, words
):
  refused = errors.RuntimeFailureError('lost')
  engine = _Engine(3, {0: refused, 1: outcome})
  with pytest.raises(kind, match=words):
    _sweep(tmp_path, engine, 4)
  assert [task.run for task in engine.started] == [
    *('seed_0', 'seed_1', 'seed_2')
  ]
  assert not engine.running
  assert ('terminate', 2) in engine.calls
  assert plan_lib.read(tmp_path).runs[0].error == 'lost'


def test_all_are_asked_to_end_before_one_is_waited_for(tmp_path, monkeypatch):
  def interrupt(_):
    raise KeyboardInterrupt

  clock = types.SimpleNamespace(sleep=interrupt)
  monkeypatch.setattr(side_by_side, 'time', clock)
  engine = _Engine(2)
  with pytest.raises(KeyboardInterrupt):
    _sweep(tmp_path, engine)
  assert [call for call, _ in engine.calls] == [
    *('terminate', 'terminate', 'end', 'end')
  ]
  assert not engine.running


def test_an_unwanted_run_is_ended_and_not_settled(tmp_path):
  class Queue:
    num_rounds = 3
    settled, tasks = [], [run_process.Task(str(tmp_path), 'a', _BASE)]

    def take(self):
      return self.tasks.pop() if self.tasks else None

    def is_wanted(self, task):
      return False

    def settle(self, task, error):
      self.settled.append(task)

  engine = _Engine(1)
  side_by_side.execute(Queue(), engine)
  assert [call for call, _ in engine.calls] == ['terminate', 'end']
  assert not Queue.settled


@pytest.mark.parametrize(('parallel', 'threads'), [(1, 4), (3, 1), (8, 1)])
def test_processes_share_the_cores(monkeypatch, parallel, threads):
  monkeypatch.setattr(
    side_by_side.os, 'sched_getaffinity', lambda _: set(range(4))
  )
  monkeypatch.setattr(
    run_process, 'RunProcess', lambda task, num_threads: num_threads
  )
  engine = side_by_side.LocalProcesses(parallel)
  assert engine.capacity == parallel
  assert engine.start(None) == threads
