"""The variance of a round and latent clients, as a program."""

import csv

import pytest

from binaries import factors, preprocess, train
from configs.fed_soft import digits
from configs.filter_decomposition import fashion_mnist
from tff_algos.core import errors
from tff_algos.experiments import experiment
from tff_algos.experiments.analyses import factor_rounds


@pytest.mark.slow
def test_a_row_for_every_state(tmp_path):
  values = fashion_mnist.get_config('smoke')
  values.training.num_rounds = 2
  values.training.checkpoint_interval = 1
  values.training.num_kept_checkpoints = 1
  values.algorithm.schedule.slow_period = 3
  values.runtime.name = 'debug'
  config = experiment.parse(values)
  preprocess.preprocess(config.dataset, tmp_path)
  train.train(config, tmp_path)
  rows = factors.measure(config, tmp_path, factor_rounds.Sizes(2, 3, 20))
  with open(tmp_path / 'evaluation' / 'factors.csv', newline='') as file:
    read = list(csv.DictReader(file))
  assert [row['round'] for row in read] == ['0', '2']
  assert rows[0]['num_latent'] == 6
  assert rows[0]['variance'] > 0 and rows[0]['latent_loss'] > 0
  # The third round sends no coefficients.
  assert not read[1]['latent_loss'] or read[1]['latent_loss'] == 'nan'
  with open(tmp_path / 'evaluation' / 'own_atoms.csv', newline='') as file:
    own = list(csv.DictReader(file))
  # Three of ten clients took part in each round.
  names = [name for name in own[0] if name.startswith('distance_')]
  for name in names:
    assert 3 <= sum(float(row[name]) > 0 for row in own) <= 6
  assert len(own) == 10 and names
  with open(tmp_path / 'evaluation' / 'atoms.csv', newline='') as file:
    layers = [row['layer'] for row in csv.DictReader(file)]
  assert len(layers) == 9 * len(names)


def test_other_servers_are_refused():
  config = experiment.parse(digits.get_config('smoke'))
  with pytest.raises(errors.ConfigError, match="name is 'fed_soft'"):
    factors.measure(config, 'nowhere', factor_rounds.Sizes())
