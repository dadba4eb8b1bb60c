"""The bound of CMFL's theorem, as a program and by its rows."""

import dataclasses

import numpy as np
import pytest

from binaries import committee_bounds
from configs.cmfl import regressions
from configs.fed_soft import digits
from tests.tff_algos.experiments import auditing_test
from tff_algos.algorithms import registry as algorithms
from tff_algos.core import errors
from tff_algos.experiments import experiment

dataset = auditing_test.dataset


def _compare(dataset, folder, change=lambda values: None):
  values = regressions.get_config('smoke')
  values.runtime.name = 'debug'
  change(values)
  if not (folder / 'dataset').exists():
    (folder / 'dataset').symlink_to(dataset)
  return committee_bounds.compare(experiment.parse(values), folder)


def test_a_row_a_round_and_the_theorems_step(dataset, tmp_path):
  """Once with the config's step, then with the theorem's, taken from it."""
  rows = _compare(dataset, tmp_path)
  assert [row['rounds'] for row in rows] == [1, 2, 3]
  for row in rows:
    parts = [row[name] for name in ('steps', 'spread', 'start', 'floor')]
    np.testing.assert_allclose(row['bound'], sum(parts))
    assert row['skew_min'] <= row['skew']
    assert row['heterogeneity'] > 0
  first = rows[0]
  rate = 1 / (first['strong_convexity'] * first['offset'])
  np.testing.assert_allclose(first['step_excess'], 0.05 / rate)

  def take_its_step(values):
    values.algorithm.upload = 'update'
    values.algorithm.rate_offset = float(first['offset'])
    values.algorithm.local_training.optimizer.learning_rate = float(rate)

  rows = _compare(dataset, tmp_path, take_its_step)
  assert (tmp_path / 'evaluation' / 'committee_bounds.csv').is_file()
  for row in rows:
    np.testing.assert_allclose(row['step_excess'], 1)
    assert row['gap'] <= row['bound']


def test_steps_on_whole_batches_count_as_epochs_do(dataset, tmp_path):
  lengths = ({'num_local_epochs': 2}, {'num_local_steps': 2})
  by_epochs, by_steps = (
    _compare(
      dataset,
      tmp_path,
      lambda values, one=one: values.algorithm.local_training.update(one),
    )
    for one in lengths
  )
  assert by_steps == by_epochs


def test_batches_that_are_not_whole_are_refused(dataset, tmp_path):
  def take_small_batches(values):
    values.algorithm.local_training.batch_size = 8

  with pytest.raises(errors.ConfigError, match='whole batches') as caught:
    _compare(dataset, tmp_path, take_small_batches)
  assert 'batch_size 8' in str(caught.value)


@pytest.mark.parametrize('algorithm', ['fed_soft', 'cmfl'])
def test_other_experiments_are_told_what_it_is_for(tmp_path, algorithm):
  config = experiment.parse(digits.get_config('smoke'))
  named = algorithms.parse_config({'name': algorithm})
  other = dataclasses.replace(config, algorithm=named)
  with pytest.raises(errors.ConfigError, match='linear_regression') as caught:
    committee_bounds.compare(other, tmp_path)
  assert 'configs/cmfl/regressions.py' in str(caught.value)


def test_rates_that_fall_are_refused(tmp_path):
  values = regressions.get_config('smoke')
  values.lr_schedule.after_rounds = (2,)
  with pytest.raises(errors.ConfigError, match='constant learning rates'):
    committee_bounds.compare(experiment.parse(values), tmp_path)
