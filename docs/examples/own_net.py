"""A Keras model as a plug-in, the example of docs/own_models.md."""

import tensorflow as tf

import tff_algos


def build_net(input_shape, num_outputs):
  """Returns the Keras model of examples of a shape, for so many classes."""
  layers = tf.keras.layers
  return tf.keras.Sequential(
    [
      layers.Input(input_shape),
      layers.Flatten(),
      layers.Dense(64, activation='relu'),
      layers.Dropout(0.2),
      layers.Dense(num_outputs),
    ]
  )


def build(options, input_shape, num_outputs):
  """Returns the model for a config; there are no options of its own."""
  del options
  return tff_algos.from_keras(build_net, input_shape, num_outputs)


tff_algos.register_model('own_net', tff_algos.KerasConfig, build)
