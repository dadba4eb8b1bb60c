import json

import pytest


@pytest.mark.verify
def test_datasets_are_built_and_read(measured, tmp_path):
  out = tmp_path / 'rows.json'
  printed = measured(
    'pipeline',
    *('--side=4', '--examples=6000', '--clients=1000'),
    *('--workers=1', '--dask_workers=1', f'--out={out}'),
  )
  rows = json.loads(out.read_text())
  assert [json.loads(line) for line in printed.splitlines()] == rows
  assert [(row['what'], row.get('engine')) for row in rows] == [
    ('build', 'local'),
    ('build', 'dask'),
    ('read', None),
  ]
  for row in rows:
    assert row['peak_memory_mib'] > 20  # More than a bare interpreter.
    if row['what'] == 'build':
      # A thousand test examples are read besides.
      assert row['num_examples'] == 6 * row['num_clients']
      expected = (row['num_examples'] + 1000) / row['seconds']
      assert row['examples_per_second'] == pytest.approx(expected, rel=0.01)
    else:
      assert 0 < row['one_client_ms'] < row['cohort_of_100_ms']
