"""Aggregators of client results: sum, weighted mean, cluster mean, collect.

A phase declares one aggregator for each field of its result. A summing
aggregator reduces a stack of results to a partial sum; partial sums of blocks
of clients are added in any order, and `finish` computes the aggregate from the
total. So the same aggregator serves TFF (`federated_sum` of one-client
partials), a vectorized block and a stream of blocks. `Collect` alone keeps the
results of all clients.

The result of an invalid client (NaN or infinite) is replaced by zeros of weight
zero before aggregation: it is in no sum and in no mean.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import errors
from tff_algos.core.structures import Leaf, Structure
from tff_algos.numerics import trees

Results = Mapping[str, Structure]


class Mean(NamedTuple):
  """A weighted mean and its total weight.

  Attributes:
    value: The mean; of no meaning where the weight is 0.
    weight: Total weight, float32, >= 0; 0 if no client contributed.
  """

  value: Structure
  weight: Leaf


class Collected(NamedTuple):
  """The results of all clients of a cohort, by ascending client index.

  Attributes:
    values: `[cohort, ...]`; zeros for an invalid client.
    client_index: Positions in the population, int32 `[cohort]`.
    is_valid: bool `[cohort]`, False where the client's result was not finite.
  """

  values: Structure
  client_index: tf.Tensor
  is_valid: tf.Tensor


def write_rows(table: Structure, collected: Collected) -> Structure:
  """Returns a table of all clients with the collected rows written into it.

  Args:
    table: Structure of tensors `[num_clients, ...]`.
    collected: Collected values of the same structure. Rows of clients without a
      valid result in the cohort are unchanged.
  """

  def write(leaf: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    stale = tf.gather(leaf, collected.client_index)
    return tf.tensor_scatter_nd_update(
      leaf,
      collected.client_index[:, tf.newaxis],
      trees.select_rows(collected.is_valid, values, stale),
    )

  return tf.nest.map_structure(write, table, collected.values)


def mean_or_old(mean: Mean, old: Structure) -> Structure:
  """Returns a mean's model, or the old one if no client contributed."""
  return trees.select(mean.weight > 0, mean.value, old)


def replace_clusters(
  mean: Mean, cluster_models: Structure
) -> tuple[Structure, Mapping[str, tf.Tensor]]:
  """Returns the mean's models, or the old one where no client contributed.

  Args:
    mean: Aggregate of `ClusterMean`, or what a server's step makes of it.
    cluster_models: The old cluster models, `[num_clusters, ...]`.

  Returns:
    The new cluster models, and the number of unchanged ones, as a metric of the
    server.
  """
  models = trees.select_rows(mean.weight > 0, mean.value, cluster_models)
  num_empty = tf.reduce_sum(tf.cast(mean.weight <= 0, tf.int32))
  return models, OrderedDict(num_empty_clusters=num_empty)


class Sum:
  """Adds the field over the cohort."""

  def partial_sum(self, results: Results, field: str) -> Structure:
    """Returns the sum over axis 0."""
    return tf.nest.map_structure(
      lambda leaf: tf.reduce_sum(leaf, axis=0), results[field]
    )

  def finish(self, total: Structure) -> Structure:
    """Returns the sum as it is."""
    return total


class WeightedMean:
  """Averages the field with one weight a client; aggregate: `Mean`.

  Attributes:
    weight_field: Field of the result that holds the weight, float32 `[]`.
  """

  def __init__(self, weight_field: str) -> None:
    self.weight_field = weight_field

  def partial_sum(self, results: Results, field: str) -> Mean:
    """Returns the weighted sum and the total weight of a stack of results."""
    weights = results[self.weight_field]
    return Mean(trees.mix(weights, results[field]), tf.reduce_sum(weights))

  def finish(self, total: Mean) -> Mean:
    """Returns the mean; zeros if no client contributed."""
    return Mean(
      tf.nest.map_structure(
        lambda leaf: tf.math.divide_no_nan(leaf, total.weight), total.value
      ),
      total.weight,
    )


class ClusterMean:
  """Averages the field once per cluster; aggregate: `Mean` with a first axis.

  Attributes:
    weight_field: Field of the result that holds the client's weight in each
      cluster, float32 `[num_clusters]`.
  """

  def __init__(self, weight_field: str) -> None:
    self.weight_field = weight_field

  def partial_sum(self, results: Results, field: str) -> Mean:
    """Returns the weighted sums and the total weights by cluster."""
    weights = tf.transpose(results[self.weight_field])
    return Mean(
      trees.mix(weights, results[field]), tf.reduce_sum(weights, axis=1)
    )

  def finish(self, total: Mean) -> Mean:
    """Returns the means; zeros for a cluster without contributions."""

    def divide(leaf: tf.Tensor) -> tf.Tensor:
      weight = trees.along_rows(total.weight, leaf)
      return tf.math.divide_no_nan(leaf, weight)

    return Mean(tf.nest.map_structure(divide, total.value), total.weight)


class Collect:
  """Keeps the field of every client; aggregate: `Collected`."""


class Processed:
  """Aggregates the field by processes of `tff.aggregators`; TFF alone runs it.

  `rounds.aggregation_processes` builds it. The methods are those of the
  aggregator that it replaces, for the types.

  Attributes:
    replaced: The summing aggregator in whose place the processes are.
    processes: A `tff.templates.AggregationProcess` for each cluster of a
      `ClusterMean`, else one.
    is_weighted: Whether the processes take weights.
  """

  def __init__(
    self, replaced: Any, processes: tuple[Any, ...], is_weighted: bool
  ) -> None:
    self.replaced = replaced
    self.processes = processes
    self.is_weighted = is_weighted
    self.partial_sum = replaced.partial_sum
    self.finish = replaced.finish


def weight_fields(aggregator: Any) -> tuple[str, ...]:
  """Returns the fields that an aggregator reads beside its own."""
  if isinstance(aggregator, Processed):
    aggregator = aggregator.replaced
  return tuple(vars(aggregator).values())


def refuse_processes(
  phases: Mapping[str, algorithm_lib.Phase], taker: str
) -> None:
  """Raises ConfigError if a phase aggregates by processes of TFF.

  Args:
    phases: name -> phase.
    taker: The runtime or wrapper that refuses them, for the message.
  """
  for name, phase in phases.items():
    for field, aggregator in phase.aggregation.items():
      if isinstance(aggregator, Processed):
        raise errors.ConfigError(
          f'phase {name!r} aggregates {field!r} by a factory of '
          f'tff.aggregators, which {taker} does not take. The runtime tff with '
          'one worker does; call with_aggregators once, with all factories, '
          'after attack'
        )
