import json

import pytest


@pytest.mark.verify
def test_server_is_measured(measured, tmp_path):
  out = tmp_path / 'row.json'
  printed = measured('serving', '--clients=300', '--seconds=2', f'--out={out}')
  row = json.loads(out.read_text())
  assert json.loads(printed) == row
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
