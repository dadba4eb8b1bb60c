"""Keras perceptron with dropout."""

import dataclasses

import tensorflow as tf

import tff_algos


@dataclasses.dataclass(frozen=True)
class RingNetConfig(tff_algos.KerasConfig):
  """Options of the perceptron.

  Attributes:
    width: Hidden units, >= 1.
  """

  width: int = 16


def build(options, input_shape, num_outputs):
  """Returns the model."""

  def network(input_shape, num_outputs):
    layers = tf.keras.layers
    return tf.keras.Sequential(
      [
        layers.Input(input_shape),
        layers.Dense(options.width, activation='relu'),
        layers.Dropout(0.1),
        layers.Dense(num_outputs),
      ]
    )

  return tff_algos.from_keras(network, input_shape, num_outputs)
