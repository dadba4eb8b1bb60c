"""The objectives that the rounds are held against."""

import dataclasses
from typing import NamedTuple

import numpy as np
import pytest

from tff_algos.algorithms.cmfl import cmfl
from tff_algos.core import algorithm, errors
from tff_algos.data import schema
from tff_algos.experiments.analyses import committee_rounds
from tff_algos.numerics import optimizers
from tff_algos.stages.client import local_training


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
  found = committee_rounds.read_objectives(_opened(), _options(), False)
  np.testing.assert_allclose(found.weights, [3 / 8, 5 / 8])
  w = np.array([0.5, 2.0])
  examples = _Dataset().examples('c', schema.TRAIN)
  x, y = examples.x.astype(np.float64), examples.y.astype(np.float64)
  np.testing.assert_allclose(
    found.gradients(w)[1], x.T @ (x @ w - y) / 5 + 0.1 * w
  )


def test_what_the_theorem_does_not_speak_of_is_refused():
  for options in (_options(batch_size=4), _options(momentum=0.9)):
    with pytest.raises(errors.ConfigError, match='plain SGD on whole batches'):
      committee_rounds.read_objectives(_opened(), options, False)


def test_uploads_that_drop_steps_are_refused():
  options = dataclasses.replace(_options(), upload='last_gradient')
  with pytest.raises(
    errors.ConfigError, match="upload is 'last_gradient', set"
  ):
    committee_rounds.read_objectives(_opened(), options, False)


def test_objectives_that_are_flat_are_refused():
  opened = _opened()
  population = algorithm.Population(('a',), np.array([3]))
  opened = opened._replace(source=_Source(population))
  flat = lambda self, client_id, split: schema.Examples(
    np.float32([[1, 0]]), np.float32([1]), np.zeros(1, np.int32)
  )
  opened = opened._replace(dataset=type('D', (), {'examples': flat})())
  with pytest.raises(errors.DataError, match='not strongly convex'):
    committee_rounds.read_objectives(opened, _options(weight_decay=0.0), False)
