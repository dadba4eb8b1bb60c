"""The example DAG with a stub of Airflow."""

import importlib.util
import subprocess
import sys
import types

import pytest

from tests.testing import fake_nightly, programs

_FILE = programs.ROOT / 'docs' / 'examples' / 'airflow_dag.py'
_STEPS = ['dataset', 'drift', 'train', 'gate', 'release']


class _AirflowException(Exception):
  pass


class _AirflowFailException(_AirflowException):
  pass


class _AirflowSkipException(_AirflowException):
  pass


class _Task:
  """A task with the tasks that follow it."""

  def __init__(self, task_id, function, arguments):
    self.task_id, self.function, self.arguments = task_id, function, arguments
    self.next = []

  def __rshift__(self, other):
    self.next.append(other.task_id)


class _Airflow:
  """What the file takes from Airflow; notes what it is given."""

  def __init__(self, monkeypatch):
    self.dag_arguments = None
    self.tasks = []
    decorators = types.ModuleType('airflow.decorators')
    decorators.dag, decorators.task = self._dag, self._task
    exceptions = types.ModuleType('airflow.exceptions')
    exceptions.AirflowException = _AirflowException
    exceptions.AirflowFailException = _AirflowFailException
    exceptions.AirflowSkipException = _AirflowSkipException
    for module in (types.ModuleType('airflow'), decorators, exceptions):
      monkeypatch.setitem(sys.modules, module.__name__, module)

  def _dag(self, **arguments):
    self.dag_arguments = arguments
    return lambda function: function

  def _task(self, *, task_id):
    def make(function):
      def call(*arguments):
        self.tasks.append(_Task(task_id, function, arguments))
        return self.tasks[-1]

      return call

    return make


@pytest.fixture
def airflow(monkeypatch):
  return _Airflow(monkeypatch)


@pytest.fixture
def module(airflow, tmp_path):
  """The file, with paths of the test."""
  spec = importlib.util.spec_from_file_location('airflow_dag', _FILE)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  fake_nightly.write(tmp_path / 'project')
  module.PROJECT = str(tmp_path / 'project')
  module.PYTHON = sys.executable
  module.WORKDIR = str(tmp_path / 'work')
  return module


def test_a_task_for_each_step_in_their_order(airflow, module):
  assert [task.task_id for task in airflow.tasks] == _STEPS
  assert [task.next for task in airflow.tasks] == [
    *([step] for step in _STEPS[1:]),
    [],
  ]
  for task in airflow.tasks:
    assert (task.function, task.arguments) == (
      module.run_until,
      (task.task_id,),
    )
  assert airflow.dag_arguments['schedule'] == '@daily'
  # Two runs at once would have to wait for each other.
  assert airflow.dag_arguments['max_active_runs'] == 1
  assert (programs.ROOT / module.CONFIG).exists()


def test_a_task_continues_the_night_of_its_date(module, tmp_path, capsys):
  fake_nightly.plan(tmp_path / 'work', {})
  assert module.run_until('drift', ds='2026-11-20') == {
    'status': 'done',
    'as_of': '2026-11-20',
  }
  assert fake_nightly.calls(tmp_path / 'work') == ['2026-11-20 drift']
  assert capsys.readouterr().out == 'I1123 nightly: 2026-11-20 drift\n'


@pytest.mark.parametrize(
  ('code', 'kind', 'words'),
  [
    (75, _AirflowException, '^disk is full$'),
    (1, _AirflowFailException, '^exit code 1: E1123 nightly: bad raw data$'),
    (3, _AirflowFailException, '^NOT APPROVED.*: label_shift is 0.5$'),
    ('no_new_data', _AirflowSkipException, '^2026-11-20 has no new data$'),
  ],
)
def test_exit_codes(module, tmp_path, code, kind, words):
  fake_nightly.plan(tmp_path / 'work', {'2026-11-20': {'dataset': [code]}})
  with pytest.raises(_AirflowException, match=words) as caught:
    module.run_until('dataset', ds='2026-11-20')
  assert type(caught.value) is kind


def test_the_program_ends_with_its_task(module, monkeypatch, tmp_path):
  """Airflow ends a task by an exception in it."""
  program = tmp_path / 'project' / 'binaries' / 'nightly.py'
  program.write_text(
    'import sys, time\nprint("pid", flush=True, file=sys.stderr)\n'
    'time.sleep(600)\n'
  )
  started = []
  popen = subprocess.Popen

  def start(*arguments, **options):
    started.append(popen(*arguments, **options))
    return started[-1]

  def interrupt(*arguments, **options):
    raise KeyboardInterrupt

  monkeypatch.setattr(module.subprocess, 'Popen', start)
  monkeypatch.setattr(module, 'print', interrupt, raising=False)
  with pytest.raises(KeyboardInterrupt):
    module.run_until('train', ds='2026-11-20')
  assert started[0].returncode == -15
