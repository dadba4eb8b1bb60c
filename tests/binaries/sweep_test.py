import csv
import json

import pytest

from binaries import sweep
from configs.fed_soft import synthetic


def test_spread_is_mean_and_sample_deviation():
  rows = [
    {'seed': 0, 'held_out/a': 1.0, 'other': 5.0, 'round': 3},
    {'seed': 1, 'held_out/a': 2.0, 'other': 5.0, 'round': 3},
    {'seed': 2, 'held_out/a': 6.0, 'other': 5.0, 'round': 3},
  ]
  head, line = sweep.spread(rows, ['held_out/']).splitlines()
  assert head.split() == ['mean', 'std', 'metric', '(3', 'seeds)']
  assert line.split() == ['3.000', '2.646', 'held_out/a']
  assert len(sweep.spread(rows, ['held_out/', 'oth']).splitlines()) == 3


def test_spread_of_one_seed_is_zero():
  line = sweep.spread([{'seed': 0, 'x': 1.5}], ['x']).splitlines()[1]
  assert line.split() == ['1.500', '0.000', 'x']


@pytest.mark.slow
def test_each_seed_has_its_own_data_training_and_row(tmp_path):
  config = synthetic.get_config('smoke')
  config.training.num_rounds = 1
  config.dataset.partition.num_clients = 4
  config.algorithm.cohort_size_per_cluster = 2
  config.algorithm.local_training.num_local_epochs = 1
  config.runtime.name = 'debug'  # It traces no graphs.
  config.lock()
  rows = sweep.sweep(config, tmp_path, 2)
  assert [row['seed'] for row in rows] == [0, 1]
  name = 'participating/test/personalized/mse'
  assert rows[0][name] != rows[1][name]
  versions = set()
  for seed in range(2):
    folder = tmp_path / f'seed_{seed}'
    versions.add((folder / 'dataset' / 'CURRENT').read_text())
    content = json.loads((folder / 'config.json').read_text())
    assert content['config']['seed'] == seed
    assert content['config']['dataset']['seed'] == seed
  assert len(versions) == 2
  with open(tmp_path / 'sweep.csv', newline='') as file:
    written = list(csv.DictReader(file))
  assert [float(row[name]) for row in written] == [row[name] for row in rows]
