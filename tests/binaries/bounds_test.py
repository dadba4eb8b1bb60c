"""The bounds of theorems beside runs, as a program."""

import numpy as np
import pytest

from configs.pfedkm import regressions
from tests.testing import csv_files, raw_data
from tff_algos.experiments import datasets, experiment


@pytest.mark.verify
def test_the_program_writes_a_row_for_every_checkpoint(
  trained_regressions, launcher
):
  _, folder = trained_regressions
  before = raw_data.file_bytes(folder)
  program = launcher.run(
    'binaries.bounds',
    '--config=configs/fed_soft/synthetic.py:smoke',
    f'--workdir={folder}',
    '--config.algorithm.local_training.num_local_epochs=2',
    '--config.runtime.name=debug',
  )
  assert program.returncode == 0, program.stderr
  assert not program.complaints
  assert not program.temporary_files() and not program.processes()
  rows = csv_files.read(folder / 'evaluation' / 'bounds.csv')
  assert [row['round'] for row in rows] == ['0', '1', '2']
  for row in rows:
    # What the theorems say, with the assumptions that they make.
    assert 0 < float(row['theorem_2']) <= 1
    assert 0 < float(row['theorem_3_safe']) < float(row['theorem_3'])
    assert row['assumption_4'] == str(float(row['alpha_0']) > 0)
    assert abs(float(row['max_gap']) - np.sqrt(165)) < 1
    assert 0 < float(row['misassignment']) < 1
    assert float(row['floor']) == 0, 'every client holds both sources'
    assert float(row['mixing_error']) < float(row['estimation_error'])
    # 10:90 and lambda 1: (1 - 0.4706) / 2, but for sampling.
    assert abs(float(row['mixing_error']) - 0.265) < 0.05
  table, _ = program.stdout.split('\n\n')
  header, *lines = table.splitlines()
  assert header.split()[:3] == ['round', 'theorem_2', 'theorem_3']
  assert [line.split()[0] for line in lines] == ['0', '1', '2']
  assert abs(float(lines[2].split()[1]) - float(rows[2]['theorem_2'])) < 1e-2
  after = raw_data.file_bytes(folder)
  assert set(after) - set(before) <= {'evaluation/bounds.csv'}
  assert all(after[name] == content for name, content in before.items())


@pytest.mark.verify
def test_the_program_writes_a_row_for_every_number_of_rounds(
  tmp_path, launcher
):
  config = experiment.parse(regressions.get_config('smoke'))
  datasets.build(config.dataset, tmp_path)
  before = raw_data.file_bytes(tmp_path)
  program = launcher.run(
    'binaries.bounds',
    '--config=configs/pfedkm/regressions.py:smoke',
    f'--workdir={tmp_path}',
    '--config.runtime.name=debug',
  )
  assert program.returncode == 0, program.stderr
  assert not program.complaints
  assert not program.temporary_files() and not program.processes()
  rows = [
    {name: float(value) for name, value in row.items()}
    for row in csv_files.read(tmp_path / 'evaluation' / 'bounds.csv')
  ]
  assert [row['rounds'] for row in rows] == [1, 2, 3]
  for row in rows:
    assert row['learning_rate_excess'] < 1
    assert 0 < row['mean_squared_gradient'] <= row['theorem'] <= row['bound']
    # 20 steps, each of which keeps about 1 - 0.06 * 16 of the error.
    assert row['prox_error'] < 1e-4
    parts = ('start', 'moved_models', 'moved_gradients', 'drift', 'floor')
    np.testing.assert_allclose(row['bound'], sum(row[part] for part in parts))
  table, _ = program.stdout.split('\n\n')
  header, *lines = table.splitlines()
  assert header.split()[:3] == ['rounds', 'mean_squared_gradient', 'bound']
  assert [line.split()[0] for line in lines] == ['1', '2', '3']
  after = raw_data.file_bytes(tmp_path)
  assert set(after) - set(before) == {'evaluation/bounds.csv'}
  assert all(after[name] == content for name, content in before.items())
