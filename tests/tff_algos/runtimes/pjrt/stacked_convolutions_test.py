import numpy as np
import pytest
import tensorflow as tf

from tff_algos.runtimes.pjrt import stacked_convolutions
from tff_algos.runtimes.vectorized import vectorization


def _depthwise(x, kernel, stride, padding):
  return tf.nn.depthwise_conv2d(x, kernel, [1, stride, stride, 1], padding)


@pytest.mark.parametrize(
  ('convolve', 'stride', 'padding'),
  [
    (tf.nn.conv2d, 2, 'VALID'),
    (_depthwise, 1, 'SAME'),
    pytest.param(tf.nn.conv2d, 1, 'SAME', marks=pytest.mark.verify),
    pytest.param(_depthwise, 2, 'VALID', marks=pytest.mark.verify),
  ],
)
def test_every_client_has_its_kernel_and_gradients(convolve, stride, padding):
  """Also the gradient of a gradient, which exact Per-FedAvg takes."""

  def work(client):
    kernel, x = client
    with tf.GradientTape() as outer:
      outer.watch(x)
      with tf.GradientTape() as inner:
        inner.watch([kernel, x])
        y = convolve(x, kernel, stride, padding)
        loss = tf.reduce_sum(y**2)
      slopes = inner.gradient(loss, [kernel, x])
      size = tf.reduce_sum(slopes[0] ** 2)
    return y, *slopes, outer.gradient(size, x)

  @tf.function(jit_compile=True, autograph=False)
  def work_on_all(*clients):
    with stacked_convolutions.vectorized():
      return vectorization.map_stacked(work, clients)

  kernels = tf.random.stateless_normal([3, 3, 3, 2, 4], [1, 2])
  x = tf.random.stateless_normal([3, 5, 8, 7, 2], [3, 4])
  found = work_on_all(kernels, x)
  for i in range(3):
    for stacked, one in zip(found, work((kernels[i], x[i])), strict=True):
      assert stacked[i].shape == one.shape
      largest = np.max(np.abs(one))
      assert np.max(np.abs(stacked[i] - one)) < 2e-6 * largest


def test_elsewhere_such_convolutions_are_not_vectorized():
  """TensorFlow's CPU kernels have no gradients of grouped convolutions."""
  with stacked_convolutions.vectorized():
    pass
  kernels, x = tf.ones([2, 1, 1, 1, 1]), tf.ones([2, 1, 2, 2, 1])
  with pytest.raises(ValueError, match='Conv2D'):
    tf.function(
      lambda *one: vectorization.map_stacked(
        lambda pair: tf.nn.conv2d(*pair, 1, 'SAME'), one
      )
    )(x, kernels)
