"""Tests that training the mixed model is training the canonical ones."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import toys
from tff_algos.algorithms.ppfl import mixed_training, mixing
from tff_algos.core import algorithm
from tff_algos.numerics import optimizers, statistics
from tff_algos.stages.client import local_training, objectives

_GENERATOR = np.random.default_rng(5)
_SEED = tf.constant([3, 4])
_MEMBERSHIP = tf.constant([0.7, 0.05, 0.25])
_DATA = algorithm.ClientData(
  tf.constant(_GENERATOR.normal(size=(11, 4)), tf.float32),
  tf.constant(_GENERATOR.integers(0, 3, 11), tf.int32),
  tf.constant(np.repeat([1.0, 0.0], [9, 2]), tf.float32),
)


def _config(decay=0.0, **optimizer):
  optimizer = {'name': 'sgd', 'learning_rate': 0.3, **optimizer}
  return local_training.LocalTrainingConfig(
    2, 4, optimizers.OptimizerConfig(**optimizer), weight_decay=decay
  )


def _train(mixture, config, data=_DATA):
  weights = mixture.initialize(tf.constant([8, 9]))
  found = mixed_training.train(
    mixture,
    weights,
    _MEMBERSHIP,
    (),
    data,
    _SEED,
    config,
    loss_scale=0.5,
  )
  expected = local_training.train(
    objectives.mean_loss(mixture.at(_MEMBERSHIP), 0.5),
    weights,
    data,
    _SEED,
    config,
  )
  return weights, found, expected


def _sizes_of_trained(monkeypatch):
  """Returns the list to which the number of trained weights is appended."""
  sizes, train = [], local_training.train_on

  def watched(objective, weights, *rest):
    sizes.append(mixed_training.trees.num_entries(weights))
    return train(objective, weights, *rest)

  monkeypatch.setattr(mixed_training.local_training, 'train_on', watched)
  return sizes


@pytest.mark.parametrize('canonical', ['all', 'last_layer'])
@pytest.mark.parametrize(
  'config',
  [
    _config(),
    _config(momentum=0.9),
    _config(0.2),
    _config(0.2, momentum=0.9),
    _config(0.2, momentum=0.9, clip_norm=0.05),
  ],
)
def test_steps_are_those_of_all_canonical_models(
  canonical, config, monkeypatch
):
  """A network of 43 weights, of which one is trained and not three."""
  mixture = mixing.build(toys.mlp((4,)), 3, (canonical,), 'parameters')
  sizes = _sizes_of_trained(monkeypatch)
  start, (found, _, loss), (expected, expected_loss) = _train(mixture, config)
  one_model = 43 + bool(config.weight_decay)
  assert sizes == [one_model, mixture.num_parameters]
  tf.nest.map_structure(
    lambda one, other: np.testing.assert_allclose(
      one, other, rtol=1e-4, atol=2e-6
    ),
    found,
    expected,
  )
  np.testing.assert_allclose(
    statistics.value_of(loss), statistics.value_of(expected_loss), rtol=1e-5
  )
  kernels = (one['canonical']['dense_1/kernel'] for one in (found, start))
  moved = np.abs(np.subtract(*kernels)).max(axis=(1, 2))
  assert moved.min() > 1e-3


def test_a_client_without_examples_gets_its_start_back():
  mixture = mixing.build(toys.mlp((4,)), 3, ('all',), 'parameters')
  nobody = _DATA._replace(mask=tf.zeros([11]))
  start, (found, *_), _ = _train(mixture, _config(0.2, momentum=0.9), nobody)
  tf.nest.map_structure(np.testing.assert_array_equal, found, start)


@pytest.mark.parametrize(
  ('mode', 'options'),
  [
    ('probabilities', {}),
    ('outputs', {}),
    ('parameters', {'name': 'adam', 'learning_rate': 0.01}),
  ],
)
def test_what_cannot_be_turned_is_trained_as_it_is(mode, options, monkeypatch):
  mixture = mixing.build(toys.mlp((4,)), 3, ('all',), mode)
  sizes = _sizes_of_trained(monkeypatch)
  _, found, expected = _train(mixture, _config(**options))
  assert sizes == [3 * 43] * 2
  tf.nest.map_structure(
    np.testing.assert_array_equal, *(one[0] for one in (found, expected))
  )


def test_the_exact_solver_is_given_all_canonical_models(monkeypatch):
  mixture = mixing.build(toys.linear(4), 3, ('all',), 'outputs')
  sizes = _sizes_of_trained(monkeypatch)
  data = _DATA._replace(y=_DATA.x[:, 0])
  _train(mixture, dataclasses.replace(_config(), solver='exact'), data)
  assert sizes == [12, 12]
