"""Per-FedAvg: meta-learning (MAML) of an initial model for personalization.

Fallah, Mokhtari and Ozdaglar, "Personalized Federated Learning: A Meta-Learning
Approach" (2020), arXiv:2002.07948, Algorithm 1 and its approximations FO and
HF. It minimises the mean over clients of f_i(w - alpha grad f_i(w)).

Round t:
  plan            sample `cohort_size` clients uniformly; after the update, all
  make_message    the global model w
  client_work     tau times: w~ <- w - alpha grad f(w; D), then
                  w <- w - beta (I - alpha hess f(w; D'')) grad f(w~; D')
  aggregation     mean of the clients' models
  server_update   global model <- the mean
  then `personalize`, on every client: alpha-steps on its training examples

D, D' and D'' are drawn anew in every step, independently, each from all of the
client's examples without replacement. Of the Hessian only the product with
v = grad f(w~; D') is needed, which is one of
  exact           by automatic differentiation (Algorithm 1 as printed)
  hessian_free    (grad f(w + delta v; D'') - grad f(w - delta v; D''))
                  / (2 delta)
  first_order     omitted

The model served to a client is its adapted model. Adaptation needs training
examples, which are not available in serving; so the phase `personalize` adapts
the new global model on every client's training split, by full-batch steps, and
the client keeps the result. No model is adapted on an example that it is scored
on. Before the first such phase a client is served the initial model. New users
get w.

Names: alpha = inner_learning_rate, beta = client_learning_rate, tau =
  num_local_steps, delta = finite_difference_step, D = batch_size examples,
  A_k = cohort.
Reductions (tested): alpha = 0 is FedAvg with tau steps on fresh batches; on
  quadratics hessian_free = exact, and exact = (I - alpha H) first_order.
Cost: a client of the cohort receives P and sends P floats and solves one local
  problem, of two gradients a step and the product (for hessian_free two more
  gradients). `personalize` sends P floats to each client of the population,
  which counts as one local problem, without upload.
"""

import dataclasses
import functools
from collections import OrderedDict
from typing import NamedTuple

import tensorflow as tf

from tff_algos.core import algorithm, carrying, checks
from tff_algos.core import model as model_lib
from tff_algos.numerics import statistics, trees, unit_dropout
from tff_algos.rounds import aggregation
from tff_algos.stages.client import batches, gradients, objectives
from tff_algos.stages.server import client_sampling, global_model
from tff_algos.stages.server import robust_aggregation as robust

VARIANTS = ('exact', 'hessian_free', 'first_order')


@dataclasses.dataclass(frozen=True)
class PerFedAvgConfig:
  """Options of Per-FedAvg.

  Attributes:
    cohort_size: Clients sampled a round, >= 0; 0 for all that have examples.
    variant: Treatment of the Hessian: `'exact'`, `'hessian_free'` or
      `'first_order'`.
    inner_learning_rate: alpha, of the adaptation step, >= 0.
    client_learning_rate: beta, of the meta-learning step, > 0.
    num_local_steps: tau, steps of meta-learning a round, >= 1.
    batch_size: Examples of each batch, >= 1; all of a client that has fewer.
    finite_difference_step: delta of `'hessian_free'`, > 0. In float32 a much
      smaller step loses more by rounding than it gains.
    num_personal_steps: Steps of size alpha that adapt the global model to a
      client before it is served, >= 1; 1 as printed.
    personalization_interval: Rounds between adaptations of all clients, >= 1;
      in other rounds they keep their adapted models. Let it divide the number
      of rounds and `evaluation_interval`, so that evaluated models are adapted
      from the present global model.
    weighting: Client weight in the mean: `'uniform'`, all the same, as
      printed; or `'examples'`, its number of examples.
    loss_scale: Factor on the loss, > 0.
    aggregation: Aggregation rule in place of the mean.
  """

  cohort_size: int = 10
  variant: str = 'hessian_free'
  inner_learning_rate: float = 0.1
  client_learning_rate: float = 0.1
  num_local_steps: int = 10
  batch_size: int = 10
  finite_difference_step: float = 0.01
  num_personal_steps: int = 1
  personalization_interval: int = 1
  weighting: str = 'uniform'
  loss_scale: float = 1.0
  aggregation: robust.AggregationConfig = robust.AggregationConfig()

  def __post_init__(self):
    checks.check_int('cohort_size', self.cohort_size, minimum=0)
    for name in (
      'num_local_steps',
      'batch_size',
      'num_personal_steps',
      'personalization_interval',
    ):
      checks.check_int(name, getattr(self, name), minimum=1)
    checks.check_one_of('variant', self.variant, VARIANTS)
    checks.check_one_of('weighting', self.weighting, client_sampling.WEIGHTINGS)
    checks.check_at_least('inner_learning_rate', self.inner_learning_rate, 0)
    for name in (
      'client_learning_rate',
      'finite_difference_step',
      'loss_scale',
    ):
      checks.check_positive(name, getattr(self, name))
    self.aggregation.check_cohort_size('cohort_size', self.cohort_size)

  @property
  def personalizes_after(self) -> tuple[str, int]:
    """Returns the option of rounds between personalizations, and its value."""
    return 'personalization_interval', self.personalization_interval


class ServerState(NamedTuple):
  """Server state between rounds.

  Attributes:
    model_weights: The global model.
  """

  model_weights: model_lib.Weights


class ClientState(NamedTuple):
  """Client state between rounds.

  Attributes:
    personalized_weights: The global model, adapted to the client.
  """

  personalized_weights: model_lib.Weights


class TrainResult(NamedTuple):
  """Upload of a client.

  Attributes:
    local_weights: The client's model after the meta-learning steps.
    client_weight: Weight of the client in the mean, float32 `[]`.
  """

  local_weights: model_lib.Weights
  client_weight: tf.Tensor


def build_per_fed_avg(
  model: model_lib.Model, config: PerFedAvgConfig
) -> algorithm.FederatedAlgorithm:
  """Builds Per-FedAvg with full adaptation of a model."""
  return global_model.build_algorithm(
    'per_fed_avg',
    model,
    init_server_state=robust.checked(
      config.aggregation,
      lambda seed, num_clients: ServerState(model.initialize(seed)),
    ),
    # The run's seed: the model that the server starts with.
    init_client_state=lambda run_seed, client_seed: ClientState(
      model.initialize(run_seed)
    ),
    phases={
      'train': _build_training(model, config),
      'personalize': _build_personalization(model, config),
    },
    plan_round=_build_plan(model, config),
    carry=carrying.Carry(
      {
        'model_weights': carrying.KEEP,
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
  """Returns the phase of Algorithm 1, lines 3-13."""
  learn = functools.partial(
    _meta_learn, objectives.mean_loss(model, config.loss_scale), config
  )

  def train(message, client_input, client_state, data, seed):
    del client_input
    weights, loss = learn(message, data, seed)
    weight = client_sampling.client_weight(data, config.weighting)
    return algorithm.ClientOutput(
      TrainResult(weights, weight), client_state, OrderedDict(loss=loss)
    )

  def update_model(server_state, aggregates):
    return ServerState(
      aggregation.mean_or_old(
        aggregates['local_weights'], server_state.model_weights
      )
    ), OrderedDict()

  phase = algorithm.Phase(
    name='train',
    make_message=lambda server_state: server_state.model_weights,
    client_work=train,
    aggregation={'local_weights': aggregation.WeightedMean('client_weight')},
    server_update=update_model,
    uses_client_state=False,
    uploads={'local_weights': lambda message, *_: message},
  )
  return robust.replace_means(phase, config.aggregation, 'model_weights')


def _build_personalization(model, config):
  """Returns the phase in which clients adapt the global model and keep it."""
  objective = objectives.mean_loss(model, config.loss_scale)

  def personalize(message, client_input, client_state, data, seed):
    del client_input, client_state
    weights, loss = gradients.descend(
      objective,
      message,
      data,
      seed,
      config.inner_learning_rate,
      config.num_personal_steps,
    )
    return algorithm.ClientOutput(
      OrderedDict(), ClientState(weights), OrderedDict(loss=loss)
    )

  return global_model.local_phase('personalize', personalize)


def _meta_learn(objective, config, weights, data, seed):
  """Returns the weights after tau steps, lines 6-10, and the loss on D'."""
  num_steps, alpha = config.num_local_steps, config.inner_learning_rate
  is_first_order = config.variant == 'first_order'
  # Batches 0 to tau - 1 are the D of the steps, then come D' and D''.
  drawn = batches.draw_independent(
    seed, data.mask, (2 if is_first_order else 3) * num_steps, config.batch_size
  )

  def batch(i):
    return drawn.read(data, i, seed)

  @gradients.as_one
  def step_on(weights, inner, outer, curvature):
    slope, _ = _gradient(objective, weights, *inner)
    adapted = trees.subtract(weights, trees.scale(slope, alpha))
    direction, losses = _gradient(objective, adapted, *outer)
    if not is_first_order:
      product = _multiply(objective, config, weights, direction, *curvature)
      direction = trees.subtract(direction, trees.scale(product, alpha))
    step = trees.scale(direction, config.client_learning_rate)
    return trees.subtract(weights, step), losses

  def step(i, weights, loss):
    outer = batch(num_steps + i)
    curvature = () if is_first_order else batch(2 * num_steps + i)
    weights, losses = step_on(weights, batch(i), outer, curvature)
    return (
      i + 1,
      weights,
      trees.add(loss, statistics.weighted_mean(losses, outer[0].mask)),
    )

  _, weights, loss = tf.while_loop(
    lambda i, *_: i < num_steps,
    step,
    (tf.constant(0), weights, statistics.empty_mean()),
    parallel_iterations=1,
  )
  return weights, loss


def _gradient(objective, weights, batch, draws):
  """Returns the gradient on a batch, and the losses."""
  with unit_dropout.in_step(0.0, draws):
    return gradients.gradient(objective, weights, batch)


def _multiply(objective, config, weights, vector, batch, draws):
  """Returns the Hessian on a batch times a vector, exact or approximate."""
  with unit_dropout.in_step(0.0, draws):
    if config.variant == 'exact':
      return gradients.hessian_product(objective, weights, batch, vector)
    return gradients.difference_product(
      objective, weights, batch, vector, config.finite_difference_step
    )


def _build_plan(model, config):
  num_parameters = trees.num_entries(model.weights_spec())
  train = client_sampling.build_uniform_plan(
    config.cohort_size,
    downlink_floats=num_parameters,
    uplink_floats=num_parameters,
  )

  def plan_round(server_state, population, round_num, seed):
    yield from train(server_state, population, round_num, seed)
    if round_num % config.personalization_interval == 0:
      yield global_model.local_call(
        'personalize', population.all_clients, num_parameters
      )

  return plan_round
