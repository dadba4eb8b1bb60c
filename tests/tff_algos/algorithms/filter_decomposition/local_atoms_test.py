"""Tests of atoms that a client keeps for itself."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import client_data, factored
from tff_algos.algorithms.filter_decomposition import local_atoms
from tff_algos.core import errors
from tff_algos.numerics import optimizers
from tff_algos.stages.client import local_training

_MODEL = factored.model()
_RECEIVED = _MODEL.initialize(tf.constant([1, 2]))
_SEED = tf.constant([3, 4])


def _config(own='atoms', epochs=1, **options):
  training = local_training.LocalTrainingConfig(
    epochs, 32, optimizers.OptimizerConfig('sgd', 0.1)
  )
  return local_atoms.LocalAtomsConfig(own, local_training=training, **options)


def _data(k):
  examples = factored.SOURCE.examples(k)
  return client_data.build(examples.x, examples.y, 1, 0.0)


def _train(before, k=3, **options):
  config = _config(**options)
  return local_atoms.train(_MODEL, _RECEIVED, before, _data(k), _SEED, config)[
    0
  ]


def _start(own='atoms'):
  return local_atoms.initial(_MODEL, _config(own))


def _step(weights, name, rate=0.1, k=3):
  """One full-batch step on one leaf, by another way through TensorFlow."""
  data = _data(k)
  with tf.GradientTape() as tape:
    tape.watch(weights)
    losses = _MODEL.example_losses(_MODEL.apply(weights, data.x), data.y)
    value = tf.reduce_mean(losses)
  return weights[name] - rate * tape.gradient(value, weights)[name]


def test_before_the_first_time_a_client_is_served_the_received_model():
  served = _start().serve(_RECEIVED)
  for name, leaf in _RECEIVED.items():
    np.testing.assert_array_equal(served[name], leaf)


def test_a_step_moves_the_own_weights_alone():
  own = _train(_start())
  assert list(own.weights) == ['conv/atoms']
  assert own.num_updates == 1
  expected = _step(_RECEIVED, 'conv/atoms')
  np.testing.assert_allclose(own.weights['conv/atoms'], expected, rtol=1e-4)
  served = own.serve(_RECEIVED)
  for name in ('conv/coefficients', 'dense/kernel'):
    np.testing.assert_array_equal(served[name], _RECEIVED[name])


def test_a_training_that_diverges_leaves_them_and_is_counted():
  own = _train(_start())
  far = own._replace(
    weights={name: 3e38 * tf.sign(leaf) for name, leaf in own.weights.items()}
  )
  for before, failed in ((own, 0), (far, 1)):
    after, metrics = local_atoms.train(
      _MODEL, _RECEIVED, before, _data(3), _SEED, _config()
    )
    assert after.num_updates == 2 - failed
    assert metrics['own_failed'] == (failed, 1)
    assert metrics['own_loss'].weight == (0 if failed else len(_data(3).y))
    assert np.isfinite(metrics['own_loss'].total)
  np.testing.assert_array_equal(
    after.weights['conv/atoms'], far.weights['conv/atoms']
  )


def test_own_atoms_go_on_from_where_they_were():
  """Not from the received atoms, which they never see again."""
  once = _train(_start())
  twice = _train(once)
  expected = _step(once.serve(_RECEIVED), 'conv/atoms')
  np.testing.assert_allclose(
    twice.weights['conv/atoms'], expected, rtol=1e-4, atol=1e-6
  )


def test_an_own_head_is_trained_with_the_atoms():
  own = _train(_start('atoms_and_head'), own='atoms_and_head')
  assert set(own.weights) == {'conv/atoms', 'dense/kernel'}
  for name in own.weights:
    np.testing.assert_allclose(
      own.weights[name], _step(_RECEIVED, name), rtol=1e-4, atol=1e-6
    )


def test_without_examples_nothing_changes():
  own = _train(_start(), k=1)
  assert own.num_updates == 0


@pytest.mark.parametrize('num_local_steps', [0, 1])
def test_epochs_may_be_given(num_local_steps):
  """Also where the training of rounds counts steps."""
  config = _config()
  training = dataclasses.replace(
    config.local_training, num_local_steps=num_local_steps
  )
  config = dataclasses.replace(config, local_training=training)
  longer, _ = local_atoms.train(
    _MODEL, _RECEIVED, _start(), _data(3), _SEED, config, num_epochs=2
  )
  expected = _train(_start(), epochs=2)
  np.testing.assert_array_equal(
    longer.weights['conv/atoms'], expected.weights['conv/atoms']
  )


def test_refits_come_at_their_interval_where_there_is_something_to_fit():
  after = [n for n in range(1, 7) if _config(refit_interval=3).refits_after(n)]
  assert after == [3, 6]
  assert not _config(refit_interval=0).refits_after(1)
  assert not _config('nothing', refit_interval=1).refits_after(1)


@pytest.mark.parametrize(
  ('options', 'text'),
  [
    ({'own': 'head'}, "own must be one of 'nothing', 'atoms'"),
    ({'refit_interval': -1}, 'refit_interval must be an integer >= 0'),
    ({'num_refit_epochs': 0}, 'num_refit_epochs must be an integer >= 1'),
    ({'loss_scale': 0.0}, 'loss_scale must be a finite number > 0'),
    ({'in_every_round': False}, 'no client would ever train these'),
  ],
)
def test_options_out_of_range_are_refused(options, text):
  with pytest.raises(errors.ConfigError, match=text):
    _config(**options)
