"""The bound of pFedKM's theorem, as a program."""

import csv
import dataclasses

import numpy as np
import pytest

from binaries import envelope_bounds, preprocess
from configs.fed_soft import digits
from configs.pfedkm import regressions
from tests.testing import raw_data
from tff_algos.algorithms import registry as algorithms
from tff_algos.core import errors
from tff_algos.experiments import experiment


@pytest.mark.slow
def test_the_program_writes_a_row_for_every_number_of_rounds(
  tmp_path, launcher
):
  config = experiment.parse(regressions.get_config('smoke'))
  preprocess.preprocess(config.dataset, tmp_path)
  before = raw_data.file_bytes(tmp_path)
  program = launcher.run(
    'binaries.envelope_bounds',
    '--config=configs/pfedkm/regressions.py:smoke',
    f'--workdir={tmp_path}',
    '--config.runtime.name=debug',
  )
  assert program.returncode == 0, program.stderr
  assert not program.complaints
  assert not program.temporary_files() and not program.processes()
  with open(tmp_path / 'evaluation' / 'envelope_bounds.csv') as file:
    rows = [
      {name: float(value) for name, value in row.items()}
      for row in csv.DictReader(file)
    ]
  assert [row['rounds'] for row in rows] == [1, 2, 3]
  for row in rows:
    assert row['learning_rate_excess'] < 1
    assert 0 < row['mean_squared_gradient'] <= row['theorem'] <= row['bound']
    # 20 steps, each of which keeps about 1 - 0.06 * 16 of the error.
    assert row['prox_error'] < 1e-4
    parts = ('start', 'moved_models', 'moved_gradients', 'drift', 'floor')
    np.testing.assert_allclose(row['bound'], sum(row[part] for part in parts))
  header, *lines = program.stdout.splitlines()
  assert header.split()[:3] == ['rounds', 'mean_squared_gradient', 'bound']
  assert [line.split()[0] for line in lines] == ['1', '2', '3']
  after = raw_data.file_bytes(tmp_path)
  assert set(after) - set(before) == {'evaluation/envelope_bounds.csv'}
  assert all(after[name] == content for name, content in before.items())


@pytest.mark.parametrize('algorithm', ['fed_soft', 'pfedkm'])
def test_other_experiments_are_told_what_it_is_for(tmp_path, algorithm):
  config = experiment.parse(digits.get_config('smoke'))
  named = algorithms.parse_config({'name': algorithm})
  other = dataclasses.replace(config, algorithm=named)
  with pytest.raises(errors.ConfigError, match='linear_regression') as caught:
    envelope_bounds.compare(other, tmp_path)
  assert repr(algorithm) in str(caught.value)
  assert 'configs/pfedkm/regressions.py' in str(caught.value)
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
  ('option', 'text'),
  [
    ({'cohort_size': 4}, 'cohort_size is 4 and weighting .uniform.'),
    ({'weighting': 'examples'}, 'cohort_size is 0 and weighting .examples.'),
  ],
)
def test_what_the_theorem_does_not_speak_of_is_refused(tmp_path, option, text):
  config = experiment.parse(regressions.get_config('smoke'))
  options = dataclasses.replace(config.algorithm.options, **option)
  other = dataclasses.replace(
    config, algorithm=config.algorithm._replace(options=options)
  )
  with pytest.raises(errors.ConfigError, match=text):
    envelope_bounds.compare(other, tmp_path)
  assert not list(tmp_path.iterdir())


def test_rates_that_fall_are_refused(tmp_path):
  values = regressions.get_config('smoke')
  values.lr_schedule.after_rounds = (2,)
  with pytest.raises(errors.ConfigError, match='constant learning rates'):
    envelope_bounds.compare(experiment.parse(values), tmp_path)
