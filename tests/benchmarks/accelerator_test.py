"""Packed cases, measured in the environment of the worker as anywhere else."""

import json
import subprocess

import pytest

from benchmarks.accelerator import cases, pack, report
from tests.testing import accelerator
from tff_algos.runtimes.pjrt import pjrt_config

_PATIENCE_SECONDS = 600


def _measure(name, folder, *arguments):
  """Packs a case, and runs the file with nothing of ours to import."""
  path = folder / f'{name}.pyz'
  pack.pack(name, path)
  out = folder / 'out' / f'{name}.json'
  out.parent.mkdir(exist_ok=True)
  subprocess.run(
    [
      *(pjrt_config.PjrtConfig().python_path, '-I', path),
      *(f'--out={out}', *arguments),
    ],
    check=True,
    cwd=out.parent,
    timeout=_PATIENCE_SECONDS,
  )
  return json.loads(out.read_text())


@pytest.mark.verify
@accelerator.needed
@pytest.mark.parametrize(
  'name', [name for name in cases.CASES if name.startswith('tiny')]
)
def test_the_runtime_and_the_rounds_by_hand_agree(name, tmp_path):
  measured = _measure(name, tmp_path, '--rounds=2', '--peak_tflops=0.5')
  assert (measured['case'], measured['platform']) == (name, 'cpu')
  assert measured['peak_flops'] == 5e11
  case = cases.CASES[name]
  workload = case.workload
  steps = workload.num_clients * workload.num_examples
  # Forward and backward, at least two operations a weight each.
  assert measured['flops'] > steps * 2 * 2 * 64 * workload.num_classes
  forms = [row['form'] for row in measured['rows']]
  assert forms == [
    *(f'pjrt ({form})' for form in case.forms),
    'by hand (scan)',
    *(f'by hand (vmap, {block})' for block in case.blocks[1:]),
  ]
  for row in measured['rows']:
    assert len(row['samples']) == 2
    assert 0 < min(row['samples']) <= row['seconds']
    assert row['compile_seconds'] > 0
    assert row['share_of_peak'] == pytest.approx(
      measured['flops'] / row['seconds'] / 5e11
    )
  for row in measured['rows'][: len(case.forms)]:
    assert row['difference'] < 1e-4
  printed = report.table([measured])
  assert printed.count('(limit 1.1') == 1
  assert f'| {name} | cpu | by hand (scan) |' in printed


def test_a_file_that_would_be_too_large_is_refused(tmp_path, monkeypatch):
  monkeypatch.setattr(pack, 'MAX_BYTES', 10_000)
  with pytest.raises(ValueError, match='tiny_lin would take .* MiB'):
    pack.pack('tiny_lin', tmp_path / 'case.pyz')
  assert not list(tmp_path.iterdir())


def test_the_table_says_what_is_missed_and_what_the_peak_is():
  row = {
    'compile_seconds': 1.0,
    'peak_bytes': 3 << 20,
    'flops_per_second': 2e9,
    'share_of_peak': 0.25,
    'difference': 1e-6,
  }
  measured = {
    'case': 'mlp',
    'device': 'H100',
    'peak_is_measured': True,
    'rows': [
      {**row, 'form': 'pjrt (vectorized, 2)', 'seconds': 0.24},
      {**row, 'form': 'pjrt (loop, 2)', 'seconds': 0.5},
      {**row, 'form': 'by hand (scan)', 'seconds': 0.2},
    ],
  }
  *_, first, second, third = report.table([measured]).splitlines()
  assert '| 1.20 (limit 1.1, missed) | 1.0 | 3 | 2.0 | 25.0%* |' in first
  assert '| 2.50 |' in second
  assert '| 1.00 |' in third
