"""Tests of MobileNet-v2, against Keras's own with another normalization."""

import pytest
import tensorflow as tf

from tests.testing import networks
from tff_algos.core import errors
from tff_algos.models.vision import mobilenet, normed_convolutions
from tff_algos.numerics import trees


def _build(shape=(32, 32, 3), num_outputs=10):
  return mobilenet.build_mobilenet_v2(
    normed_convolutions.NormedConfig(), shape, num_outputs
  )


def _keras():
  """Keras's MobileNet-v2 with each batch norm replaced by a group norm."""
  original = tf.keras.applications.MobileNetV2(
    (32, 32, 3), weights=None, classes=10, classifier_activation=None
  )

  def replace(layer):
    if isinstance(layer, tf.keras.layers.BatchNormalization):
      return tf.keras.layers.GroupNormalization(
        8, epsilon=1e-5, name=layer.name
      )
    return layer.__class__.from_config(layer.get_config())

  return tf.keras.models.clone_model(original, clone_function=replace)


def test_parameter_counts():
  """As of PyTorch's; PPFL adds two heads of 1280 to 10."""
  count = trees.num_entries(_build().weights_spec())
  assert count == 2_236_682
  assert count + 2 * (1280 * 10 + 10) == 2_262_302


@pytest.mark.verify
def test_network_agrees_with_keras():
  keras = _keras()
  networks.check_agrees_with_keras(_build(), keras, keras.layers)


def test_a_step_down_the_gradient_lowers_the_loss():
  networks.check_learns(_build(), learning_rate=1e-3)


@pytest.mark.parametrize('shape', [(32, 32), (3072,)])
def test_other_inputs_than_images_are_refused(shape):
  with pytest.raises(errors.ConfigError, match='mobilenet_v2 takes images'):
    _build(shape)
