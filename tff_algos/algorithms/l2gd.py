"""L2GD: personalized models with a penalty on their distance to the mean.

Hanzely and Richtarik, "Federated Learning of a Mixture of Global and Local
Models" (2020), arXiv:2002.05516, Algorithm 1, loopless local gradient descent,
for its problem (2):

  min over x_i of  1/n sum_i f_i(x_i) + lambda / (2n) sum_i |x_i - mean|^2

In each iteration all clients use the same coin flip. With probability 1 - p
each takes a local step, x_i <- x_i - alpha / (n (1 - p)) grad f_i(x_i), on all
its examples; with probability p an aggregation step towards the mean,
x_i <- x_i - alpha lambda / (n p) (x_i - mean).

A round is one communication. Aggregation steps keep the mean, so a run of them
needs it once, and a run of local steps needs no communication; the coin flips
are alternating runs of geometric lengths. Here a round is a run of aggregation
steps and the run of local steps after it:
  plan            all clients
  make_message    the mean of the last round's uploaded models, and the lengths
                  B and A of the two runs, drawn by the server
  client_work     x_i <- mean + (1 - alpha lambda / (n p))^B (x_i - mean), which
                  is B aggregation steps; A local steps; upload x_i
  aggregation     mean of the clients' models
  server_update   the mean
So T rounds are T / (p (1 - p)) iterations on average, which is the paper's
count of p (1 - p) communications an iteration. At first all models are equal
and aggregation has no effect, so round 1 begins with its local steps.

Theory (the paper's, for f_i L-smooth and mu-strongly convex): for alpha / n <=
  1 / (2 max(L / (1 - p), lambda / p)) the expected squared error shrinks by the
  factor 1 - alpha mu / n an iteration, down to a level in proportion to alpha.
  Both the iterations and the communications that this takes are fewest for
  p = lambda / (L + lambda), with alpha / n = 1 / (2 (L + lambda)).
Names: lambda = proximal_weight, p = aggregation_prob, alpha / n =
  client_learning_rate (so that it does not depend on the number of clients).
Reductions (tested): proximal_weight 0 = each client alone; alpha lambda / (n p)
  = 1 = FedAvg with A full-batch local epochs and equal weights; the optimum for
  f_i = |x - c_i|^2 / 2 is x_i = (c_i + lambda mean of c) / (1 + lambda).
Cost per client and round: downlink P + 2, uplink P floats, one local solve (the
  run of local steps).

n counts the clients with examples: f_i of a client without examples is 0, so it
is not in the mean and only follows it. The model served to a client is x_i
after its local steps; new users get the mean.
"""

import dataclasses
import math
from collections import OrderedDict
from typing import NamedTuple

import tensorflow as tf

from tff_algos.core import algorithm, carrying, checks, errors
from tff_algos.core import model as model_lib
from tff_algos.numerics import index_random, trees
from tff_algos.rounds import aggregation
from tff_algos.stages.client import gradients, objectives
from tff_algos.stages.server import client_sampling, global_model
from tff_algos.stages.server import robust_aggregation as robust

# The longest run of equal coins that 32 random bits give has 22.9 / p of them.
_LEAST_PROB = 1e-6


@dataclasses.dataclass(frozen=True)
class L2gdConfig:
  """Options of L2GD.

  Attributes:
    proximal_weight: lambda, >= 0: 0 trains every client alone, a large value
      makes all models equal.
    aggregation_prob: p, from 1e-6 to 1 - 1e-6. A round has 1 / p local steps on
      average.
    client_learning_rate: alpha / n, > 0. A local step has the learning rate
      client_learning_rate / (1 - aggregation_prob); an aggregation step covers
      the share client_learning_rate * proximal_weight / aggregation_prob of the
      distance to the mean, which must be at most 1 (the theory: 1/2).
    loss_scale: Factor on the loss, > 0.
    aggregation: Aggregation rule in place of the mean.
  """

  proximal_weight: float = 1.0
  aggregation_prob: float = 0.2
  client_learning_rate: float = 0.1
  loss_scale: float = 1.0
  aggregation: robust.AggregationConfig = robust.AggregationConfig()

  def __post_init__(self):
    checks.check_at_least('proximal_weight', self.proximal_weight, 0)
    checks.check_proper_share('aggregation_prob', self.aggregation_prob)
    if not _LEAST_PROB <= self.aggregation_prob <= 1 - _LEAST_PROB:
      raise errors.ConfigError(
        f'aggregation_prob must be from {_LEAST_PROB:g} to 1 - '
        f'{_LEAST_PROB:g}, got {self.aggregation_prob!r}: the numbers of steps '
        'of a round would overflow'
      )
    checks.check_positive('client_learning_rate', self.client_learning_rate)
    checks.check_positive('loss_scale', self.loss_scale)
    if self.share_to_mean > 1:
      raise errors.ConfigError(
        'client_learning_rate * proximal_weight / aggregation_prob is '
        f'{self.share_to_mean:g}; it is the share of the distance to the mean '
        'that an aggregation step covers, and must be at most 1. Lower '
        'client_learning_rate or proximal_weight, or raise aggregation_prob'
      )

  @property
  def share_to_mean(self) -> float:
    """Returns alpha lambda / (n p)."""
    return (
      self.client_learning_rate * self.proximal_weight / self.aggregation_prob
    )

  @property
  def local_learning_rate(self) -> float:
    """Returns alpha / (n (1 - p))."""
    return self.client_learning_rate / (1 - self.aggregation_prob)


class ServerState(NamedTuple):
  """Server state between rounds.

  Attributes:
    model_weights: The mean of the last uploaded models.
    num_rounds: Rounds so far, int32 `[]`.
    seed: Seed of the coin flips, int32 `[2]`.
  """

  model_weights: model_lib.Weights
  num_rounds: tf.Tensor
  seed: tf.Tensor


class ClientState(NamedTuple):
  """Client state between rounds.

  Attributes:
    personalized_weights: x_i.
  """

  personalized_weights: model_lib.Weights


class Message(NamedTuple):
  """Broadcast message to all clients.

  Attributes:
    mean: Like the model.
    num_aggregation_steps: B, int32 `[]`, >= 0.
    num_local_steps: A, int32 `[]`, >= 1.
  """

  mean: model_lib.Weights
  num_aggregation_steps: tf.Tensor
  num_local_steps: tf.Tensor


class TrainResult(NamedTuple):
  """Upload of a client.

  Attributes:
    local_weights: x_i after the local steps.
    client_weight: 1, float32 `[]`; 0 for a client without examples.
  """

  local_weights: model_lib.Weights
  client_weight: tf.Tensor


def build_l2gd(
  model: model_lib.Model, config: L2gdConfig
) -> algorithm.FederatedAlgorithm:
  """Builds L2GD for a model with one instance per client."""
  return global_model.build_algorithm(
    'l2gd',
    model,
    init_server_state=robust.checked(
      config.aggregation,
      lambda seed, num_clients: ServerState(
        model.initialize(seed), tf.constant(0), tf.convert_to_tensor(seed)
      ),
    ),
    # The run's seed: all clients start from one model.
    init_client_state=lambda run_seed, client_seed: ClientState(
      model.initialize(run_seed)
    ),
    phases={'train': _build_training(model, config)},
    plan_round=_build_plan(model),
    carry=carrying.Carry(
      {
        'model_weights': carrying.KEEP,
        'num_rounds': carrying.KEEP,
        'seed': carrying.KEEP,
      },
      newcomer_state=lambda server_state: ClientState(
        server_state.model_weights
      ),
    ),
    personalized_weights=lambda server_state, client_state, client_index: (
      client_state.personalized_weights
    ),
  )


def _build_training(model, config):
  """Returns the phase: one run of aggregation steps, one of local steps."""
  objective = objectives.mean_loss(model, config.loss_scale)

  def train(message, client_input, client_state, data, seed):
    del client_input
    kept = tf.pow(
      1 - config.share_to_mean,
      tf.cast(message.num_aggregation_steps, tf.float32),
    )
    offset = trees.subtract(client_state.personalized_weights, message.mean)
    weights, loss = gradients.descend(
      objective,
      trees.add(message.mean, trees.scale(offset, kept)),
      data,
      seed,
      config.local_learning_rate,
      message.num_local_steps,
    )
    weight = client_sampling.client_weight(data, 'uniform')
    return algorithm.ClientOutput(
      TrainResult(weights, weight), ClientState(weights), OrderedDict(loss=loss)
    )

  def update_mean(server_state, aggregates):
    mean = aggregates['local_weights']
    num_aggregation_steps, num_local_steps = _run_lengths(server_state, config)
    return server_state._replace(
      model_weights=aggregation.mean_or_old(mean, server_state.model_weights),
      num_rounds=server_state.num_rounds + 1,
    ), OrderedDict(
      num_aggregation_steps=num_aggregation_steps,
      num_local_steps=num_local_steps,
    )

  phase = algorithm.Phase(
    name='train',
    make_message=lambda server_state: Message(
      server_state.model_weights, *_run_lengths(server_state, config)
    ),
    client_work=train,
    aggregation={'local_weights': aggregation.WeightedMean('client_weight')},
    server_update=update_mean,
    uploads={'local_weights': lambda message, *_: message.mean},
  )
  return robust.replace_means(phase, config.aggregation, 'model_weights')


def _run_lengths(server_state, config):
  """Returns B and A of the next round, int32 `[]` each."""
  p = config.aggregation_prob
  # A run ends when the coin shows the other side.
  num_aggregation_steps = _geometric(server_state, 0, 1 - p)
  return (
    tf.where(server_state.num_rounds > 0, num_aggregation_steps, 0),
    _geometric(server_state, 1, p),
  )


def _geometric(server_state, which, prob):
  """Returns a geometric draw: flips until success, int32 `[]`."""
  bits = index_random.random_bits(
    server_state.seed, server_state.num_rounds, tf.constant(which)
  )
  uniform = (tf.cast(bits, tf.float64) + 0.5) / 2.0**32
  failures = tf.floor(tf.math.log(uniform) / math.log1p(-prob))
  return 1 + tf.cast(failures, tf.int32)


def _build_plan(model):
  num_parameters = trees.num_entries(model.weights_spec())

  def plan_round(server_state, population, round_num, seed):
    del server_state, round_num, seed
    everyone = population.all_clients
    floats = len(everyone) * num_parameters
    yield algorithm.PhaseCall(
      'train',
      everyone,
      (),
      algorithm.Cost(floats + 2 * len(everyone), floats, len(everyone)),
    )

  return plan_round
