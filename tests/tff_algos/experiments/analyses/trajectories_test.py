"""The paths of real runs, and the loss along them."""

import numpy as np
import pytest

from configs.filter_decomposition import global_models
from tests.testing import csv_files
from tff_algos.core import errors, sealed_json
from tff_algos.experiments import (
  datasets,
  experiment,
  resolved_config,
  session,
  training,
)
from tff_algos.experiments.analyses import trajectories
from tff_algos.runtimes import registry as runtimes


def _train(folder, num_rounds=2, **changes):
  """Trains on the digits, and keeps and evaluates every round."""
  values = global_models.get_config('smoke')
  values.training.update(
    num_rounds=num_rounds, checkpoint_interval=1, num_kept_checkpoints=2
  )
  values.algorithm.schedule.slow_period = 1
  values.algorithm.local_atoms.own = 'nothing'
  values.algorithm.host.cohort_size = 2
  values.algorithm.host.local_training.batch_size = 64  # Few steps.
  values.runtime.name = 'debug'  # It traces no graphs.
  for key, value in changes.items():
    values.update_from_flattened_dict({key.replace('__', '.'): value})
  config = experiment.parse(values)
  datasets.build(config.dataset, folder)
  training.train(config, folder)
  return config


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """A folder with a run of factors."""
  folder = tmp_path_factory.mktemp('runs')
  _train(folder / 'factors')
  # As of a version with another option of runtimes.
  path = folder / 'factors' / 'config.json'
  content = sealed_json.read(path, '')
  content['config']['runtime']['removed'] = 1
  sealed_json.write(path, content)
  return folder


@pytest.fixture(scope='module')
def runs(folder):
  """With those that `factors` is compared with."""
  _train(folder / 'plain', model__decomposition__num_atoms=0)
  _train(folder / 'wider', 1, model__normalization='group')
  _train(folder / 'elsewhere', 1, dataset__seed=1)
  return folder


def _losses(folder):
  """The global model's losses on all training examples, by round."""
  return [
    float(row['participating/train/cluster/loss'])
    for row in csv_files.read(folder / 'metrics.csv')
  ]


@pytest.mark.verify
def test_losses_along_the_paths_are_those_of_the_evaluation(runs):
  folders = [runs / 'plain', runs / 'factors']
  problem = trajectories.read(folders, 10_000)
  assert [one.label for one in problem.trajectories] == ['plain', 'factors']
  for folder, path in zip(folders, problem.trajectories, strict=True):
    assert path.rounds == (0, 1, 2)
    found = [problem.loss(point) for point in path.points]
    np.testing.assert_allclose(found, _losses(folder), rtol=1e-4)
  some = trajectories.read([runs / 'plain'], 40)
  last = some.trajectories[0].points[-1]
  difference = abs(some.loss(last) - problem.loss(last))
  assert 0 < difference < 0.5 * problem.loss(last)


@pytest.mark.slow
def test_a_point_has_kernels_in_the_place_of_factors(folder):
  problem = trajectories.read([folder / 'factors'], 1)
  assert problem.trajectories[0].label == 'factors'
  debug = runtimes.RuntimeConfig('debug')
  config = resolved_config.read(folder / 'factors', debug)
  with session.open_session(config, folder / 'factors') as opened:
    _, state = opened.restore()
  weights = {
    name: np.asarray(leaf) for name, leaf in state.model_weights.items()
  }
  for name in [name for name in weights if name.endswith('/atoms')]:
    layer = name.removesuffix('/atoms')
    weights[f'{layer}/kernel'] = np.einsum(
      'uvq,qio->uvio',
      weights.pop(name),
      weights.pop(f'{layer}/coefficients'),
    )
  expected = np.concatenate([weights[name].ravel() for name in sorted(weights)])
  point = problem.trajectories[0].points[-1]
  np.testing.assert_allclose(point, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.verify
@pytest.mark.parametrize(
  ('name', 'text'),
  [
    ('wider', "wider has another network than the first run: weight 'norm_0"),
    ('elsewhere', 'elsewhere was trained on dataset'),
    ('nothing', 'config.json is missing. Name folders of runs'),
  ],
)
def test_paths_in_different_spaces_are_refused(runs, name, text):
  with pytest.raises(errors.UserError, match=text):
    trajectories.read([runs / 'plain', runs / name], 10)


@pytest.mark.verify
def test_servers_with_many_models_are_refused(trained_regressions):
  with pytest.raises(
    errors.ConfigError, match="'fed_soft', which has no single"
  ):
    trajectories.read([trained_regressions.folder], 10)
