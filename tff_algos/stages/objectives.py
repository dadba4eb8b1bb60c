"""Local objectives: what one optimisation step at a client makes smaller.

An objective is an argument of the one local loop in `local_training`, never a
loop of its own.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tff_algos.core import algorithm
from tff_algos.core import model as model_lib
from tff_algos.numerics import proximal

Structure = Any
# (weights, batch) -> (objective [], loss of each example [batch]).
Objective = Callable[
  [Structure, algorithm.ClientData], tuple[tf.Tensor, tf.Tensor]
]


def mean_loss(model: model_lib.Model, loss_scale: float = 1.0) -> Objective:
  """Returns loss_scale times the mean loss over the batch's real examples.

  Args:
    model: The model to train.
    loss_scale: Factor on the loss; 0.5 turns the squared error into the
      usual half of it.
  """

  def objective(weights, batch):
    losses = model.example_losses(model.apply(weights, batch.x), batch.y)
    real = tf.maximum(tf.reduce_sum(batch.mask), 1.0)
    kept = tf.where(batch.mask > 0, losses, tf.zeros_like(losses))
    return loss_scale * tf.reduce_sum(kept) / real, losses

  return objective


def proximal_loss(
  base: Objective, center: Structure, weight: tf.Tensor | float
) -> Objective:
  """Returns `base` plus weight / 2 * |weights - center|^2.

  The penalty enters every step whole, whatever the batch's size, and is part
  of the gradient that the optimizer sees (it is not a decoupled decay).
  """

  def objective(weights, batch):
    value, losses = base(weights, batch)
    return value + proximal.penalty(weights, center, weight), losses

  return objective
