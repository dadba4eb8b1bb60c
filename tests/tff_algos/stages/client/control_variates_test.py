"""Tests of control variates."""

import numpy as np
import tensorflow as tf

from tff_algos.numerics import optimizers
from tff_algos.stages.client import control_variates, local_training

# Two steps, of which the second goes 1.5 times as far: 2.5 * 0.2 in all.
_CONFIG = local_training.LocalTrainingConfig(
  num_local_epochs=2,
  batch_size=4,
  optimizer=optimizers.OptimizerConfig('sgd', 0.2, momentum=0.5),
)


def _change(mask):
  received, trained, control = (
    {'kernel': tf.constant(value)}
    for value in ([1.0, 2.0], [0.5, 3.0], [0.25, -1.0])
  )
  mask = tf.constant(mask, tf.float32)
  return control_variates.change(received, trained, control, mask, _CONFIG)


def test_it_is_the_mean_gradient_less_the_mean_control():
  found = _change([1, 1, 1, 0])['kernel']
  np.testing.assert_allclose(found, [0.5 / 0.5 - 0.25, -1 / 0.5 + 1], rtol=1e-6)


def test_a_client_without_examples_changes_nothing():
  np.testing.assert_array_equal(_change([0, 0, 0, 0])['kernel'], [0, 0])
