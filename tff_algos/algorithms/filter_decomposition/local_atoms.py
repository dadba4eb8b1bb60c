"""Private filter atoms of a client (Chen and Qiu 2025, section 4.1).

They are trained on the client's examples with the received coefficients and
head frozen, and never leave the client.
"""

import dataclasses
from collections import OrderedDict
from typing import NamedTuple

import tensorflow as tf

from tff_algos.algorithms.filter_decomposition import filter_groups
from tff_algos.core import algorithm, checks, errors
from tff_algos.core import model as model_lib
from tff_algos.numerics import statistics, trees
from tff_algos.stages.client import local_training as local_training_lib
from tff_algos.stages.client import objectives

# Value of `own` -> private groups of weights.
OWN_GROUPS = {
  'nothing': (),
  'atoms': (filter_groups.ATOMS,),
  'atoms_and_head': (filter_groups.ATOMS, filter_groups.HEAD),
}


@dataclasses.dataclass(frozen=True)
class LocalAtomsConfig:
  """Options of clients' private weights and of their training.

  Attributes:
    own: `'nothing'`; `'atoms'`, as printed; or `'atoms_and_head'`.
    in_every_round: Whether the clients of a round also train their own weights,
      with the received model frozen.
    refit_interval: Rounds between trainings of all clients' own weights with
      the new global model frozen; 0 for never. Set to the number of rounds for
      one training at the end.
    num_refit_epochs: Epochs of that training, >= 1.
    loss_scale: Factor on the loss, > 0.
    local_training: Options of the training of own weights.
  """

  own: str = 'nothing'
  in_every_round: bool = True
  refit_interval: int = 0
  num_refit_epochs: int = 10
  loss_scale: float = 1.0
  local_training: local_training_lib.LocalTrainingConfig = (
    local_training_lib.LocalTrainingConfig()
  )

  def __post_init__(self):
    checks.check_one_of('own', self.own, OWN_GROUPS)
    checks.check_int('refit_interval', self.refit_interval, minimum=0)
    checks.check_int('num_refit_epochs', self.num_refit_epochs, minimum=1)
    checks.check_positive('loss_scale', self.loss_scale)
    if self.is_on and not (self.in_every_round or self.refit_interval):
      raise errors.ConfigError(
        f'own is {self.own!r}, but with in_every_round False and '
        'refit_interval 0 no client would ever train these; change one of the '
        'two, '
        "or set own to 'nothing'"
      )

  @property
  def is_on(self) -> bool:
    """Returns whether clients have weights of their own."""
    return self.own != 'nothing'

  def refits_after(self, round_num: int) -> bool:
    """Returns whether all clients train their own weights after a round."""
    interval = self.refit_interval if self.is_on else 0
    return interval > 0 and round_num % interval == 0


class OwnWeights(NamedTuple):
  """Client state of private weights.

  Attributes:
    weights: Weights of the private groups.
    num_updates: Number of trainings, int32 `[]`; before the first, the weights
      are ignored.
  """

  weights: model_lib.Weights
  num_updates: tf.Tensor

  def serve(self, received: model_lib.Weights) -> model_lib.Weights:
    """Returns a model with the client's own weights, if it has trained them."""
    kept = filter_groups.take(received, self.weights)
    own = trees.select(self.num_updates > 0, self.weights, kept)
    return filter_groups.put(received, own)


def initial(model: model_lib.Model, config: LocalAtomsConfig) -> OwnWeights:
  """Returns the state of a client that never took part."""
  names = filter_groups.names_of(
    filter_groups.names_by_group(model), OWN_GROUPS[config.own]
  )
  spec = filter_groups.take(model.weights_spec(), names)
  return OwnWeights(trees.zeros(spec), tf.constant(0))


def train(
  model: model_lib.Model,
  received: model_lib.Weights,
  own: OwnWeights,
  data: algorithm.ClientData,
  seed: tf.Tensor,
  config: LocalAtomsConfig,
  num_epochs: int | None = None,
) -> tuple[OwnWeights, OrderedDict[str, statistics.MeanStat]]:
  """Trains a client's own weights, with the received weights frozen.

  Training may diverge from atoms that were trained with other coefficients. The
  client then keeps its old atoms; its result for the global model is not
  affected.

  Args:
    model: The model.
    received: The global model.
    own: The client's own weights; the first training starts from the received
      ones.
    data: The client's examples; without any, the weights are unchanged.
    seed: int32 `[2]`.
    config: Options of the training.
    num_epochs: Number of epochs; None for that of `config.local_training`.

  Returns:
    The client's own weights; and `own_loss`, the mean loss of the examples, and
    `own_failed`, the share of clients whose training was not finite.
  """
  base = objectives.mean_loss(model, config.loss_scale)
  training = config.local_training
  if num_epochs is not None:
    training = dataclasses.replace(
      training, num_local_epochs=num_epochs, num_local_steps=0
    )

  def objective(weights, batch):
    return base(filter_groups.put(received, weights), batch)

  start = filter_groups.take(own.serve(received), own.weights)
  weights, loss = local_training_lib.train(
    objective, start, data, seed, training
  )
  trained = OwnWeights(weights, own.num_updates + 1)
  has_examples = tf.reduce_sum(data.mask) > 0
  is_finite = trees.all_finite((weights, loss))
  metrics = OrderedDict(
    own_loss=trees.select(is_finite, loss, trees.zeros_like(loss)),
    own_failed=statistics.MeanStat(
      tf.cast(has_examples & tf.logical_not(is_finite), tf.float32),
      tf.cast(has_examples, tf.float32),
    ),
  )
  return trees.select(has_examples & is_finite, trained, own), metrics
