"""The objectives of CMFL's theorem, and the rows of a run beside it."""

import dataclasses
from typing import NamedTuple

import numpy as np
import pytest

from configs.cmfl import regressions
from tests.tff_algos.experiments import auditing_test
from tff_algos.algorithms.cmfl import cmfl
from tff_algos.core import algorithm, errors
from tff_algos.data import schema
from tff_algos.experiments import experiment, session
from tff_algos.experiments.analyses import bounds, cmfl_bounds
from tff_algos.numerics import optimizers
from tff_algos.stages.client import local_training

dataset = auditing_test.dataset


class _Source(NamedTuple):
  population: algorithm.Population


class _Opened(NamedTuple):
  """As much of a session as is read."""

  source: _Source
  dataset: object


class _Dataset:
  def examples(self, client_id, split):
    assert split == schema.TRAIN
    size = {'a': 3, 'c': 5}[client_id]
    generator = np.random.default_rng(size)
    x = generator.normal(size=(size, 2)).astype(np.float32)
    return schema.Examples(x, x.sum(axis=1), np.zeros(size, np.int32))


def _opened():
  population = algorithm.Population(('a', 'b', 'c'), np.array([3, 0, 5]))
  return _Opened(_Source(population), _Dataset())


def _options(weight_decay=0.1, batch_size=5, **optimizer):
  return cmfl.CmflConfig(
    loss_scale=0.5,
    local_training=local_training.LocalTrainingConfig(
      1,
      batch_size,
      optimizers.OptimizerConfig(**{'name': 'sgd', **optimizer}),
      weight_decay=weight_decay,
    ),
  )


def test_objectives_are_of_who_has_examples():
  found = cmfl_bounds.read_objectives(_opened(), _options(), False)
  np.testing.assert_allclose(found.weights, [3 / 8, 5 / 8])
  w = np.array([0.5, 2.0])
  examples = _Dataset().examples('c', schema.TRAIN)
  x, y = examples.x.astype(np.float64), examples.y.astype(np.float64)
  np.testing.assert_allclose(
    found.gradients(w)[1], x.T @ (x @ w - y) / 5 + 0.1 * w
  )


def test_what_the_theorem_does_not_speak_of_is_refused():
  for options, words in (
    (_options(batch_size=4), 'batch_size 4 for up to 5'),
    (_options(momentum=0.9), 'momentum 0.9'),
    (_options(clip_norm=2.0), 'clip_norm 2'),
  ):
    with pytest.raises(errors.ConfigError, match=f'plain full-batch.*{words}'):
      cmfl_bounds.read_objectives(_opened(), options, False)


def test_uploads_that_drop_steps_are_refused():
  options = dataclasses.replace(_options(), upload='last_gradient')
  with pytest.raises(
    errors.ConfigError, match="upload is 'last_gradient', set"
  ):
    cmfl_bounds.read_objectives(_opened(), options, False)


def test_objectives_that_are_flat_are_refused():
  opened = _opened()
  population = algorithm.Population(('a',), np.array([3]))
  opened = opened._replace(source=_Source(population))
  flat = lambda self, client_id, split: schema.Examples(
    np.float32([[1, 0]]), np.float32([1]), np.zeros(1, np.int32)
  )
  opened = opened._replace(dataset=type('D', (), {'examples': flat})())
  with pytest.raises(errors.DataError, match='not strongly convex'):
    cmfl_bounds.read_objectives(opened, _options(weight_decay=0.0), False)


def _measure(dataset, folder, change=lambda values: None):
  values = regressions.get_config('smoke')
  values.runtime.name = 'debug'
  change(values)
  if not (folder / 'dataset').exists():
    (folder / 'dataset').symlink_to(dataset)
  return bounds.measure(experiment.parse(values), folder)


def test_a_row_a_round_and_the_theorems_step(dataset, tmp_path):
  """Once with the config's step, then with the theorem's, taken from it.

  That the gap is below the bound is an illustration.
  """
  rows = _measure(dataset, tmp_path)
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

  rows = _measure(dataset, tmp_path, take_its_step)
  assert (tmp_path / 'evaluation' / 'bounds.csv').is_file()
  for row in rows:
    np.testing.assert_allclose(row['step_excess'], 1)
    assert row['gap'] <= row['bound']


def test_steps_on_whole_batches_count_as_epochs_do(dataset, tmp_path):
  lengths = ({'num_local_epochs': 2}, {'num_local_steps': 2})
  by_epochs, by_steps = (
    _measure(
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

  with pytest.raises(errors.ConfigError, match='full-batch SGD') as caught:
    _measure(dataset, tmp_path, take_small_batches)
  assert 'batch_size 8' in str(caught.value)


def test_a_first_proposal_that_is_rejected_is_refused(
  dataset, tmp_path, monkeypatch
):
  run_round = session.Session.run_round

  def run(opened, state, round_num):
    after, metrics = run_round(opened, state, round_num)
    return after._replace(agreed=state.agreed), metrics

  monkeypatch.setattr(session.Session, 'run_round', run)
  with pytest.raises(errors.ConfigError, match='adopted none until round 1;'):
    _measure(dataset, tmp_path)
