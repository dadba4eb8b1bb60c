"""The example calls the real program; Airflow itself is a stub."""

import importlib.util
import pathlib
import sys
import types

import pytest

from pipelines.publishing import staging
from tests.testing import programs

_FILE = (
  pathlib.Path(__file__).parents[2] / 'docs' / 'examples' / 'airflow_dag.py'
)


class _AirflowException(Exception):
  pass


class _AirflowFailException(_AirflowException):
  pass


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
    for module in (types.ModuleType('airflow'), decorators, exceptions):
      monkeypatch.setitem(sys.modules, module.__name__, module)

  def _dag(self, **arguments):
    self.dag_arguments = arguments
    return lambda function: function

  def _task(self, function):
    self.tasks.append(function)
    return lambda: None


@pytest.fixture
def airflow(monkeypatch):
  return _Airflow(monkeypatch)


@pytest.fixture
def module(airflow, launcher, monkeypatch, tmp_path):
  """The file, with its programs run by the launcher in a folder of the test."""
  spec = importlib.util.spec_from_file_location('airflow_dag', _FILE)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)

  def run(command, *, cwd, stdout, text):
    assert cwd == module.PROJECT
    assert command[:3] == [module.PYTHON, '-m', 'binaries.preprocess']
    return launcher.run(command[2], *command[3:])

  monkeypatch.setattr(
    module,
    'subprocess',
    types.SimpleNamespace(run=run, PIPE=module.subprocess.PIPE),
  )
  module.WORKDIR = str(tmp_path)
  return module


def test_dag_has_one_task_a_day(airflow, module):
  assert airflow.tasks == [module.preprocess]
  assert airflow.dag_arguments['schedule'] == '@daily'
  # Two runs at once would have to wait for each other.
  assert airflow.dag_arguments['max_active_runs'] == 1
  assert (programs.ROOT / module.CONFIG).exists()


def test_task_builds_the_dataset_of_its_date(module):
  built = module.preprocess(ds='2026-11-20')
  assert (built['status'], built['as_of']) == ('built', '2026-11-20')
  again = module.preprocess(ds='2026-11-20')
  assert (again['status'], again['version']) == ('unchanged', built['version'])


def test_infrastructure_is_tried_again(module, tmp_path):
  with staging.open_staging(tmp_path / 'dataset'):
    with pytest.raises(_AirflowException, match='another run') as caught:
      module.preprocess(ds='2026-11-20')
  assert not isinstance(caught.value, _AirflowFailException)


def test_bad_input_is_not(module):
  with pytest.raises(_AirflowFailException, match='as_of must be a date'):
    module.preprocess(ds='no date')
  module.CONFIG = 'configs/none.py'
  with pytest.raises(_AirflowFailException, match='exit code 1'):
    module.preprocess(ds='2026-11-20')
