import json
import os
import subprocess
import sys

import pytest

from tests.testing import programs


@pytest.mark.verify
def test_datasets_are_built_and_read_and_nothing_is_left(tmp_path):
  out, temp = tmp_path / 'rows.json', tmp_path / 'tmp'
  temp.mkdir()
  program = subprocess.run(
    [
      *(sys.executable, '-m', 'benchmarks.pipeline', '--side=4'),
      *(
        '--examples=2500',
        '--clients=1000',
        '--workers=1',
        '--dask_workers=1',
        f'--out={out}',
      ),
    ],
    cwd=programs.ROOT,
    env={**os.environ, 'TMPDIR': str(temp)},
    capture_output=True,
    text=True,
    timeout=120,
  )
  assert program.returncode == 0, program.stderr
  rows = json.loads(out.read_text())
  assert [json.loads(line) for line in program.stdout.splitlines()] == rows
  assert [(row['what'], row.get('engine')) for row in rows] == [
    ('build', 'local'),
    ('build', 'dask'),
    ('read', None),
  ]
  for row in rows:
    assert row['peak_memory_mib'] > 20  # More than a bare interpreter.
    if row['what'] == 'build':
      # A thousand test examples are read besides.
      assert row['num_examples'] == 2 * row['num_clients']
      expected = (row['num_examples'] + 1000) / row['seconds']
      assert row['examples_per_second'] == pytest.approx(expected, rel=0.01)
    else:
      assert 0 < row['one_client_ms'] < row['cohort_of_100_ms']
  assert not os.listdir(temp)
