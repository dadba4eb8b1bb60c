"""FedEM: federated EM for clients that are mixtures of component models.

Marfoq, Neglia, Bellet, Kameni and Vidal, "Federated Multi-Task Learning under a
Mixture of Distributions" (NeurIPS 2021), arXiv:2108.10252, Algorithm 1.

Round t:
  plan            sample `cohort_size` clients uniformly
  make_message    all cluster models
  client_work     E-step: q_is ~ membership_s exp(-loss_scale loss_is), for each
                  example i and model s; M-step: membership_s = mean_i q_is; and
                  each model is trained on mean_i q_is loss_is
  aggregation     for each model, the mean over the cohort
  server_update   cluster models <- the means

Names: M = num_clusters, pi_t = membership, q_t = responsibilities, theta_m =
  cluster_models, n_t = num_examples.
Reductions (tested): one cluster, weighting by examples = FedAvg, up to
  rounding; equal models stay equal; losses far apart = each example trains its
  best-fitting model.
Cost per client and round: downlink M P, uplink M P floats, M local solves, and
  a forward pass of all models. The solves share one loop, as no model's loss
  depends on another model.

Where an example has labels at several places, as a sentence has, loss_is is
their sum, -log p_s(y_i | x_i), and means of losses are over labels, but for
the metric `loss`, a mean over examples.

The model served to a client is the mixture of the predictions of the present
cluster models, weighted by its membership (Proposition 2.1); equal weights for
a client that never took part. The membership is not uploaded.
"""

import dataclasses
from collections import OrderedDict
from typing import Any, NamedTuple

import tensorflow as tf

from tff_algos.core import algorithm, carrying, checks, errors
from tff_algos.core import model as model_lib
from tff_algos.numerics import statistics, trees
from tff_algos.rounds import aggregation
from tff_algos.stages.client import local_training as local_training_lib
from tff_algos.stages.client import objectives, weighted_data
from tff_algos.stages.clusters import assignment, mixtures
from tff_algos.stages.clusters import initialization as initialization_lib
from tff_algos.stages.server import client_sampling
from tff_algos.stages.server import robust_aggregation as robust


@dataclasses.dataclass(frozen=True)
class FedEmConfig:
  """Options of FedEM.

  Attributes:
    num_clusters: M, number of component models, >= 1.
    cohort_size: Clients sampled a round, >= 0; 0 for all that have examples, as
      printed.
    weighting: Client weight in the means: `'examples'`, its number of
      examples, as printed; or `'uniform'`, all the same.
    loss_scale: Factor on the loss that makes it a negative log-likelihood, in
      the E-step and in training, > 0: 1 for the cross-entropy, 0.5 for the
      squared error under noise of variance 1.
    local_training: Options of local training; without clip_norm for M > 1. The
      optimizer state may be kept.
    initialization: Initialization of the cluster models.
    aggregation: Aggregation rule in place of the means; the rule sees a
      client's models as one vector.
  """

  num_clusters: int = 2
  cohort_size: int = 10
  weighting: str = 'examples'
  loss_scale: float = 1.0
  local_training: local_training_lib.LocalTrainingConfig = (
    local_training_lib.LocalTrainingConfig()
  )
  initialization: initialization_lib.InitializationConfig = (
    initialization_lib.InitializationConfig()
  )
  aggregation: robust.AggregationConfig = robust.AggregationConfig()

  def __post_init__(self):
    checks.check_int('num_clusters', self.num_clusters, minimum=1)
    checks.check_int('cohort_size', self.cohort_size, minimum=0)
    checks.check_one_of('weighting', self.weighting, client_sampling.WEIGHTINGS)
    checks.check_positive('loss_scale', self.loss_scale)
    clip_norm = self.local_training.optimizer.clip_norm
    if clip_norm and self.num_clusters > 1:
      raise errors.ConfigError(
        f'local_training.optimizer.clip_norm must be 0, got {clip_norm:g}: it '
        f'limits the norm over all {self.num_clusters} models, so that a large '
        'gradient of one would shorten the steps of the others'
      )
    self.initialization.check_cohort_size(self.cohort_size, self.num_clusters)
    self.aggregation.check_cohort_size('cohort_size', self.cohort_size)


class ServerState(NamedTuple):
  """Server state between rounds.

  Attributes:
    cluster_models: `[num_clusters, ...]`.
    seed_losses: As from `initialization.seed_losses`.
  """

  cluster_models: model_lib.Weights
  seed_losses: Any = ()


class ClientState(NamedTuple):
  """Client state between rounds.

  Attributes:
    membership: Mixture weights, `[num_clusters]` float32, on the simplex; equal
      before the client's first round. A weight that has become 0 stays 0.
    slots: Optimizer state of the models, if it is kept.
  """

  membership: tf.Tensor
  slots: Any = ()


class TrainResult(NamedTuple):
  """Upload of a client.

  Attributes:
    local_models: The trained models, `[num_clusters, ...]`.
    client_weight: Weight of the client in the means, float32 `[]`.
  """

  local_models: model_lib.Weights
  client_weight: tf.Tensor


def build_fed_em(
  model: model_lib.Model, config: FedEmConfig
) -> algorithm.FederatedAlgorithm:
  """Builds FedEM for a model common to all clusters."""
  num_floats = config.num_clusters * trees.num_entries(model.weights_spec())
  built = algorithm.FederatedAlgorithm(
    name='fed_em',
    num_clusters=config.num_clusters,
    init_server_state=robust.checked(
      config.aggregation,
      lambda seed, num_clients: ServerState(
        initialization_lib.cluster_models(model, config.num_clusters, seed),
        initialization_lib.seed_losses(config.initialization, num_clients),
      ),
    ),
    init_client_state=lambda run_seed, client_seed: ClientState(
      tf.fill([config.num_clusters], 1 / config.num_clusters),
      local_training_lib.initial_slots(
        initialization_lib.cluster_models(model, config.num_clusters, run_seed),
        config.local_training,
      ),
    ),
    phases={'train': _build_training(model, config)},
    plan_round=client_sampling.build_uniform_plan(
      config.cohort_size,
      downlink_floats=num_floats,
      uplink_floats=num_floats,
      local_solves=config.num_clusters,
    ),
    cluster_model=model,
    cluster_weights=lambda server_state: server_state.cluster_models,
    personalized_model=mixtures.mixture_of_outputs(model, config.num_clusters),
    personalized_weights=lambda server_state, client_state, client_index: (
      OrderedDict(
        canonical=server_state.cluster_models,
        membership=client_state.membership,
      )
    ),
    membership=lambda server_state, client_state, client_index: (
      client_state.membership
    ),
    carry=carrying.Carry(
      {
        'cluster_models': carrying.KEEP,
        'seed_losses': carrying.CLIENTS,
      }
    ),
    newcomers=_build_newcomers(model, config),
  )
  return initialization_lib.precede(
    built,
    config.initialization,
    cohort_size=config.cohort_size,
    objective=objectives.mean_loss(model, config.loss_scale),
    training=dataclasses.replace(
      config.local_training, keeps_optimizer_state=False
    ),
  )


def _build_newcomers(model, config):
  """Returns the fit of unseen clients' memberships, with frozen models."""

  def fit(server_state, data, seed):
    del seed
    losses = _example_losses(model, server_state.cluster_models, data)
    return mixtures.fit_membership(config.loss_scale * losses, data.mask)

  return algorithm.Newcomers(
    fit,
    lambda server_state, membership: OrderedDict(
      canonical=server_state.cluster_models, membership=membership
    ),
  )


def _example_losses(model, cluster_models, data):
  """Returns the loss of every example under every model, summed over labels."""
  losses = assignment.cluster_losses(model, cluster_models, data)
  weights = model.loss_weights(data.y, data.mask)
  if weights is data.mask:
    return losses
  return tf.where(weights > 0, weights * losses, 0.0)


def _mean_over_labels(model, losses, data):
  """Returns the statistic of examples' losses that are summed over labels."""
  total, _ = statistics.weighted_mean(losses, data.mask)
  weights = model.loss_weights(data.y, data.mask)
  return statistics.MeanStat(total, tf.reduce_sum(weights))


def _build_training(model, config):
  """Returns the phase of Algorithm 1."""
  objective = objectives.weighted_mean_losses(model, config.loss_scale)

  def train(cluster_models, client_input, client_state, data, seed):
    del client_input
    losses = _example_losses(model, cluster_models, data)
    found = mixtures.posterior(
      config.loss_scale * losses, client_state.membership
    )
    models, slots, loss = local_training_lib.train_on(
      objective,
      cluster_models,
      client_state.slots,
      weighted_data.WeightedData(data, tf.transpose(found.responsibilities)),  # pyright: ignore[reportArgumentType]
      seed,
      config.local_training,
    )
    weight = client_sampling.client_weight(data, config.weighting)
    membership = mixtures.mean_responsibilities(
      found.responsibilities, data.mask, otherwise=client_state.membership
    )
    return algorithm.ClientOutput(
      TrainResult(models, weight),
      ClientState(membership, slots),
      OrderedDict(
        loss=loss,
        mixture_loss=_mean_over_labels(model, found.losses, data),
      ),
    )

  def average(server_state, aggregates):
    models = aggregation.mean_or_old(
      aggregates['local_models'], server_state.cluster_models
    )
    return server_state._replace(cluster_models=models), OrderedDict()

  phase = algorithm.Phase(
    name='train',
    make_message=lambda server_state: server_state.cluster_models,
    client_work=train,
    aggregation={'local_models': aggregation.WeightedMean('client_weight')},
    server_update=average,
    uploads={'local_models': lambda message, *_: message},
  )
  return robust.replace_means(phase, config.aggregation, 'cluster_models')
