"""Tests of the doctor, as a person runs it."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.testing import patience, programs


def _doctor(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
  return subprocess.run(
    [sys.executable, '-m', 'binaries.doctor', *arguments],
    cwd=programs.ROOT,
    env={**os.environ, **environment},
    capture_output=True,
    text=True,
    timeout=300,
  )


@pytest.mark.verify
def test_healthy_machine(tmp_path):
  done = _doctor('--json', f'--workdir={tmp_path}')
  results = {one['name']: one for one in json.loads(done.stdout)}
  failed = {
    name: one for name, one in results.items() if one['status'] == 'fail'
  }
  assert not failed
  assert done.returncode == 0
  assert {
    'python',
    'packages',
    'tensorflow',
    'gpu',
    'accelerator',
    'tff',
  } <= set(results)


def test_broken_tensorflow_is_reported_without_a_trace(tmp_path):
  # As if the processor lacked an instruction.
  (tmp_path / 'tensorflow.py').write_text(
    'import os\nos.kill(os.getpid(), 4)\n'
  )
  done = _doctor(PYTHONPATH=str(tmp_path))
  assert done.returncode == 1
  assert 'import: killed by signal 4 (Illegal instruction)' in done.stdout
  assert 'while importing TFF' in done.stdout
  assert 'Traceback' not in done.stdout + done.stderr


@pytest.mark.parametrize('sent', [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_no_process(tmp_path, sent):
  pid = tmp_path / 'pid'
  (tmp_path / 'tensorflow.py').write_text(
    'import os, pathlib, time\n'
    f'pathlib.Path({str(pid)!r}).write_text(str(os.getpid()))\n'
    'time.sleep(300)\n'
  )
  doctor = subprocess.Popen(
    [sys.executable, '-m', 'binaries.doctor'],
    cwd=programs.ROOT,
    env={**os.environ, 'PYTHONPATH': str(tmp_path)},
    stderr=subprocess.PIPE,
    text=True,
  )
  child = int(
    patience.until(lambda: pid.exists() and pid.read_text(), alive=[doctor])
  )
  doctor.send_signal(sent)
  _, said = doctor.communicate(timeout=60)
  assert doctor.returncode == 128 + sent
  assert 'Traceback' not in said
  with pytest.raises(ProcessLookupError):
    os.kill(child, 0)


def test_wrong_use():
  done = _doctor('please')
  assert done.returncode != 0
  assert "unexpected arguments: ['please']" in done.stdout + done.stderr
