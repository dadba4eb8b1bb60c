"""Local training with dropout is that of NumPy, which drops by the hash itself."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import client_data, index_hash, toys
from tff_algos.algorithms.cmfl import last_gradient
from tff_algos.core import seeds
from tff_algos.numerics import optimizers, unit_dropout
from tff_algos.stages.client import local_training, objectives

_SEED = seeds.derive_seed(1, 'train', 1, 'c0')
_START = np.array([0.2, -0.4, 1.0], np.float32)
_PURPOSE = 0x64726F70
_LAYER = 5
_RATE = 0.05
_LINEAR = toys.linear(3)
_MODEL = dataclasses.replace(
  _LINEAR,
  apply=lambda weights, x: _LINEAR.apply(weights, unit_dropout.drop(x, _LAYER)),
)
_OBJECTIVE = objectives.mean_loss(_MODEL, 0.5)


def _config(**length):
  return local_training.LocalTrainingConfig(
    batch_size=4,
    optimizer=optimizers.OptimizerConfig('sgd', _RATE),
    unit_dropout_rate=0.4,
    **length,
  )


def _train(data, config):
  weights, _ = local_training.train(
    _OBJECTIVE,
    {'kernel': tf.constant(_START[:, np.newaxis])},
    data,
    tf.constant(_SEED),
    config,
  )
  return weights


def _numpy_training(x, y, config, num_steps):
  """Half the squared error of inputs that are dropped, by plain steps."""
  w, step = _START.astype(np.float64), 0
  rate = config.unit_dropout_rate
  for epoch in range(num_steps):
    order = index_hash.shuffled(_SEED, epoch, len(y))
    for begin in range(0, len(y), config.batch_size):
      if step == num_steps:
        return w
      rows = order[begin : begin + config.batch_size]
      bits = [
        [
          index_hash.random_bits(_SEED, _PURPOSE, _LAYER, epoch, row, unit)
          for unit in range(3)
        ]
        for row in rows
      ]
      seen = x[rows] * (np.array(bits) / 2**32 >= rate) / (1 - rate)
      gradient = seen.T @ (seen @ w - y[rows]) / len(rows)
      w = w - config.optimizer.learning_rate * gradient
      step += 1
  return w


@pytest.mark.parametrize('padding', [0, 6])
@pytest.mark.parametrize(
  ('length', 'num_steps'),
  [({'num_local_epochs': 3}, 9), ({'num_local_steps': 7}, 7)],
)
def test_steps_drop_anew_in_each_epoch_and_outputs_after_them_none(
  padding, length, num_steps
):
  x, y = client_data.regression(10)
  config = _config(**length)
  weights = _train(client_data.build(x, y, 10 + padding), config)
  trained = weights['kernel'].numpy()[:, 0]
  expected = _numpy_training(x, y, config, num_steps)
  np.testing.assert_allclose(trained, expected, rtol=1e-4, atol=1e-5)
  outputs = _MODEL.apply(weights, x)[:, 0]
  np.testing.assert_allclose(outputs, x @ trained, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('num_steps', [1, 2, 3])
def test_the_last_gradient_is_that_of_a_further_step(num_steps):
  """Step 3 begins the next epoch."""
  data = client_data.build(*client_data.regression(10))
  config = _config(num_local_steps=num_steps)
  before, after = (
    _train(data, dataclasses.replace(config, num_local_steps=n))
    for n in (num_steps, num_steps + 1)
  )
  found = last_gradient.after(
    _OBJECTIVE, before, data, tf.constant(_SEED), config
  )
  expected = (before['kernel'] - after['kernel']) / _RATE
  np.testing.assert_allclose(found['kernel'], expected, rtol=1e-4, atol=1e-4)
