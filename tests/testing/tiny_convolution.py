"""A convolution in factors and a dense layer, the smallest decomposed network."""

from collections import OrderedDict
from collections.abc import Callable

import tensorflow as tf

from tff_algos.core import model as model_lib
from tff_algos.numerics import factored_weights, filters


def build(
  kernel_size: int = 3,
  num_atoms: int = 2,
  activation: Callable[[tf.Tensor], tf.Tensor] = tf.nn.relu,
) -> model_lib.Model:
  """Returns a model of 4x4 images in three classes.

  It is looped over, as convolutions are. With as many atoms as a kernel has pixels,
  any mean of kernels can be factored anew.

  Args:
    kernel_size: Of the square kernels.
    num_atoms: Of the convolution.
    activation: Behind the convolution.
  """

  def initialize(seed):
    shape = [kernel_size, kernel_size, num_atoms]
    return OrderedDict(
      {
        'conv/atoms': 0.5 * tf.random.stateless_normal(shape, seed),
        'conv/coefficients': tf.random.stateless_normal(
          [num_atoms, 1, 2], seed + 2
        ),
        'dense/kernel': 0.3 * tf.random.stateless_normal([8, 3], seed + 1),
      }
    )

  def apply(weights, x):
    factors = factored_weights.take_factors(weights, 'conv')
    hidden = tf.nn.conv2d(x, filters.build_kernel(factors), 2, 'SAME')
    return tf.reshape(activation(hidden), [-1, 8]) @ weights['dense/kernel']

  return model_lib.Model(
    'tiny', 'classification', (4, 4, 1), 3, initialize, apply, vectorizes=False
  )
