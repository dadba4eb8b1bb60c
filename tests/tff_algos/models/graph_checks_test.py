"""What the graph of a model tells, and what is refused."""

from collections import OrderedDict

import pytest
import tensorflow as tf

from tff_algos.core import errors
from tff_algos.core import model as model_lib
from tff_algos.models import graph_checks
from tff_algos.numerics import unit_dropout

_COUNTER = tf.Variable(0.0)


def _model(apply, shape=(4,)):
  return model_lib.Model(
    'own',
    model_lib.CLASSIFICATION,
    shape,
    3,
    lambda seed: OrderedDict(kernel=tf.zeros([4, 3])),
    lambda weights, x: apply(tf.matmul(x, weights['kernel'])),
    vectorizes=False,
  )


def _attention(logits):
  scores = tf.nn.softmax(logits[:, tf.newaxis, tf.newaxis])
  return scores[:, 0, 0] + 1


def _loop(logits):
  return tf.while_loop(lambda _: True, lambda x: [x + 1], [logits], None, 2)[0]


@pytest.mark.parametrize(
  ('apply', 'shape', 'label_shape', 'vectorizes'),
  [
    (tf.nn.relu, (4,), (), True),
    (lambda logits: unit_dropout.drop(logits, 0, 0.5), (4,), (), True),
    (lambda logits: tf.nn.softmax(logits) + 1, (4,), (), True),
    (tf.nn.relu, (5, 4), (5,), True),
    (_attention, (4,), (), False),
    (tf.function(_attention), (4,), (), False),
    (_loop, (4,), (), False),
  ],
)
def test_label_shape_and_vectorization(apply, shape, label_shape, vectorizes):
  checked = graph_checks.checked(_model(apply, shape))
  assert (checked.label_shape, checked.vectorizes) == (label_shape, vectorizes)


@pytest.mark.parametrize(
  ('apply', 'text'),
  [
    (
      lambda logits: logits + tf.random.uniform([3]),
      r"'own' has state or draws random numbers of its own \(RandomUniform\)",
    ),
    (lambda logits: logits + _COUNTER, 'a variable or table of its own'),
    (
      lambda logits: tf.cast(tf.nn.softmax(logits), tf.float32),
      "'own' ends with a softmax, but must return logits",
    ),
    (
      tf.function(tf.function(tf.nn.softmax)),
      "'own' ends with a softmax, but must return logits",
    ),
    (lambda logits: logits[:, :2], r'floats \[batch, ..., 3\]'),
    (lambda logits: (logits, logits), r'floats \[batch, ..., 3\]'),
    (lambda logits: tf.argmax(logits, 1), r'floats \[batch, ..., 3\]'),
    (lambda logits: tf.reduce_sum(logits, 0), r'floats \[batch, ..., 3\]'),
  ],
)
def test_what_is_no_model_is_refused(apply, text):
  with pytest.raises(errors.ConfigError, match=text):
    graph_checks.checked(_model(apply))
