"""The example DAG with a stub of Airflow, and with Airflow itself if given."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import types

import pytest

from tests.testing import fake_nightly, programs

_FILE = programs.ROOT / 'docs' / 'examples' / 'airflow_dag.py'
_AIRFLOW_PYTHON = os.environ.get('AIRFLOW_PYTHON')
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


@pytest.fixture(scope='module')
def real(tmp_path_factory):
  """Runs `airflow` with the example and the stand-in for binaries.nightly."""
  if not _AIRFLOW_PYTHON:
    pytest.skip('AIRFLOW_PYTHON names no Python with Airflow: docs/airflow.md')
  home = tmp_path_factory.mktemp('airflow')
  fake_nightly.write(home / 'project')
  text = _FILE.read_text()
  for name, value in (
    ('PROJECT', home / 'project'),
    ('PYTHON', _AIRFLOW_PYTHON),
    ('WORKDIR', home / 'work'),
  ):
    text = re.sub(
      rf'^{name} = .*', f'{name} = {str(value)!r}', text, flags=re.M
    )
  text = text.replace('minutes=10', 'seconds=1')
  (home / 'dags').mkdir()
  (home / 'dags' / 'airflow_dag.py').write_text(text)
  environment = {
    name: value for name, value in os.environ.items() if 'PYTHON' not in name
  } | {
    'AIRFLOW_HOME': str(home),
    'AIRFLOW__CORE__LOAD_EXAMPLES': 'False',
    'AIRFLOW__CORE__UNIT_TEST_MODE': 'False',
  }

  def run(*arguments):
    return subprocess.run(
      [_AIRFLOW_PYTHON, '-m', 'airflow', *arguments],
      env=environment,
      cwd=home,
      capture_output=True,
      text=True,
      timeout=300,
    )

  migrated = run('db', 'migrate')
  assert migrated.returncode == 0, migrated.stderr
  return run, home / 'work'


def _states(run, date):
  """Returns task -> state of the run of a date."""
  found = run(
    *('tasks', 'states-for-dag-run', 'every_night'),
    *(f'{date}T00:00:00+00:00', '--output', 'json'),
  )
  rows = json.loads(found.stdout[found.stdout.index('[{') :])
  return {row['task_id']: row['state'] for row in rows}


@pytest.mark.slow
def test_airflow_imports_the_example(real):
  run, _ = real
  assert 'No data found' in run('dags', 'list-import-errors').stdout
  assert 'every_night' in run('dags', 'list').stdout


@pytest.mark.slow
@pytest.mark.parametrize(
  ('date', 'codes', 'states', 'num_calls'),
  [
    ('2026-11-20', {}, ['success'] * 5, 5),
    ('2026-11-21', {'train': [75, 75]}, ['success'] * 5, 7),
    (
      '2026-11-22',
      {'dataset': [1]},
      ['failed', *['upstream_failed'] * 4],
      1,
    ),
    (
      '2026-11-23',
      {'gate': [3]},
      [*['success'] * 3, 'failed', 'upstream_failed'],
      4,
    ),
    ('2026-11-24', {'dataset': ['no_new_data']}, ['skipped'] * 5, 1),
  ],
)
def test_airflow_runs_a_night(real, date, codes, states, num_calls):
  run, workdir = real
  fake_nightly.plan(workdir, {date: codes})
  run('dags', 'test', 'every_night', date)
  assert _states(run, date) == dict(zip(_STEPS, states, strict=True))
  made = [call for call in fake_nightly.calls(workdir) if date in call]
  assert len(made) == num_calls
