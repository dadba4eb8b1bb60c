"""What is shown of what TensorFlow's libraries write while they are loaded."""

import os
import subprocess
import sys

import pytest

from binaries import quiet_import
from tests.testing import programs

_NOISE = b'E cuda_dnn.cc:9342] Unable to register cuDNN factory: Attempting\n'
# A package in place of TensorFlow, which takes seconds: it writes to stderr as
# C++ does, and then fails if asked to.
_TENSORFLOW = f"""
import os
os.write(2, {_NOISE!r} + b'a real error' + b'\\n')
if 'FAILS' in os.environ:
  raise ImportError('no such library')
level = os.environ['TF_CPP_MIN_LOG_LEVEL']
"""
_PROGRAM = """
import importlib.util
import os
import sys
from binaries import quiet_import
quiet_import.install()
importlib.util.find_spec('tensorflow')  # As libraries ask whether it is there.
import tensorflow
later = os.environ['TF_CPP_MIN_LOG_LEVEL']
sys.stderr.write(f'level {tensorflow.level}, of child processes {later}')
"""


@pytest.fixture(name='run')
def make_run(tmp_path):
  (tmp_path / 'tensorflow.py').write_text(_TENSORFLOW)
  path = os.pathsep.join([str(tmp_path), str(programs.ROOT)])
  inherited = {
    name: value
    for name, value in os.environ.items()
    if name != 'TF_CPP_MIN_LOG_LEVEL'
  }

  def run(**environment):
    return subprocess.run(
      [sys.executable, '-c', _PROGRAM],
      env={**inherited, 'PYTHONPATH': path, **environment},
      capture_output=True,
    )

  return run


def test_known_noise_is_removed_and_other_errors_are_shown(run):
  program = run()
  assert program.returncode == 0
  assert program.stderr == b'a real error\nlevel 2, of child processes 3'


def test_a_failing_import_shows_what_was_written(run):
  program = run(FAILS='1')
  assert program.returncode == 1
  assert program.stderr.startswith(b'a real error\nTraceback')
  assert b'no such library' in program.stderr


def test_the_users_own_level_decides(run):
  program = run(TF_CPP_MIN_LOG_LEVEL='0')
  assert (
    program.stderr == _NOISE + b'a real error\nlevel 0, of child processes 0'
  )


def test_what_is_written_by_an_interrupted_block_is_shown(capfd):
  with pytest.raises(KeyboardInterrupt), quiet_import.filtered_stderr():
    os.write(2, b'words\n' + _NOISE)
    raise KeyboardInterrupt
  os.write(2, b'later\n')
  assert capfd.readouterr().err == 'words\nlater\n'
