"""First-order optimizers as pure functions of (weights, gradient, slots)."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf

from tff_algos.core import checks, errors
from tff_algos.core.structures import Structure
from tff_algos.numerics import trees

# Weight decay, the factor of |weights|^2 / 2 in the objective; None for none.
Decay: TypeAlias = tf.Tensor | float | None


class Optimizer(NamedTuple):
  """An optimizer whose state travels as an argument.

  Attributes:
    initialize: weights -> slots.
    gradient_scale: is_real -> float32 `[]`, the factor by which the caller
      multiplies the gradient before `step`.
    step: (weights, scaled gradient, slots, is_real, decay) -> (weights, slots).
      Adds the gradient of decay / 2 * |weights|^2 itself; None for no decay. A
      step with `is_real` 0 (float32 `[]`, else 1) is padding and changes
      nothing; its gradient must be finite.
  """

  initialize: Callable[[Structure], Structure]
  gradient_scale: Callable[[tf.Tensor], tf.Tensor]
  step: Callable[
    [Structure, Structure, Structure, tf.Tensor, Decay],
    tuple[Structure, Structure],
  ]


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
  """Which optimizer, with which constants.

  Attributes:
    name: `'sgd'` or `'adam'`.
    learning_rate: > 0.
    momentum: Of SGD, in [0, 1).
    beta_1: Decay of Adam's first moment, in [0, 1).
    beta_2: Decay of Adam's second moment, in [0, 1).
    epsilon: Adam's constant beside the root of the second moment, > 0.
    clip_norm: Largest norm of a step's gradient, over all weights together; a
      longer one is scaled to it, see `clipped`. >= 0; 0 for no limit.
  """

  name: str = 'sgd'
  learning_rate: float = 0.1
  momentum: float = 0.0
  beta_1: float = 0.9
  beta_2: float = 0.999
  epsilon: float = 1e-8
  clip_norm: float = 0.0

  def __post_init__(self) -> None:
    checks.check_one_of('name', self.name, ('sgd', 'adam'))
    checks.check_positive('learning_rate', self.learning_rate)
    for name in ('momentum', 'beta_1', 'beta_2'):
      checks.check_below_one(name, getattr(self, name))
    checks.check_positive('epsilon', self.epsilon)
    checks.check_at_least('clip_norm', self.clip_norm, 0)
    if self.name == 'adam' and self.momentum:
      raise errors.ConfigError(
        f"momentum is {self.momentum:g}, which is SGD's; Adam has beta_1: set "
        'momentum to 0'
      )
    for name, is_kept in (
      ('beta_1', np.float32(self.beta_1) < 1),
      ('beta_2', np.float32(self.beta_2) < 1),
      ('epsilon', np.float32(self.epsilon) > 0),
    ):
      if not is_kept:
        value = getattr(self, name)
        raise errors.ConfigError(
          f'{name} is {value!r}, which is {np.float32(value)} in float32: Adam '
          f'would divide by 0; the default is {getattr(type(self), name)!r}'
        )


def build_optimizer(config: OptimizerConfig) -> Optimizer:
  """Returns the optimizer that the config names."""
  if config.name == 'adam':
    optimizer = adam(
      config.learning_rate, config.beta_1, config.beta_2, config.epsilon
    )
  else:
    optimizer = sgd(config.learning_rate, config.momentum)
  return clipped(optimizer, config.clip_norm) if config.clip_norm else optimizer


def clipped(optimizer: Optimizer, norm: float) -> Optimizer:
  """Returns an optimizer with gradient clipping by norm.

  Only the gradient passed to `step` is clipped: not that of weight decay, nor,
  in `stages.client.local_training`, that of a proximal term (Pascanu, Mikolov
  and Bengio 2013, Algorithm 1). A finite gradient whose squared norm overflows
  float32, from a norm of 1.8e19 on after `gradient_scale`, is taken for 0.

  Args:
    optimizer: Takes the step.
    norm: Of all entries of the gradient together, > 0.
  """

  def step(
    weights: Structure,
    gradient: Structure,
    slots: Structure,
    is_real: tf.Tensor,
    decay: Decay,
  ) -> tuple[Structure, Structure]:
    limit = norm * optimizer.gradient_scale(is_real)
    length = tf.sqrt(trees.squared_norm(gradient))
    # A padded step has a limit of 0, and perhaps a gradient of 0.
    share = tf.math.divide_no_nan(limit, tf.maximum(limit, length))
    return optimizer.step(
      weights, trees.scale(gradient, share), slots, is_real, decay
    )

  return optimizer._replace(step=step)


def sgd(learning_rate: float, momentum: float = 0.0) -> Optimizer:
  """Returns w <- w - v with v <- momentum * v + learning_rate * gradient."""

  def initialize(weights: Structure) -> Structure:
    return trees.zeros_like(weights) if momentum else ()

  def gradient_scale(is_real: tf.Tensor) -> tf.Tensor:
    # A rate of 0 skips a padded step without another pass over the weights.
    return learning_rate * is_real

  def step(
    weights: Structure,
    gradient: Structure,
    slots: Structure,
    is_real: tf.Tensor,
    decay: Decay,
  ) -> tuple[Structure, Structure]:
    if not momentum:
      if decay is not None:  # Adding its gradient would take one more pass.
        weights = trees.scale(weights, 1 - gradient_scale(is_real) * decay)
      return trees.subtract(weights, gradient), slots
    if decay is not None:
      pull = trees.scale(weights, gradient_scale(is_real) * decay)
      gradient = trees.add(gradient, pull)
    velocity = trees.add(
      trees.scale(slots, tf.pow(momentum, is_real)), gradient
    )
    return trees.subtract(weights, trees.scale(velocity, is_real)), velocity

  return Optimizer(initialize, gradient_scale, step)


class AdamSlots(NamedTuple):
  """Adam's state.

  Attributes:
    first: Running mean of the gradient, like the weights.
    second: Running mean of the squared gradient, like the weights.
    num_steps: Steps taken, float32 `[]`.
  """

  first: Structure
  second: Structure
  num_steps: tf.Tensor


def adam(
  learning_rate: float,
  beta_1: float = 0.9,
  beta_2: float = 0.999,
  epsilon: float = 1e-8,
) -> Optimizer:
  """Returns Adam with bias correction (Kingma and Ba 2015, Algorithm 1)."""

  def initialize(weights: Structure) -> AdamSlots:
    return AdamSlots(
      trees.zeros_like(weights), trees.zeros_like(weights), tf.constant(0.0)
    )

  def gradient_scale(is_real: tf.Tensor) -> tf.Tensor:
    # The gradient's share of the first moment, without a pass of its own.
    return (1 - beta_1) * is_real

  def step(
    weights: Structure,
    gradient: Structure,
    slots: Structure,
    is_real: tf.Tensor,
    decay: Decay,
  ) -> tuple[Structure, Structure]:
    if decay is not None:
      pull = trees.scale(weights, gradient_scale(is_real) * decay)
      gradient = trees.add(gradient, pull)
    # A power of 0 keeps the moments in a padded step.
    first = trees.add(
      trees.scale(slots.first, tf.pow(beta_1, is_real)), gradient
    )
    squares = tf.nest.map_structure(
      lambda leaf: (1 - beta_2) / (1 - beta_1) ** 2 * tf.square(leaf), gradient
    )
    second = trees.add(
      trees.scale(slots.second, tf.pow(beta_2, is_real)), squares
    )
    num_steps = slots.num_steps + is_real
    # The bias corrections are factors of two numbers, not of two structures
    # (Kingma and Ba 2015, end of section 2).
    num_corrected = tf.maximum(num_steps, 1.0)
    root = tf.sqrt(1 - tf.pow(beta_2, num_corrected))
    rate = learning_rate * is_real * root / (1 - tf.pow(beta_1, num_corrected))

    def step_leaf(leaf: tf.Tensor, m: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
      return leaf - rate * (m / (tf.sqrt(v) + epsilon * root))

    stepped = tf.nest.map_structure(step_leaf, weights, first, second)
    return stepped, AdamSlots(first, second, num_steps)

  return Optimizer(initialize, gradient_scale, step)
