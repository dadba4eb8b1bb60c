import os
import subprocess
import sys

import pytest

from tests.testing import programs

_PATIENCE_SECONDS = 600


@pytest.fixture
def measured(tmp_path):
  """Runs a program of `benchmarks` to its end; returns what it printed.

  Fails if the program does, or leaves something in the folder for temporary files.
  """
  temp = tmp_path / 'temporary'
  temp.mkdir()

  def run(module: str, *arguments: str) -> str:
    program = subprocess.run(
      [sys.executable, '-m', f'benchmarks.{module}', *arguments],
      cwd=programs.ROOT,
      env={**os.environ, 'TMPDIR': str(temp), 'TF_CPP_MIN_LOG_LEVEL': '3'},
      capture_output=True,
      text=True,
      timeout=_PATIENCE_SECONDS,
    )
    assert program.returncode == 0, program.stderr
    assert not os.listdir(temp)
    return program.stdout

  return run
