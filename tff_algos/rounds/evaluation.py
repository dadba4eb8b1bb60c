"""Evaluation phases, which every runtime can execute.

They change no state. Their server metrics hold one row a client, by ascending
client index; `tff_algos/evaluation` summarizes the rows.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import model as model_lib
from tff_algos.core.structures import Structure
from tff_algos.numerics import statistics, trees
from tff_algos.rounds import aggregation


def build_cluster_evaluation(
  algorithm: algorithm_lib.FederatedAlgorithm,
) -> algorithm_lib.Phase:
  """Returns the phase that scores every cluster model on every client.

  Server metrics: `loss` and `score`, MeanStats of shape `[cohort,
  num_clusters]`, of weight 0 where a cluster model is NaN or infinite on the
  client: the client still scores the others. The phase needs no client state,
  so it also applies to clients outside the population.
  """
  model = algorithm.cluster_model

  def evaluate(
    cluster_weights: Structure,
    client_input: Structure,
    client_state: Structure,
    data: algorithm_lib.ClientData,
    seed: tf.Tensor,
  ) -> algorithm_lib.ClientOutput:
    del client_input, seed
    outputs = model.map_stacked(
      lambda weights: model.apply(weights, data.x), cluster_weights
    )
    stats = [
      _of_finite(_client_stats(model, outputs[s], data))
      for s in range(algorithm.num_clusters)
    ]
    stacked = tf.nest.map_structure(lambda *leaves: tf.stack(leaves), *stats)
    return algorithm_lib.ClientOutput(stacked, client_state, OrderedDict())

  return _collecting_phase(
    'evaluate_clusters',
    evaluate,
    ('loss', 'score'),
    algorithm.cluster_weights,
    uses_client_state=False,
  )


def build_personalized_evaluation(
  algorithm: algorithm_lib.FederatedAlgorithm,
) -> algorithm_lib.Phase:
  """Returns the phase that scores each client's models on its own examples.

  The client input is the client's index in the population, int32 `[]`. Server
  metrics: `loss` and `score` of the personalized model, MeanStats of shape
  `[cohort]`; `membership`, `[cohort, num_clusters]`; and `local_loss`
  and `local_score`, likewise, if the algorithm has `local_weights`. Statistics
  of a model that is NaN or infinite on the client have weight 0.
  """
  model = algorithm.personalized_model
  local_weights = algorithm.local_weights

  def evaluate(
    server_state: Structure,
    client_index: tf.Tensor,
    client_state: Structure,
    data: algorithm_lib.ClientData,
    seed: tf.Tensor,
  ) -> algorithm_lib.ClientOutput:
    del seed
    weights = algorithm.personalized_weights(
      server_state, client_state, client_index
    )
    outputs = model.apply(weights, data.x)
    result = _of_finite(_client_stats(model, outputs, data))
    result['membership'] = algorithm.membership(
      server_state, client_state, client_index
    )
    if local_weights is not None:
      local = local_weights(server_state, client_state, client_index)
      outputs = algorithm.cluster_model.apply(local, data.x)
      stats = _of_finite(_client_stats(algorithm.cluster_model, outputs, data))
      result.update({f'local_{name}': stat for name, stat in stats.items()})
    return algorithm_lib.ClientOutput(result, client_state, OrderedDict())

  return _collecting_phase(
    'evaluate_personalized',
    evaluate,
    ('loss', 'score', 'membership')
    + ('local_loss', 'local_score') * (local_weights is not None),
    client_input=tf.TensorSpec([], tf.int32),
  )


def build_newcomer_fit(
  newcomers: algorithm_lib.Newcomers,
) -> algorithm_lib.Phase:
  """Returns the phase in which clients fit memberships on their examples.

  It needs no client state. Server metrics: `membership`, `[cohort,
  num_clusters]`.

  Args:
    newcomers: Personalization of the algorithm's newcomers.
  """

  def fit(
    server_state: Structure,
    client_input: Structure,
    client_state: Structure,
    data: algorithm_lib.ClientData,
    seed: tf.Tensor,
  ) -> algorithm_lib.ClientOutput:
    del client_input
    membership = newcomers.fit(server_state, data, seed)
    return algorithm_lib.ClientOutput(
      OrderedDict(membership=membership), client_state, OrderedDict()
    )

  return _collecting_phase(
    'fit_newcomers', fit, ('membership',), uses_client_state=False
  )


def build_newcomer_evaluation(
  algorithm: algorithm_lib.FederatedAlgorithm,
  newcomers: algorithm_lib.Newcomers,
) -> algorithm_lib.Phase:
  """Returns the phase that scores newcomers by their fitted memberships.

  The client input is that membership, `[num_clusters]`. Server metrics: `loss`
  and `score`, MeanStats of shape `[cohort]`, of weight 0 where the model is not
  finite.

  Args:
    algorithm: The algorithm with the served models.
    newcomers: Personalization of the algorithm's newcomers.
  """
  model = algorithm.personalized_model

  def evaluate(
    server_state: Structure,
    membership: tf.Tensor,
    client_state: Structure,
    data: algorithm_lib.ClientData,
    seed: tf.Tensor,
  ) -> algorithm_lib.ClientOutput:
    del seed
    weights = newcomers.weights(server_state, membership)
    result = _of_finite(
      _client_stats(model, model.apply(weights, data.x), data)
    )
    return algorithm_lib.ClientOutput(result, client_state, OrderedDict())

  return _collecting_phase(
    'evaluate_newcomers',
    evaluate,
    ('loss', 'score'),
    client_input=tf.TensorSpec([algorithm.num_clusters], tf.float32),
    uses_client_state=False,
  )


def _client_stats(
  model: model_lib.Model, outputs: tf.Tensor, data: algorithm_lib.ClientData
) -> OrderedDict[str, Structure]:
  losses = model.example_losses(outputs, data.y)
  scores = model.example_scores(outputs, data.y)
  return OrderedDict(
    loss=statistics.weighted_mean(
      losses, model.loss_weights(data.y, data.mask)
    ),
    score=statistics.weighted_mean(
      scores, model.score_weights(data.y, data.mask)
    ),
  )


def _of_finite(stats: Structure) -> Structure:
  """Returns statistics, or empty statistics if they are not finite."""
  return trees.select(trees.all_finite(stats), stats, trees.zeros_like(stats))


def _collecting_phase(
  name: str,
  client_work: algorithm_lib.ClientWork,
  fields: Sequence[str],
  make_message: Callable[[Structure], Structure] = lambda server_state: (
    server_state
  ),
  client_input: Structure = (),
  uses_client_state: bool = True,
) -> algorithm_lib.Phase:
  """Returns a phase that changes no state and reports the clients' results."""

  def report(
    server_state: Structure, aggregates: Mapping[str, Structure]
  ) -> tuple[Structure, Structure]:
    return server_state, OrderedDict(
      (field, aggregates[field].values) for field in fields
    )

  return algorithm_lib.Phase(
    name=name,
    make_message=make_message,
    client_work=client_work,
    aggregation={field: aggregation.Collect() for field in fields},
    server_update=report,
    client_input=client_input,
    uses_client_state=uses_client_state,
  )
