"""Local objectives of clients: mean loss, proximal loss, tilted loss.

An objective is an argument of the local training loop in `local_training`; no
objective has a loop of its own.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tff_algos.core import algorithm
from tff_algos.core import model as model_lib
from tff_algos.core.structures import Structure
from tff_algos.numerics import proximal, statistics, trees

# (weights, batch) -> (objective [], loss of each example [batch]).
Objective = Callable[
  [Structure, algorithm.ClientData], tuple[tf.Tensor, tf.Tensor]
]


def mean_loss(model: model_lib.Model, loss_scale: float = 1.0) -> Objective:
  """Returns loss_scale times the mean loss over the batch's real examples.

  Where an example has labels at several places, the mean is over all places of
  the batch without padding.

  Args:
    model: The model to train.
    loss_scale: Factor on the loss; 0.5 gives the usual half of the squared
      error.
  """

  def objective(model_weights, batch):
    losses = model.example_losses(model.apply(model_weights, batch.x), batch.y)
    return _scale(_mean_over_labels(model, losses, batch), loss_scale), losses

  return objective


def weighted_mean_losses(
  model: model_lib.Model, loss_scale: float = 1.0
) -> Objective:
  """Returns the sum over stacked models of the weighted mean loss of each.

  The batch is a `weighted_data.WeightedData` with weights `[batch, models]`. A
  mean divides as `mean_loss` does, by the number of real examples or of their
  labels, not by their weights. The loss of an example is its weighted sum over
  the models.

  No model's loss depends on another's weights, so an elementwise optimizer, as
  those of `numerics.optimizers` without `clip_norm` are, solves a separate
  problem for each model.

  Args:
    model: The model whose weights are stacked, `[models, ...]`.
    loss_scale: Factor on the loss, as in `mean_loss`.
  """

  def objective(stacked_weights, batch):
    losses = model.map_stacked(
      lambda weights: model.example_losses(
        model.apply(weights, batch.x), batch.y
      ),
      stacked_weights,
    )
    weighted = tf.reduce_sum(batch.weights * tf.transpose(losses), axis=1)
    mean = _mean_over_labels(model, weighted, batch)
    return _scale(mean, loss_scale), weighted

  return objective


def tilted(base: Objective, slope: Structure) -> Objective:
  """Returns an objective plus <slope, weights>: `slope` is added to gradients.

  Args:
    base: The objective.
    slope: Like the weights; constant.
  """

  def objective(weights, batch):
    value, losses = base(weights, batch)
    return value + trees.inner_product(slope, weights), losses

  return objective


def real_mean(losses: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
  """Returns the mean over the real examples, `[]`; 0 if there are none.

  Args:
    losses: `[batch]`; losses of padding are ignored.
    mask: 1 for a real example and 0 for padding, `[batch]`.
  """

  @tf.custom_gradient
  def mean_of(losses: tf.Tensor) -> Any:
    real = tf.maximum(tf.reduce_sum(mask), 1.0)
    is_real = mask > 0
    kept = tf.where(is_real, losses, 0.0)

    # The same numbers by 2 operations, of TensorFlow's 29.
    def gradient(upstream: tf.Tensor) -> tf.Tensor:
      return tf.where(is_real, upstream / real, 0.0)

    return tf.reduce_sum(kept) / real, gradient

  return mean_of(losses)


def _mean_over_labels(model, losses, batch):
  """Returns the mean of examples' losses in which each label counts once."""
  weights = model.loss_weights(batch.y, batch.mask)
  if weights is batch.mask:
    return real_mean(losses, batch.mask)
  stat = statistics.weighted_mean(losses, weights)
  return stat.total / tf.maximum(stat.weight, 1.0)


def _scale(mean: tf.Tensor, loss_scale: float) -> tf.Tensor:
  return mean if loss_scale == 1 else loss_scale * mean


@dataclasses.dataclass(frozen=True)
class ProximalLoss:
  """An objective and weight / 2 * |weights - center|^2.

  The full penalty enters every step, for any batch size, and its gradient
  passes through the optimizer (it is not a decoupled decay).

  Attributes:
    base: The objective without the penalty.
    center: Like the weights.
    weight: Weight of the penalty, float32 `[]`, >= 0.
  """

  base: Objective
  center: Structure
  weight: tf.Tensor | float

  def __call__(
    self, weights: Structure, batch: algorithm.ClientData
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the objective, and the loss of each example without penalty."""
    value, losses = self.base(weights, batch)
    penalty = proximal.penalty(weights, self.center, self.weight)
    return value + penalty, losses

  def at_offset(
    self, offset: Structure, batch: algorithm.ClientData
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns `base` at center + offset.

    As a function of the offset, the gradient of the penalty is weight * offset.
    """
    return self.base(trees.add(self.center, offset), batch)

  def with_decay(self, decay: float) -> 'ProximalLoss':
    """Returns the objective and decay / 2 * |w|^2, up to a constant.

    Both penalties are combined into one with a centre between the old one and
    0.

    Args:
      decay: >= 0.
    """
    if not decay:
      return self
    weight = self.weight + decay
    center = trees.scale(self.center, self.weight / weight)
    return ProximalLoss(self.base, center, weight)
