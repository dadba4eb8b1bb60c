"""Packed cases, measured in the environment of the worker as anywhere else."""

import importlib
import json
import subprocess
import sys
import types

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import algorithms, workload
from benchmarks.accelerator import cases, pack, report
from tests.testing import accelerator, programs
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
  size = case.workload
  steps = size.num_clients * size.num_examples
  # Forward and backward, at least two operations a weight each.
  assert measured['flops'] > steps * 2 * 2 * 64 * size.num_classes
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


# A program: a file of weights and inputs, and one for the logits.
_BY_HAND = """
import sys
import numpy as np
from benchmarks.contenders import jax_models
given, found = sys.argv[1:]
weights = dict(np.load(given))
np.save(found, jax_models.logits('lenet', weights, weights.pop('x')))
"""


@pytest.mark.verify
@accelerator.needed
def test_lenet_by_hand_is_the_model(tmp_path):
  """On small images, with weights of which none is as it starts."""
  built = algorithms.build_model(
    workload.Workload(model='lenet', input_shape=(16, 16, 3), num_classes=3)
  )
  generator = np.random.default_rng(0)
  weights = {
    name: leaf.numpy() + 0.1 * generator.normal(size=leaf.shape).astype('f')
    for name, leaf in built.initialize(tf.constant([0, 1])).items()
  }
  x = generator.normal(size=(4, 16, 16, 3)).astype('f')
  np.savez(tmp_path / 'given.npz', x=x, **weights)
  subprocess.run(
    [
      *(pjrt_config.PjrtConfig().python_path, '-c', _BY_HAND),
      *(tmp_path / 'given.npz', tmp_path / 'found.npy'),
    ],
    check=True,
    cwd=programs.ROOT,
    timeout=_PATIENCE_SECONDS,
  )
  expected = built.apply(weights, x).numpy()
  np.testing.assert_allclose(
    np.load(tmp_path / 'found.npy'),
    expected,
    atol=1e-4 * np.abs(expected).max(),
  )


@pytest.fixture(name='measure')
def _measure_module(monkeypatch):
  """The measuring module, whose worker needs another jax than is here."""
  monkeypatch.setitem(sys.modules, 'worker', types.ModuleType('worker'))
  return importlib.import_module('benchmarks.accelerator.measure')


# Two clusters, of which the second one has no clients.
_CASE = types.SimpleNamespace(
  described={'result': {'weight': 2, 'value': {'w': 0, 'b': 1}}}
)
_BEFORE = {'w': np.float32([[1, 2], [3, 4]]), 'b': np.float32([5, 6])}
_BY_HAND_AFTER = {'w': np.float32([[2, 4], [3, 4]]), 'b': np.float32([0, 6])}


@pytest.mark.parametrize(
  ('sums', 'expected'),
  [
    (([[4, 8], [0, 0]], [0, 0], [2, 0]), 0),
    # A sum that is lost: the bias is to become 0, the weights are not.
    (([[0, 0], [0, 0]], [0, 0], [2, 0]), 4 / 5),
    (([[0, 0], [0, 0]], [0, 0], [0, 0]), 1),
    (([[4, 8], [0, 0]], [np.nan, 0], [2, 0]), np.nan),
    (([[np.nan, 8], [0, 0]], [0, 0], [2, 0]), np.nan),
    (([[4, 8], [0, 0]], [0, 0], [np.nan, 0]), np.nan),
  ],
)
def test_lost_results_and_nan_are_differences(measure, sums, expected):
  results = [np.float32(one) for one in sums]
  means = measure._means(_CASE, results, _BEFORE)
  found = measure._difference(means, _BY_HAND_AFTER, _BEFORE)
  np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_nan_in_any_array_is_a_relative_difference(measure):
  fine, broken = np.float32([1, 2]), np.float32([1, np.nan])
  assert measure._relative([fine, fine], [fine, fine]) == 0
  assert measure._relative([fine, fine + 1], [fine, fine]) == 0.5
  for one in ([fine, broken], [broken, fine]):
    assert np.isnan(measure._relative(one, [fine, fine]))
    assert np.isnan(measure._relative([fine, fine], one))


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
