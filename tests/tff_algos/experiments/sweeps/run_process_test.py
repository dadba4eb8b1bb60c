"""The process of a run: its answer, its loss, its end."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

from configs.fed_soft import synthetic
from tests.testing import patience
from tff_algos.core import config as config_lib
from tff_algos.core import errors
from tff_algos.experiments import experiment
from tff_algos.experiments.sweeps import run_process, runs

_CONFIG = experiment.parse(synthetic.get_config('smoke'))


@pytest.fixture
def _small(monkeypatch):
  monkeypatch.setattr(run_process, '_PROGRAM', 'tests.testing.small_run')


def _start(tmp_path, **config):
  task = run_process.Task(str(tmp_path), 'cell/seed_0', config)
  return run_process.RunProcess(task, 1)


def _wait(process):
  text = patience.until(lambda: process.poll())
  process.end()
  return text


def test_answer_and_warnings_of_a_process(tmp_path, _small, caplog):
  text = _wait(_start(tmp_path))
  assert run_process.read_failure(text) is None
  assert 'cell/seed_0: slow disk' in caplog.text
  assert 'all is well' not in caplog.text


def test_a_long_stack_trace_arrives(tmp_path, _small):
  text = 'x' * run_process._LONGEST_ANSWER
  assert _wait(_start(tmp_path, answer=text)) == text


def test_a_killed_process_is_a_lost_one(tmp_path, _small):
  process = _start(tmp_path, dies=True)
  with pytest.raises(errors.RuntimeFailureError, match='SIGKILL'):
    _wait(process)


def test_a_process_that_ends_before_it_reads_its_task(tmp_path, monkeypatch):
  """As one whose imports fail: the system resets its connection."""
  monkeypatch.setattr(run_process, '_PROGRAM', 'this')
  with pytest.raises(errors.RuntimeFailureError, match='exit code 0. It said'):
    _wait(_start(tmp_path))


def test_terminate_lets_it_save_and_end_waits(tmp_path, _small):
  process = _start(tmp_path, sleeps=True)
  patience.until(lambda: (tmp_path / 'cell/seed_0/sleeps').exists(), 240)
  process.terminate()
  process.terminate()
  process.end()
  assert (tmp_path / 'cell/seed_0/saved').exists()
  assert not psutil.pid_exists(int((tmp_path / 'cell/seed_0/pid').read_text()))


_OWNER = """
import sys, time
from tff_algos.experiments.sweeps import run_process
run_process._PROGRAM = 'tests.testing.small_run'
task = run_process.Task(sys.argv[1], 'run', {'sleeps': True})
process = run_process.RunProcess(task, 1)
time.sleep(120)
"""


@pytest.mark.verify
def test_it_ends_with_its_owner_that_is_killed(tmp_path):
  owner = subprocess.Popen([sys.executable, '-c', _OWNER, str(tmp_path)])
  try:
    patience.until(lambda: (tmp_path / 'run' / 'sleeps').exists(), 240)
  finally:
    owner.send_signal(signal.SIGKILL)
    owner.wait()
  pid = int((tmp_path / 'run' / 'pid').read_text())
  patience.until(lambda: patience.is_gone(pid), 240)


def _execute(tmp_path, monkeypatch, make, plugins=()):
  monkeypatch.setattr(runs, 'make', make)
  config = config_lib.to_dict(_CONFIG)
  task = run_process.Task(str(tmp_path), 'run', config, plugins)
  return run_process.read_failure(run_process._execute(task))


def test_the_run_is_that_of_the_task(tmp_path, monkeypatch):
  seen = []
  make = lambda *given, **_: seen.append(given[:3])
  assert _execute(tmp_path, monkeypatch, make) is None
  assert seen == [(_CONFIG, tmp_path / 'run', tmp_path / 'datasets')]


@pytest.mark.parametrize(
  'error',
  [
    errors.PartitionError('184 wanted, 182 exist'),
    errors.InfrastructureError('disk full'),
    OSError(28, os.strerror(28)),
  ],
)
def test_user_errors_keep_their_kind(tmp_path, monkeypatch, error):
  def make(*_, **__):
    raise error

  found = _execute(tmp_path, monkeypatch, make)
  assert type(found) is type(error)
  assert found.args == error.args


def test_a_bug_keeps_its_stack_trace(tmp_path, monkeypatch):
  def make(*_, **__):
    raise ZeroDivisionError('by nothing')

  found = _execute(tmp_path, monkeypatch, make)
  assert type(found) is RuntimeError
  assert 'in make\n' in str(found)
  assert 'ZeroDivisionError: by nothing' in str(found)


def test_plugins_are_loaded_first(tmp_path, monkeypatch):
  make = lambda *_, **__: None
  found = _execute(tmp_path, monkeypatch, make, ('no_such_module',))
  assert isinstance(found, errors.ConfigError)
  assert 'no_such_module' in str(found)
