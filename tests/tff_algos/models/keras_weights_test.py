"""Keras variables that read what is bound to them."""

import numpy as np
import pytest
import tensorflow as tf

from tff_algos.core import errors
from tff_algos.models import keras_weights

_VALUE = np.arange(6, dtype=np.float32).reshape(3, 2)


@pytest.fixture(name='weight')
def _weight():
  with keras_weights.recorded():
    variable = tf.Variable(np.zeros([3, 2], np.float32), name='table')
  (named,) = keras_weights.name_weights([variable])
  return named


@pytest.mark.parametrize(
  ('read', 'expected'),
  [
    (lambda w: w.value(), _VALUE),
    (lambda w: w.read_value(), _VALUE),
    (tf.convert_to_tensor, _VALUE),
    (lambda w: w + 1, _VALUE + 1),
    (lambda w: 2 - w, 2 - _VALUE),
    (lambda w: w[1], _VALUE[1]),
    (lambda w: tf.matmul(tf.ones([1, 3]), w), _VALUE.sum(0, keepdims=True)),
    (lambda w: tf.nn.embedding_lookup(w, [2, 0]), _VALUE[[2, 0]]),
    (lambda w: tf.gather(w, [1]), _VALUE[[1]]),
    (lambda w: tf.concat([w, w], 0), np.concatenate([_VALUE] * 2)),
    (lambda w: tf.raw_ops.Neg(x=w), -_VALUE),
  ],
)
def test_every_way_to_read_gives_the_bound_tensor(weight, read, expected):
  bound = {'table': tf.constant(_VALUE)}

  def call():
    with keras_weights.bound(bound):
      return read(weight)

  np.testing.assert_array_equal(call(), expected)
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    bound = {'table': tf.constant(_VALUE)}
    np.testing.assert_array_equal(session.run(call()), expected)
  np.testing.assert_array_equal(weight.value(), np.zeros([3, 2]))


def test_a_given_value_is_noticed(weight):
  assert not weight.is_given
  with pytest.raises(errors.ConfigError, match='was created with a value, wh'):
    keras_weights.constant_value(weight)
  weight.assign(weight.own_value())
  assert weight.is_given
  weight.assign(_VALUE)
  np.testing.assert_array_equal(keras_weights.constant_value(weight), _VALUE)


@pytest.mark.parametrize('method', ['assign', 'assign_add', 'assign_sub'])
def test_updates_are_refused_while_it_is_bound(weight, method):
  with (
    keras_weights.bound({'table': tf.constant(_VALUE)}),
    pytest.raises(errors.ConfigError, match="'table:0' is updated when"),
  ):
    getattr(weight, method)(_VALUE)


def test_weights_that_the_model_does_not_list_are_refused(weight):
  with (
    keras_weights.bound({'other': tf.constant(_VALUE)}),
    pytest.raises(
      errors.ConfigError, match="'table:0' is read by a layer, but is none"
    ),
  ):
    weight.value()


def test_names_are_unique_in_their_order():
  with keras_weights.recorded():
    variables = [tf.Variable(0.0, name='dense') for _ in range(3)]
  named = keras_weights.name_weights(variables)
  assert [weight.key for weight in named] == ['dense', 'dense_2', 'dense_3']


def test_a_weight_restored_from_a_checkpoint_is_given(weight, tmp_path):
  saved = tf.train.Checkpoint(w=tf.Variable(_VALUE)).write(str(tmp_path / 'c'))
  tf.train.Checkpoint(w=weight).read(saved).assert_consumed()
  np.testing.assert_array_equal(weight.own_value(), _VALUE)
  assert weight.is_given
