"""Local training of canonical models through one model of mixed weights.

Where a client computes one model of mixed weights sum_k c_k theta_k (see
`mixing`), the loss depends on the canonical weights along its membership c
alone (Di et al., arXiv:2310.14337, Section 2.1): by the chain rule the gradient
in theta_k is c_k g, with g the gradient in the mixed weights. In rotated
coordinates whose first axis points along c, v = sum_k c_k theta_k / |c|, the
other coordinates have no gradient; weight decay shrinks all equally. SGD, with
or without momentum and decay, is invariant under rotations. So v, of the size
of one model, is trained, and every theta_k changes by c_k / |c| times the
change of v: the same steps, up to rounding, at the cost of one model instead of
`num_canonical`.
"""

import dataclasses
from collections import OrderedDict

import tensorflow as tf

from tff_algos.algorithms.ppfl import mixing
from tff_algos.core import algorithm
from tff_algos.core.structures import Structure
from tff_algos.numerics import statistics, trees
from tff_algos.stages.client import local_training, objectives


def train(
  mixture: mixing.Mixture,
  model_weights: Structure,
  membership: tf.Tensor,
  slots: Structure,
  data: algorithm.ClientData,
  seed: tf.Tensor,
  config: local_training.LocalTrainingConfig,
  *,
  loss_scale: float = 1.0,
) -> tuple[Structure, Structure, statistics.MeanStat]:
  """Trains shared and canonical weights on a client's mean loss.

  Args:
    mixture: The model.
    model_weights: Starting point.
    membership: `[num_canonical]`, on the simplex, held fixed.
    slots: Optimizer state of the weights that the client keeps, or `()`.
    data: The client's examples.
    seed: int32 `[2]`; as in `local_training.train_on`.
    config: Epochs, batch size, optimizer.
    loss_scale: Factor on the loss, > 0.

  Returns:
    As from `local_training.train_on`.
  """
  can_turn = (config.solver, config.optimizer.name) == ('descent', 'sgd')
  # A velocity that is kept is not along the membership of this round.
  can_turn = can_turn and not config.keeps_optimizer_state
  if not (mixture.mixes_parameters and can_turn):
    objective = objectives.mean_loss(mixture.at(membership), loss_scale)
    return local_training.train_on(
      objective, model_weights, slots, data, seed, config
    )
  length = tf.norm(membership)
  direction = membership / length
  old = model_weights['canonical']
  start = OrderedDict(
    shared=model_weights['shared'], along=trees.mix(direction, old)
  )
  if config.weight_decay:
    # Factor of weight decay on a weight without gradient.
    start['kept'] = tf.constant(1.0)

  def apply(weights, x):
    mixed = trees.scale(weights['along'], length)
    return mixture.model.apply(mixture.join(weights['shared'], mixed), x)

  end, loss = local_training.train(
    objectives.mean_loss(
      dataclasses.replace(mixture.model, apply=apply), loss_scale
    ),
    start,
    data,
    seed,
    config,
  )
  begin = start['along']
  if config.weight_decay:
    old, begin = (trees.scale(one, end['kept']) for one in (old, begin))
  moved = trees.subtract(end['along'], begin)
  canonical = tf.nest.map_structure(
    lambda leaf, change: leaf + tf.tensordot(direction, change, axes=0),
    old,
    moved,
  )
  return OrderedDict(shared=end['shared'], canonical=canonical), (), loss
