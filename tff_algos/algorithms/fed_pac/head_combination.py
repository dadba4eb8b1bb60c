"""Per-client simplex weights over all heads.

Xu, Tong and Huang, "Personalized Federated Learning with Feature Alignment and
Classifier Collaboration" (ICLR 2023), arXiv:2306.11867, section 4: the test
loss of client i with the head sum_j a_j head_j is estimated by a variance,
which falls with the number of clients, and a bias, which rises with the
difference of their classes and features from those of i.
"""

from typing import NamedTuple

import tensorflow as tf

from tff_algos.algorithms.fed_pac import features as features_lib
from tff_algos.algorithms.fed_pac import simplex_quadratic


class Moments(NamedTuple):
  """Uploaded moments of a client's features.

  Attributes:
    means: Share of each class times the mean of its features,
      `[classes, width]`.
    variance: (mean of |feature|^2 - |means|^2) / number of examples, `[]`.
  """

  means: tf.Tensor
  variance: tf.Tensor


def moments(sums: features_lib.ClassSums) -> Moments:
  """Returns a client's moments; zeros without examples."""
  count = tf.reduce_sum(sums.counts)
  means = tf.math.divide_no_nan(sums.sums, count)
  spread = tf.math.divide_no_nan(sums.squares, count)
  spread -= tf.reduce_sum(tf.square(means))
  variance = tf.math.divide_no_nan(tf.maximum(spread, 0.0), count)
  return Moments(means, variance)


def shares(clients: Moments, is_there: tf.Tensor) -> tf.Tensor:
  """Returns each client's weights over all heads, `[clients, clients]`.

  Row i minimises sum_j a_j^2 variance_j + |means_i - sum_j a_j means_j|^2 over
  a >= 0 with sum 1.

  Args:
    clients: Stacked, `[clients, ...]`.
    is_there: Which clients have uploaded a valid result, bool `[clients]`;
      heads of the others get weight 0.
  """
  count = tf.shape(clients.variance)[0]
  means = tf.reshape(tf.cast(clients.means, tf.float64), [count, -1])
  gram = tf.matmul(means, means, transpose_b=True)
  own = tf.linalg.diag_part(gram)[:, tf.newaxis, tf.newaxis]
  bias = own - gram[:, tf.newaxis] - gram[:, :, tf.newaxis] + gram
  variances = tf.linalg.diag(tf.cast(clients.variance, tf.float64))
  return simplex_quadratic.minimize(bias + variances, is_there)
