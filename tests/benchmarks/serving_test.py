import json
import os
import subprocess
import sys

import pytest

from tests.testing import programs


@pytest.mark.verify
def test_server_is_measured_and_nothing_is_left(tmp_path):
  out, temp = tmp_path / 'row.json', tmp_path / 'tmp'
  temp.mkdir()
  program = subprocess.run(
    [
      *(sys.executable, '-m', 'benchmarks.serving'),
      *('--clients=300', '--seconds=2', f'--out={out}'),
    ],
    cwd=programs.ROOT,
    env={**os.environ, 'TMPDIR': str(temp)},
    capture_output=True,
    text=True,
    timeout=300,
  )
  assert program.returncode == 0, program.stderr
  row = json.loads(out.read_text())
  assert json.loads(program.stdout) == row
  # 300 states of 9,610 weights.
  assert 11 < row['bundle_mib'] < 12
  # Each client at most once; each kind as often as the others.
  assert 0 < row['new_requests'] <= 300
  assert (
    row['new_requests'] == row['known_requests'] == row['resident_requests']
  )
  assert row['new_ratio'] * row['resident_p50_ms'] == pytest.approx(
    row['new_p50_ms']
  )
  # More than TensorFlow alone takes.
  assert row['server_peak_mib'] > 200
  assert row['large_requests_peak_mib'] > 200
  assert not os.listdir(temp)
