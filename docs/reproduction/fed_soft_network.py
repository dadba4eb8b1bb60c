"""Network of the letters in the code of FedSoft's authors, as a plug-in.

Ruan and Joe-Wong (2022) describe "a fully-connected layer with 512 hidden
neurons followed by ReLU". In their code (`LettersCNN`,
github.com/ycruan/FedSoft) this ReLU follows the last layer, and a softmax the
ReLU, whose probabilities the cross-entropy takes for logits; no layer before
has an activation. So a letter whose output is below 0 for an example has no
gradient from it. The initial kernels have that code's distributions; biases
start at 0, where PyTorch draws them.
"""

import tensorflow as tf

import tff_algos


def build_net(
  input_shape: tuple[int, ...], num_outputs: int
) -> tf.keras.Sequential:
  """Returns the network; outputs are probabilities `[batch, num_outputs]`."""
  layers = tf.keras.layers
  convolution = {
    'kernel_size': 5,
    'padding': 'same',
    'kernel_initializer': 'he_uniform',
  }
  return tf.keras.Sequential(
    [
      layers.Input(input_shape),
      layers.Conv2D(32, **convolution),
      layers.MaxPooling2D(),
      layers.Conv2D(64, **convolution),
      layers.MaxPooling2D(),
      layers.Flatten(),
      layers.Dense(512, kernel_initializer='glorot_normal'),
      layers.Dense(num_outputs, 'relu', kernel_initializer='glorot_normal'),
      layers.Softmax(),
      # A network that ends with a softmax is refused, as a mistake.
      layers.Rescaling(1.0),
    ]
  )


def build(
  config: tff_algos.KerasConfig, input_shape: tuple[int, ...], num_outputs: int
) -> tff_algos.Model:
  """Returns the model for a config; there are no options of its own."""
  del config
  return tff_algos.from_keras(build_net, input_shape, num_outputs)


tff_algos.register_model('fed_soft_network', tff_algos.KerasConfig, build)
