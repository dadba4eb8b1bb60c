"""Means over collected results, in place of partial sums.

Robust aggregation rules and colluding clients compare the uploads of different
clients, which a sum does not keep. `collect_means` changes a phase to collect
the results of the whole cohort; the rest of the phase is unchanged.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core.structures import Structure
from tff_algos.rounds import aggregation

MeanAggregator = aggregation.WeightedMean | aggregation.ClusterMean
# (old server state, aggregator, results `[cohort, ...]` by field, field) ->
# mean of that field.
TakeMean = Callable[
  [Structure, MeanAggregator, aggregation.Results, str], aggregation.Mean
]


def plain_mean(
  server_state: Structure,
  aggregator: MeanAggregator,
  results: aggregation.Results,
  field: str,
) -> aggregation.Mean:
  """Returns the aggregator's own mean, or sum, of the results."""
  del server_state
  return aggregator.finish(aggregator.partial_sum(results, field))


def collect_means(
  phase: algorithm_lib.Phase, take_mean: TakeMean = plain_mean
) -> algorithm_lib.Phase:
  """Returns the phase with means, and sums, taken from collected results.

  The server update gets aggregates of the same types. The server holds the
  uploads of the whole cohort.

  Args:
    phase: The phase; returned unchanged if it takes neither means nor sums.
    take_mean: Computes each mean.
  """
  summing = {
    field: aggregator
    for field, aggregator in phase.aggregation.items()
    if not isinstance(aggregator, aggregation.Collect)
  }
  means = {
    field: aggregator
    for field, aggregator in summing.items()
    if isinstance(aggregator, MeanAggregator)
  }
  if not summing:
    return phase
  weights = [aggregator.weight_field for aggregator in means.values()]

  def server_update(
    server_state: Structure, aggregates: Mapping[str, Structure]
  ) -> tuple[Structure, Structure]:
    results = {
      field: aggregates[field].values for field in [*summing, *weights]
    }
    taken = {
      field: (take_mean if field in means else plain_mean)(
        server_state, aggregator, results, field
      )
      for field, aggregator in summing.items()
    }
    return phase.server_update(server_state, {**aggregates, **taken})

  return phase._replace(
    aggregation=OrderedDict(
      (field, aggregation.Collect()) for field in [*phase.aggregation, *weights]
    ),
    server_update=server_update,
  )
