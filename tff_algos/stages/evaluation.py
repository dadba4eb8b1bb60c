"""Evaluation as phases, so that every runtime can evaluate.

They change no state. Their server metrics hold one row a client, by ascending
client index; summarising the rows is left to `metrics`.
"""

from collections import OrderedDict

import tensorflow as tf

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.metrics import statistics
from tff_algos.stages import aggregation


def build_cluster_evaluation(
  algorithm: algorithm_lib.FederatedAlgorithm,
) -> algorithm_lib.Phase:
  """Returns the phase that scores every cluster model on every client.

  Its server metrics: `loss` and `score`, MeanStats of shape `[cohort,
  num_clusters]`. It needs no client state, so it serves clients that are
  outside the population, too.
  """
  model = algorithm.cluster_model

  def evaluate(cluster_weights, client_input, client_state, data, seed):
    del client_input, seed
    outputs = model.map_stacked(
      lambda weights: model.apply(weights, data.x), cluster_weights
    )
    stats = [
      _client_stats(model, outputs[s], data)
      for s in range(algorithm.num_clusters)
    ]
    stacked = tf.nest.map_structure(lambda *leaves: tf.stack(leaves), *stats)
    return algorithm_lib.ClientOutput(stacked, client_state, OrderedDict())

  return _evaluation_phase(
    'evaluate_clusters',
    lambda server_state: algorithm.cluster_weights(server_state),
    evaluate,
    uses_client_state=False,
  )


def build_personalized_evaluation(
  algorithm: algorithm_lib.FederatedAlgorithm,
) -> algorithm_lib.Phase:
  """Returns the phase that scores each client's personalized model on it.

  The client input is the client's index in the population, int32 `[]`. Server
  metrics: `loss` and `score`, MeanStats of shape `[cohort]`, and
  `membership`, `[cohort, num_clusters]`.
  """
  model = algorithm.personalized_model

  def evaluate(server_state, client_index, client_state, data, seed):
    del seed
    weights = algorithm.personalized_weights(
      server_state, client_state, client_index
    )
    result = _client_stats(model, model.apply(weights, data.x), data)
    result['membership'] = algorithm.membership(
      server_state, client_state, client_index
    )
    return algorithm_lib.ClientOutput(result, client_state, OrderedDict())

  return _evaluation_phase(
    'evaluate_personalized',
    lambda server_state: server_state,
    evaluate,
    client_input=tf.TensorSpec([], tf.int32),
    extra_fields=('membership',),
  )


def _client_stats(model, outputs, data):
  losses = model.example_losses(outputs, data.y)
  scores = model.example_scores(outputs, data.y)
  return OrderedDict(
    loss=statistics.masked_mean(losses, data.mask),
    score=statistics.masked_mean(scores, data.mask),
  )


def _evaluation_phase(
  name, make_message, client_work, extra_fields=(), **options
):
  fields = ('loss', 'score', *extra_fields)

  def report(server_state, aggregates):
    return server_state, OrderedDict(
      (field, aggregates[field].values) for field in fields
    )

  return algorithm_lib.Phase(
    name=name,
    make_message=make_message,
    client_work=client_work,
    aggregation={field: aggregation.Collect() for field in fields},
    server_update=report,
    **options,
  )
