"""The bounds of FedSoft's theorems, as a program."""

import csv
import dataclasses

import numpy as np
import pytest

from binaries import bounds
from configs.fed_soft import digits
from tests.testing import raw_data
from tff_algos.algorithms import registry as algorithms
from tff_algos.core import errors
from tff_algos.experiments import experiment


@pytest.mark.slow
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
  with open(folder / 'evaluation' / 'bounds.csv', newline='') as file:
    rows = list(csv.DictReader(file))
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
  header, *lines = program.stdout.splitlines()
  assert header.split()[:3] == ['round', 'theorem_2', 'theorem_3']
  assert [line.split()[0] for line in lines] == ['0', '1', '2']
  assert abs(float(lines[2].split()[1]) - float(rows[2]['theorem_2'])) < 1e-2
  after = raw_data.file_bytes(folder)
  assert set(after) - set(before) <= {'evaluation/bounds.csv'}
  assert all(after[name] == content for name, content in before.items())


@pytest.mark.slow
def test_as_many_clusters_as_sources_are_needed(trained_regressions):
  config, folder = trained_regressions
  options = dataclasses.replace(config.algorithm.options, num_clusters=3)
  three = dataclasses.replace(
    config, algorithm=config.algorithm._replace(options=options)
  )
  with pytest.raises(errors.ConfigError, match='num_clusters is 3, but .* 2 s'):
    bounds.compare(three, folder)


@pytest.mark.parametrize('algorithm', ['fed_soft', 'ifca'])
def test_other_experiments_are_told_what_it_is_for(tmp_path, algorithm):
  config = experiment.parse(digits.get_config('smoke'))
  named = algorithms.parse_config({'name': algorithm})
  other = dataclasses.replace(config, algorithm=named)
  with pytest.raises(errors.ConfigError, match='linear_regression') as caught:
    bounds.compare(other, tmp_path)
  assert repr(algorithm) in str(caught.value)
  assert 'configs/fed_soft/synthetic.py:10_90' in str(caught.value)
  assert not list(tmp_path.iterdir())


def test_a_cell_that_does_not_apply_is_empty():
  """Without proximal term there is no Theorem 4."""
  row = dict.fromkeys(bounds._PRINTED, 1.23456)
  del row['rho']
  header, line = bounds.table([row]).splitlines()
  assert len(header) == len(line)
  assert line.split() == ['1.23'] * (len(row))
