"""The gradient behind the last local step, against NumPy."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import client_data, index_hash, toys
from tff_algos.algorithms.cmfl import last_gradient
from tff_algos.core import algorithm, errors, seeds
from tff_algos.numerics import optimizers
from tff_algos.runtimes.vectorized import vectorization
from tff_algos.stages.client import augmentation, local_training, objectives

_MODEL = toys.linear(3)
_OBJECTIVE = objectives.mean_loss(_MODEL, 0.5)
_START = np.array([0.2, -0.4, 1.0], np.float32)
_SEED = seeds.derive_seed(1, 'train', 1, 'c0')
_RATE = 0.05


def _data(size, capacity, seed=0):
  """Examples of a linear model; NaN lies in the padding, if that is not all."""
  x, y = client_data.regression(size, seed)
  return client_data.build(x, y, capacity, np.nan if size else 0.0)


def _config(num_local_steps=0, num_local_epochs=1, **options):
  return local_training.LocalTrainingConfig(
    num_local_epochs,
    4,
    optimizers.OptimizerConfig('sgd', _RATE),
    num_local_steps=num_local_steps,
    **options,
  )


def _train_and_look(data, config, seed=_SEED):
  """Returns the last gradient as a client makes it, `[3]`."""
  start = {'kernel': tf.constant(_START[:, np.newaxis])}
  how = (data, tf.convert_to_tensor(seed), config)
  weights, _ = local_training.train(_OBJECTIVE, start, *how)
  return last_gradient.after(_OBJECTIVE, weights, *how)['kernel'][:, 0]


def _oracle(data, config, seed=_SEED):
  """g(w_tau; B_tau) of half the squared error, step by step."""
  size = int(data.mask.numpy().sum())
  x, y = data.x.numpy()[:size], data.y.numpy()[:size]
  per_epoch = -(-size // config.batch_size)
  tau = config.num_local_steps or config.num_local_epochs * per_epoch
  w = _START.astype(np.float64)
  for step in range(tau + 1):
    epoch, batch = divmod(step, per_epoch)
    order = index_hash.shuffled(seed, epoch, size)
    rows = order[batch * config.batch_size : (batch + 1) * config.batch_size]
    gradient = x[rows].T @ (x[rows] @ w - y[rows]) / len(rows)
    gradient = gradient + config.weight_decay * w
    if step < tau:
      w = w - _RATE * gradient
  return gradient


@pytest.mark.parametrize('weight_decay', [0.0, 0.3])
@pytest.mark.parametrize('length', [(1, 1), (2, 1), (5, 1), (0, 1), (0, 3)])
@pytest.mark.parametrize('size', [1, 4, 10])
def test_last_gradient_agrees_with_numpy(size, length, weight_decay):
  """Batches of 4 of 10: step 3 is short, and step 4 begins the next epoch."""
  config = _config(*length, weight_decay=weight_decay)
  expected = _oracle(_data(size, size), config)
  for capacity in (size, 13):
    found = _train_and_look(_data(size, capacity), config)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_the_batch_is_another_than_that_of_the_last_step():
  """With steps that go nowhere, gradients differ by their batch alone."""
  data = _data(10, 10)
  still = optimizers.OptimizerConfig('sgd', 1e-9)
  found = [
    _train_and_look(
      data, dataclasses.replace(_config(num_steps), optimizer=still)
    ).numpy()
    for num_steps in (1, 2, 3)
  ]
  for one, other in ((0, 1), (1, 2), (0, 2)):
    assert np.abs(found[one] - found[other]).max() > 1e-2


def test_without_examples_it_is_nothing():
  np.testing.assert_array_equal(_train_and_look(_data(0, 5), _config(2)), 0)


@pytest.mark.parametrize(
  'length', [(3, 1), pytest.param((0, 2), marks=pytest.mark.verify)]
)
def test_stacked_clients_have_the_gradients_of_each(length):
  """As the vectorized runtime computes a block of them."""
  clients = [_data(size, 10, seed=size) for size in (10, 3, 7)]
  config = _config(*length)
  client_seeds = np.array([_SEED, (3, 4), (5, 6)], np.int32)
  expected = [
    _train_and_look(*one, seed)
    for *one, seed in zip(clients, [config] * 3, client_seeds, strict=True)
  ]
  stacked = tf.nest.map_structure(lambda *leaves: tf.stack(leaves), *clients)
  found = tf.function(
    lambda: vectorization.map_stacked(
      lambda one: _train_and_look(one[0], config, one[1]),
      (stacked, tf.constant(client_seeds)),
    ),
    autograph=False,
  )()
  np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(('length', 'epoch'), [((2, 1), 0), ((4, 1), 1)])
def test_the_next_batch_is_augmented_as_its_epoch_says(length, epoch):
  """12 images in 3 batches of 4; steps 2 and 4 are of epochs 0 and 1."""
  images = np.random.default_rng(0).normal(size=(12, 5, 7, 2))
  data = algorithm.ClientData(
    tf.constant(images, tf.float32), tf.zeros(12, tf.int32), tf.ones(12)
  )
  config = _config(*length, augmentation='crop_and_flip')
  seed = tf.constant(_SEED)
  found, draws = local_training.next_batch(data, seed, config)
  begin = 4 * (length[0] % 3)
  rows = index_hash.shuffled(_SEED, epoch, 12)[begin : begin + 4]
  np.testing.assert_array_equal(draws.rows, rows)
  assert draws.epoch == epoch
  expected = augmentation.crop_and_flip(
    tf.gather(data.x, rows), seed, tf.constant(epoch), tf.constant(rows)
  )
  np.testing.assert_array_equal(found.x, expected)


def test_without_steps_there_is_no_last_gradient():
  last_gradient.check(_config())
  with pytest.raises(errors.ConfigError, match="'descent' .*, got 'exact'"):
    last_gradient.check(_config(solver='exact'))
