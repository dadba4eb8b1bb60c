"""Entropic mirror descent on memberships, with frozen model weights.

Di et al., arXiv:2310.14337, Algorithm 2 (the gradient) and Eq. 25 (the step): c
<- c * exp(-eta (w grad f(c) + penalty gradient)), normalized, with w the weight
p_i of the client's loss in the objective.

The loss is the mean over labels, as in the training of the model weights. A
client without examples has no loss, and its p_i is 0: only the penalty changes
its membership, by one step an epoch.

Where the outputs of the canonical models do not depend on c they are computed
once, for all steps; not for words in a single pass.
"""

import dataclasses

import numpy as np
import tensorflow as tf

from tff_algos.algorithms.ppfl import mixing
from tff_algos.core import algorithm, checks, errors
from tff_algos.core.structures import Structure
from tff_algos.numerics import statistics, trees
from tff_algos.stages.client import batches

CLIENT_WEIGHT = 'client_weight'
# Keeps every coordinate positive: a coordinate of 0 would stay 0 (Di et al.,
# arXiv:2310.14337, Remark 2).
FLOOR = 1e-6


@dataclasses.dataclass(frozen=True)
class MembershipConfig:
  """Options of the membership updates.

  Attributes:
    learning_rate: eta_2, > 0.
    num_epochs: Passes over a client's examples, >= 1; 1 as printed.
    batch_size: Examples of a step, or 0 for all of a client, so that an epoch
      is one step with the full gradient, as in Algorithm 3.
    gradient_weight: Weight of a client's loss beside the penalty:
      `'client_weight'`, its p_i, as printed (of the order 1 / clients, so the
      rate must be of the order of their number); or `'none'`, 1 for all.
    floor: By which smaller memberships are replaced (Remark 2 adds it to all),
      before their sum is made 1 again, >= 0 and < 1; one of 0 would stay 0, and
      has no gradient where probabilities are mixed.
    num_newcomer_steps: Steps in which a client outside the training population
      fits its membership, from equal shares, >= 0.
    newcomer_learning_rate: Learning rate of those steps, on the gradient of the
      mean loss alone, > 0; above 2 / L_2 of that loss they oscillate.
  """

  learning_rate: float = 0.1
  num_epochs: int = 1
  batch_size: int = 0
  gradient_weight: str = CLIENT_WEIGHT
  floor: float = FLOOR
  num_newcomer_steps: int = 100
  newcomer_learning_rate: float = 1.0

  def __post_init__(self):
    checks.check_positive('learning_rate', self.learning_rate)
    checks.check_int('num_epochs', self.num_epochs, minimum=1)
    checks.check_int('batch_size', self.batch_size, minimum=0)
    checks.check_one_of(
      'gradient_weight', self.gradient_weight, (CLIENT_WEIGHT, 'none')
    )
    checks.check_below_one('floor', self.floor)
    checks.check_int('num_newcomer_steps', self.num_newcomer_steps, minimum=0)
    checks.check_positive('newcomer_learning_rate', self.newcomer_learning_rate)

  def check_mixing(self, mode: str) -> None:
    """Raises ConfigError if memberships of 0 cannot be mixed in a mode."""
    if mode == 'probabilities' and not np.float32(self.floor) > 0:
      raise errors.ConfigError(
        "mixing 'probabilities' takes logarithms of memberships, and "
        f'membership.floor {self.floor:g} lets them become 0 in float32; set '
        'it to 1e-6, say, or choose another mixing'
      )

  @property
  def is_weighed(self) -> bool:
    """Returns whether a client's loss is weighted by its p_i."""
    return self.gradient_weight == CLIENT_WEIGHT


def entropic_step(
  point: tf.Tensor,
  gradient: tf.Tensor,
  learning_rate: tf.Tensor | float,
  floor: float = FLOOR,
) -> tf.Tensor:
  """Returns the minimum of <gradient, u> + KL(u, point) / learning_rate.

  point * exp(-learning_rate * gradient), divided by its sum (Beck and Teboulle
  2003), in logarithms, so that no gradient overflows. Then every coordinate is
  raised to the floor, and the sum is normalized to 1 again.

  Args:
    point: On the simplex, `[..., n]`, each coordinate > 0.
    gradient: `[..., n]`; a NaN makes a NaN.
    learning_rate: Learning rate of the step, >= 0.
    floor: Smallest coordinate before the last division, >= 0.

  Returns:
    On the simplex, `[..., n]`.
  """
  stepped = tf.nn.softmax(tf.math.log(point) - learning_rate * gradient)
  kept = tf.maximum(stepped, floor)
  return kept / tf.reduce_sum(kept, axis=-1, keepdims=True)


def squared_mapping_norm(
  point: tf.Tensor, stepped: tf.Tensor, learning_rate: tf.Tensor | float
) -> tf.Tensor:
  """Returns |(point - stepped) / learning_rate|_1^2, `[...]`.

  The squared size of the gradient mapping, 0 where the point is stationary.

  Args:
    point: `[..., n]`.
    stepped: Result of `entropic_step` at the point, `[..., n]`.
    learning_rate: Learning rate of that step, > 0.
  """
  mapping = (point - stepped) / learning_rate
  return tf.square(tf.reduce_sum(tf.abs(mapping), axis=-1))


class _Loss:
  """A client's loss as a function of its membership."""

  def __init__(self, mixture, model_weights, data, loss_scale, num_epochs=1):
    self._mixture = mixture
    self._model_weights = model_weights
    self._data = data
    self._loss_scale = loss_scale
    # If outputs are not affine in mixed weights, they cannot be precomputed.
    # Outputs over words would take too much memory for a single pass; outputs
    # of few classes are one product, faster than two passes.
    self._is_ahead = (num_epochs > 1 or not mixture.model.label_shape) and (
      mixture.is_affine or not mixture.mixes_parameters
    )
    self._outputs = (
      mixture.canonical_outputs(model_weights, data.x)
      if self._is_ahead
      else None
    )

  def gradient(self, membership, positions=None, mask=None):
    """Returns the gradient of the mean loss, and the losses."""
    batch, outputs = self._data, self._outputs
    if positions is not None:
      if self._is_ahead:
        outputs = tf.gather(outputs, positions, axis=1)
      batch = batch.take(positions, mask)
    model = self._mixture.model
    weights = model.loss_weights(batch.y, batch.mask)
    with tf.GradientTape() as tape:
      tape.watch(membership)
      if self._is_ahead:
        mixed = self._mixture.mix(outputs, membership)
      else:
        mixed = self._mixture.apply(self._model_weights, membership, batch.x)
      losses = model.example_losses(mixed, batch.y)
      met = statistics.weighted_mean(losses, weights)
      mean = met.total / tf.maximum(met.weight, 1.0)
    slope = tape.gradient(
      mean, membership, unconnected_gradients=tf.UnconnectedGradients.ZERO
    )
    return self._loss_scale * slope, met


def gradient(
  mixture: mixing.Mixture,
  model_weights: Structure,
  membership: tf.Tensor,
  data: algorithm.ClientData,
  seed: tf.Tensor,
  config: MembershipConfig,
  loss_scale: float = 1.0,
) -> tuple[tf.Tensor, statistics.MeanStat]:
  """Returns the gradient of a client's mean loss in its membership.

  Args:
    mixture: The model.
    model_weights: Its weights.
    membership: `[num_canonical]`.
    data: The client's examples; without one the gradient is 0.
    seed: int32 `[2]`; draws the batch.
    config: Batch size: one random batch, or all examples.
    loss_scale: Factor on the loss, > 0.

  Returns:
    `[num_canonical]`, and the mean loss before.
  """
  if config.batch_size:
    positions, masks, _ = batches.draw_independent(
      seed, data.mask, 1, config.batch_size
    )
    data = data.take(positions[0], masks[0])
  return _Loss(mixture, model_weights, data, loss_scale).gradient(membership)


def descend(
  mixture: mixing.Mixture,
  model_weights: Structure,
  membership: tf.Tensor,
  data: algorithm.ClientData,
  seed: tf.Tensor,
  config: MembershipConfig,
  *,
  loss_scale: float = 1.0,
  client_weight: tf.Tensor | float = 1.0,
  penalty_gradient: tf.Tensor | float = 0.0,
) -> tuple[tf.Tensor, statistics.MeanStat]:
  """Returns the membership after mirror steps.

  Args:
    mixture: The model.
    model_weights: Its weights, frozen.
    membership: Starting point, `[num_canonical]`, on the simplex.
    data: The client's examples; without one only the penalty changes the
      membership, by one step an epoch.
    seed: int32 `[2]`; determines the order of the examples.
    config: Learning rate, epochs, batch size, floor.
    loss_scale: Factor on the loss, > 0.
    client_weight: w above.
    penalty_gradient: `[num_canonical]`, the same in all steps.

  Returns:
    `[num_canonical]`, on the simplex, and the mean loss of the examples, each
    before the step that reads it.
  """
  data = algorithm.ClientData(data.x, data.y, data.mask)  # Gathered once.
  loss = _Loss(mixture, model_weights, data, loss_scale, config.num_epochs)

  def step_on(membership, *batch):
    slope, met = loss.gradient(membership, *batch)
    stepped = entropic_step(
      membership,
      client_weight * slope + penalty_gradient,
      config.learning_rate,
      config.floor,
    )
    return stepped, met

  if not config.batch_size:
    if config.num_epochs == 1:
      return step_on(membership)
    num_steps, batch = config.num_epochs, lambda i: ()
  else:
    positions, masks, _ = batches.draw_epochs(
      seed, data.mask, config.num_epochs, config.batch_size
    )
    num_steps, batch = (
      tf.shape(positions)[0],
      lambda i: (positions[i], masks[i]),
    )

  def step(i, membership, total):
    stepped, met = step_on(membership, *batch(i))
    if config.batch_size:  # Steps of padding only change nothing.
      is_first = tf.equal(i % (num_steps // config.num_epochs), 0)
      is_real = is_first | (tf.reduce_max(masks[i]) > 0)  # pyright: ignore[reportPossiblyUnboundVariable]
      stepped = tf.where(is_real, stepped, membership)
    return i + 1, stepped, trees.add(total, met)

  _, membership, total = tf.while_loop(
    lambda i, *_: i < num_steps,
    step,
    (tf.constant(0), membership, statistics.empty_mean()),
    parallel_iterations=1,
  )
  return membership, total


def newcomers(
  mixture: mixing.Mixture, config: MembershipConfig, loss_scale: float = 1.0
) -> algorithm.Newcomers:
  """Returns the personalization of clients outside the training population.

  Memberships are fitted by full-batch steps from equal shares, with all else
  frozen.
  The server state is a NamedTuple with the field `model_weights`.

  Args:
    mixture: The model.
    config: Number and learning rate of the steps.
    loss_scale: Factor on the loss, > 0.
  """
  alone = dataclasses.replace(
    config,
    learning_rate=config.newcomer_learning_rate,
    num_epochs=max(1, config.num_newcomer_steps),
    batch_size=0,
  )

  def fit(server_state, data, seed):
    equal = mixture.equal_shares()
    if not config.num_newcomer_steps:
      return equal
    weights = server_state.model_weights
    return descend(
      mixture, weights, equal, data, seed, alone, loss_scale=loss_scale
    )[0]

  return algorithm.Newcomers(
    fit,
    lambda server_state, membership: mixture.personalize(
      server_state.model_weights, membership
    ),
  )
