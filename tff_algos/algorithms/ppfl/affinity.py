"""Affinity of clients, and the graph Laplacian penalty on their memberships.

The penalty is laplacian_weight / 2 * sum_ij w_ij |c_i - c_j|^2 (Di et al.,
arXiv:2310.14337, Eq. 4), w_ij the cosine of the clients' label counts, which
leave out unscored labels (padding, unknown words). The server computes it from
label counts that clients upload once, before their first round, in a phase of
its own, which is counted in the cost.

The affinity is kept as vectors, w_ij = <a_i, a_j>. So the matrix W is positive
semidefinite, is never built, and its product with n points costs n times the
length of a vector. The affinity of a client to itself, w_ii, cancels in the
Laplacian D - W, D the row sums of W.
"""

import dataclasses
import fractions
import math
from collections import OrderedDict
from typing import Any

import numpy as np
import tensorflow as tf

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import checks, errors
from tff_algos.core import model as model_lib
from tff_algos.core.structures import Array, Structure
from tff_algos.numerics import index_random
from tff_algos.rounds import aggregation

COSINE = 'cosine'
SHIFTED_COSINE = 'shifted_cosine'
UNIFORM = 'uniform'
LAPLACIAN, DEGREE = FORMS = ('laplacian', 'degree')


@dataclasses.dataclass(frozen=True)
class LaplacianConfig:
  """Options of the Laplacian penalty on differences of memberships.

  Attributes:
    weight: lambda, >= 0; 0 for none, and then clients upload neither label
      counts nor memberships for the penalty.
    affinity: w_ij: `'cosine'` of the label counts; `'shifted_cosine'`, 0.5 +
      0.5 times that; or `'uniform'`, 1, which needs no counts (Theorem 3).
    form: The penalty's gradient, which is the same in all steps of a round:
      `'laplacian'`, 2 lambda (L C)_i, as printed; or `'degree'`, lambda d_ii
      c_i, which pulls to equal memberships, as in the authors' release.
    count_noise: Scale b of the noise that a client adds to each of its counts
      before the upload, >= 0, in labels; 0 for none. The noise is an integer k
      with a probability proportional to exp(-|k| / b) (`discrete_laplace`);
      negative results are raised to 0. The upload is epsilon-differentially
      private for one label more or less, epsilon = 1 / b. An example of m
      labels, such as a sentence, has m times that epsilon. Draws follow from
      the run's seed: nothing is hidden from those who know it.
  """

  weight: float = 0.0
  affinity: str = COSINE
  form: str = LAPLACIAN
  count_noise: float = 0.0

  def __post_init__(self):
    checks.check_at_least('weight', self.weight, 0)
    checks.check_one_of(
      'affinity', self.affinity, (COSINE, SHIFTED_COSINE, UNIFORM)
    )
    checks.check_one_of('form', self.form, FORMS)
    checks.check_at_least('count_noise', self.count_noise, 0)

  @property
  def needs_counts(self) -> bool:
    """Returns whether clients upload their label counts."""
    return self.weight > 0 and self.affinity != UNIFORM


def initial_features(
  config: LaplacianConfig, model: model_lib.Model, num_clients: int
) -> Structure:
  """Returns the clients' affinity vectors before round 1.

  Returns:
    `[num_clients, n]` float32; zeros, so no penalty, before counts are
    uploaded. `()` without a penalty.
  """
  if not config.weight:
    return ()
  if not config.needs_counts:
    return tf.ones([num_clients, 1])
  is_shifted = config.affinity == SHIFTED_COSINE
  return tf.zeros([num_clients, model.num_outputs + is_shifted])


def uncounted(
  is_counted: Structure, population: algorithm_lib.Population
) -> Array:
  """Returns the clients that have examples and uploaded no counts yet.

  All in round 1; later those that dropped out then, and those that joined in a
  continued run.

  Args:
    is_counted: bool `[num_clients]`; `()` if no counts are needed.
    population: All clients.
  """
  available = population.clients_with_examples
  if isinstance(is_counted, tuple):
    return available[:0]
  return available[~np.asarray(is_counted)[available]]


def build_counting(
  model: model_lib.Model, config: LaplacianConfig
) -> algorithm_lib.Phase:
  """Returns the phase `count_labels`, in which clients upload label counts.

  The server state is a NamedTuple with the fields `affinity_features`, of
  `initial_features`, and `is_counted`, bool `[num_clients]`. A client that
  takes no part has no edges.

  Raises:
    ConfigError: If the labels are not classes.
  """
  if model.task != model_lib.CLASSIFICATION:
    raise errors.ConfigError(
      f'affinity {config.affinity!r} compares counts of classes, but model '
      f'{model.name!r} is for {model.task}; use affinity {UNIFORM!r}, or '
      'weight 0'
    )

  def count(message, client_input, client_state, data, seed):
    del message, client_input
    counts = model.label_counts(data.y, data.mask)
    if config.count_noise:
      noise = discrete_laplace(seed, model.num_outputs, config.count_noise)
      # In float64, where the sum of integers is exact, too.
      noisy = tf.cast(counts, tf.float64) + noise
      counts = tf.cast(tf.maximum(noisy, 0.0), tf.float32)
    return algorithm_lib.ClientOutput(
      OrderedDict(label_counts=counts), client_state, OrderedDict()
    )

  def compare(server_state, aggregates):
    counted = aggregates['label_counts']
    features = cosine_features(
      counted.values, config.affinity == SHIFTED_COSINE
    )
    new = {
      'affinity_features': features,
      'is_counted': tf.ones_like(counted.is_valid),
    }
    rows = {
      name: aggregation.write_rows(
        getattr(server_state, name), counted._replace(values=values)
      )
      for name, values in new.items()
    }
    return server_state._replace(**rows), OrderedDict()

  return algorithm_lib.Phase(
    name='count_labels',
    make_message=lambda server_state: (),
    client_work=count,
    aggregation={'label_counts': aggregation.Collect()},
    server_update=compare,
    uses_client_state=False,
  )


def discrete_laplace(seed: tf.Tensor, size: int, scale: float) -> tf.Tensor:
  """Returns integers k, of probability proportional to exp(-|k| / scale).

  The geometric mechanism of Ghosh, Roughgarden and Sundararajan (STOC 2009).
  Unlike Laplace noise in floating point, whose last bits reveal the count that
  it was added to (Mironov, CCS 2012), sums of integers are exact. A geometric
  draw counts the successes of a coin before its first failure, so its tail has
  no end, and neighbouring integers have one ratio of probabilities: that of
  the coin, exp(-1 / scale) in double precision.

  Args:
    seed: int32 `[2]`.
    size: Number of draws.
    scale: > 0. The expected number of coins grows with it.

  Returns:
    float64 `[size]`, the difference of two geometric draws each.
  """
  success = coin(scale)
  first = tf.cast(seed[0], tf.uint32)

  def toss(
    number: tf.Tensor, is_going: tf.Tensor, count: tf.Tensor
  ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    # XLA draws the same bits as TensorFlow from seeds of 32 bits without sign,
    # and makes other fractions of them.
    toss_seed = tf.stack([first, index_random.random_bits(seed, number)])
    bits = tf.random.stateless_uniform(
      [2, size],
      tf.cast(toss_seed, tf.int64),
      minval=None,  # pyright: ignore[reportArgumentType]
      dtype=tf.uint64,
    )
    is_going &= bits < success
    return number + 1, is_going, count + tf.cast(is_going, tf.float64)

  _, _, geometric = tf.while_loop(
    lambda number, is_going, count: tf.reduce_any(is_going),
    toss,
    (
      tf.constant(0),
      tf.ones([2, size], tf.bool),
      tf.zeros([2, size], tf.float64),
    ),
  )
  return geometric[0] - geometric[1]


def coin(scale: float) -> tf.Tensor:
  """Returns how many of the 2^64 random numbers are a success, uint64 `[]`.

  Args:
    scale: > 0; the chance of a success is exp(-1 / scale).
  """
  below = math.ceil(fractions.Fraction(math.exp(-1 / scale)) * 2**64)
  return tf.constant(min(below, 2**64 - 1), tf.uint64)


def penalty_gradients(
  config: LaplacianConfig, features: Any, memberships: Any
) -> tf.Tensor:
  """Returns the penalty's gradient in each membership, `[num_clients, k]`.

  Args:
    config: Weight > 0, and form.
    features: `[num_clients, n]`, from the server state.
    memberships: C, `[num_clients, k]`, on the host or in a graph.
  """
  features = tf.convert_to_tensor(features)
  memberships = tf.convert_to_tensor(memberships)
  if config.form == DEGREE:
    return config.weight * degrees(features) * memberships
  product = laplacian_product(features, memberships)
  return 2.0 * config.weight * product


def cosine_features(histograms: tf.Tensor, is_shifted: bool) -> tf.Tensor:
  """Returns vectors whose inner products are the cosines of histograms.

  Args:
    histograms: `[n, bins]`, >= 0.
    is_shifted: Whether edges are 0.5 + 0.5 * cosine.

  Returns:
    `[n, bins]`, or `[n, bins + 1]`. A histogram of zeros has no edges.
  """
  # Twice, as the square of a tiny count is 0.
  largest = tf.reduce_max(histograms, axis=1, keepdims=True)
  scaled = tf.math.divide_no_nan(histograms, largest)
  norms = tf.norm(scaled, axis=1, keepdims=True)
  directions = tf.math.divide_no_nan(scaled, norms)
  if not is_shifted:
    return directions
  has_entries = tf.cast(largest > 0, directions.dtype)
  return 0.5**0.5 * tf.concat([directions, has_entries], axis=1)


def degrees(features: tf.Tensor) -> tf.Tensor:
  """Returns the row sums of W, `[n, 1]`, w_ii included.

  Args:
    features: `[n, m]`.
  """
  return tf.matmul(features, tf.reduce_sum(features, axis=0)[:, tf.newaxis])


def laplacian_product(features: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
  """Returns (D - W) @ values, `[n, k]`; row i is sum_j w_ij (v_i - v_j).

  Args:
    features: `[n, m]`.
    values: `[n, k]`.
  """
  product = tf.matmul(features, tf.matmul(features, values, transpose_a=True))
  return degrees(features) * values - product


def disagreement(features: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
  """Returns 1/2 * sum_ij w_ij |v_i - v_j|^2, `[]`.

  Args:
    features: `[n, m]`.
    values: `[n, k]`.
  """
  return tf.reduce_sum(values * laplacian_product(features, values))
