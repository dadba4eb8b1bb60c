"""Which experiments are compared with theorems, and the text of the result."""

import dataclasses

import pytest

from configs.cmfl import regressions as cmfl
from configs.fed_soft import digits
from configs.pfedkm import regressions as pfedkm
from tff_algos.algorithms import registry as algorithms
from tff_algos.core import errors
from tff_algos.experiments import experiment
from tff_algos.experiments.analyses import bounds


@pytest.mark.slow
def test_as_many_clusters_as_sources_are_needed(trained_regressions):
  config, folder = trained_regressions
  options = dataclasses.replace(config.algorithm.options, num_clusters=3)
  three = dataclasses.replace(
    config, algorithm=config.algorithm._replace(options=options)
  )
  with pytest.raises(errors.ConfigError, match='num_clusters is 3, but .* 2 s'):
    bounds.measure(three, folder)


@pytest.mark.parametrize('algorithm', [*bounds.ANALYSES, 'ifca'])
def test_other_experiments_are_refused_with_configs_that_fit(
  tmp_path, algorithm
):
  config = experiment.parse(digits.get_config('smoke'))
  named = algorithms.parse_config({'name': algorithm})
  other = dataclasses.replace(config, algorithm=named)
  with pytest.raises(errors.ConfigError, match='linear_regression') as caught:
    bounds.measure(other, tmp_path)
  assert f'config.algorithm.name is {algorithm!r}' in str(caught.value)
  for name in bounds.ANALYSES:
    assert f'configs/{name}/' in str(caught.value)
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize('config_file', [cmfl, pfedkm])
def test_rates_that_fall_are_refused(tmp_path, config_file):
  values = config_file.get_config('smoke')
  values.lr_schedule.after_rounds = (2,)
  with pytest.raises(errors.ConfigError, match='constant learning rates'):
    bounds.measure(experiment.parse(values), tmp_path)


@pytest.mark.parametrize(
  ('num_rows', 'shown'),
  [(1, [1]), (3, [1, 2, 3]), (4, [1, 2, 4]), (6, [1, 2, 4, 6])],
)
def test_of_many_rows_the_powers_of_two_and_the_last_are_shown(num_rows, shown):
  config = experiment.parse(digits.get_config('smoke'))
  columns = bounds.ANALYSES['fed_soft'].COLUMNS
  rows = [dict.fromkeys(columns, number + 1) for number in range(num_rows)]
  table, legend = bounds.text(config, rows).split('\n\n')
  header, *lines = table.splitlines()
  assert header.split() == [*columns]
  assert [int(line.split()[0]) for line in lines] == shown
  assert [line.split()[0] for line in legend.splitlines()] == [*columns]
