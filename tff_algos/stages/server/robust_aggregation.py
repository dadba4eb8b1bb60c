"""Robust aggregation rules in place of the means of a phase.

Assumption of a rule: at most `num_byzantine` of the clients in a mean are
Byzantine and send arbitrary values. Clients of weight 0 (rejected, or of
another cluster) are ignored. In a mean of too few clients for a rule's
definition (a small cluster), the nearest defined case applies: Krum takes one
neighbour, the trimmed mean is the median, Bulyan keeps one value. See
docs/robustness.md.
"""

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import checks, errors
from tff_algos.core.structures import Structure
from tff_algos.numerics import partition_matrices, robust_rules, trees
from tff_algos.rounds import aggregation, collected_means

MEAN = 'mean'


@dataclasses.dataclass(frozen=True)
class AggregationConfig(robust_rules.RuleOptions):
  """Aggregation rule in place of the mean of clients' models.

  In the attributes of `RuleOptions`, a row is a client's model and the start is
  the old model.

  Attributes:
    rule: A key of `robust_rules.RULES`; `'mean'` for the algorithm's own.
    mixes_nearest_neighbors: Whether each model is first replaced by the mean of
      the models nearest to it, all but `num_byzantine`.
  """

  rule: str = MEAN
  mixes_nearest_neighbors: bool = False

  def __post_init__(self):
    super().__post_init__()
    checks.check_one_of('rule', self.rule, robust_rules.RULES)

  @property
  def is_plain(self) -> bool:
    """Returns whether the algorithm's own means are kept."""
    return self.rule == MEAN and not self.mixes_nearest_neighbors

  @property
  def counts_all_the_same(self) -> bool:
    """Returns whether the same models have one mean, whatever their weights."""
    # Of nobody left out, the mean of the nearest is that of all.
    mixes_all = self.mixes_nearest_neighbors and not self.num_byzantine
    return mixes_all or self.rule in robust_rules.WITHOUT_WEIGHTS

  def check_cohort_size(self, name: str, num_clients: int) -> None:
    """Raises ConfigError if the rule is not defined for `num_clients` clients.

    Args:
      name: Name of the option with the number, such as `'cohort_size'`.
      num_clients: Maximal number of clients in one mean; 0 for all that have
        examples, whose number is not known yet.
    """
    if self.is_plain or not num_clients:
      return
    num_byzantine = self.num_byzantine
    needed = {
      'krum': 2 * num_byzantine + 3,
      'multi_krum': 2 * num_byzantine + 3,
      'bulyan': 4 * num_byzantine + 3,
    }.get(self.rule, 2 * num_byzantine + 1)
    if num_clients < needed:
      raise errors.ConfigError(
        f'aggregation.rule {self.rule!r} with num_byzantine {num_byzantine} '
        f'needs at least {needed} clients in a mean, but {name} is '
        f'{num_clients}; raise {name}, lower num_byzantine or choose another '
        "rule; 'mean' without mixes_nearest_neighbors takes any number"
      )
    if self.rule == 'multi_krum' and self.num_selected > num_clients:
      raise errors.ConfigError(
        f'aggregation.num_selected is {self.num_selected}, more than {name}, '
        f'{num_clients}; lower num_selected'
      )
    # As `robust_rules.num_trimmed`, without TensorFlow: configs are checked
    # before it starts, and inside traces.
    trimmed = int(self.trim_fraction * num_clients + 1e-9)
    if self.rule == 'trimmed_mean' and trimmed < num_byzantine:
      raise errors.ConfigError(
        f'aggregation.trim_fraction {self.trim_fraction:g} leaves out '
        f'{trimmed} '
        f'of {num_clients} values on each side, fewer than num_byzantine, '
        f'{num_byzantine}; raise trim_fraction or lower num_byzantine'
      )


def checked(
  config: AggregationConfig, init_server_state: Callable[..., Structure]
) -> Callable[..., Structure]:
  """Returns `FederatedAlgorithm.init_server_state` with a check of the rule.

  For algorithms in whose rounds all clients may take part.
  """

  def check_and_init(seed, num_clients):
    config.check_cohort_size('the number of clients', num_clients)
    return init_server_state(seed, num_clients)

  return check_and_init


def cluster_means(
  config: AggregationConfig,
  values: Structure,
  assignment: tf.Tensor,
  weights: tf.Tensor,
  starts: Structure,
) -> Structure:
  """Returns each cluster's mean, plain or by the rule, `[num_clusters, ...]`.

  Args:
    config: The rule.
    values: `[clients, ...]`, finite.
    assignment: Each client's cluster, int32 `[clients]`.
    weights: float32 `[clients]`, >= 0; clients of weight 0 are ignored.
    starts: A model near each cluster's honest ones, `[num_clusters, ...]`.
  """
  num_clusters = tf.nest.flatten(starts)[0].shape[0]
  if config.is_plain:
    shares = partition_matrices.averaging_matrix(
      assignment, weights, num_clusters
    )
    return trees.mix(tf.transpose(shares), values)
  members = partition_matrices.membership_matrix(
    assignment, weights, num_clusters
  )
  return robust_cluster_means(
    config, values, tf.transpose(members), starts
  ).value


def robust_mean(
  config: AggregationConfig,
  values: Structure,
  weights: tf.Tensor,
  start: Structure,
) -> aggregation.Mean:
  """Aggregates models by the rule.

  Args:
    config: The rule.
    values: `[clients, ...]`, finite.
    weights: float32 `[clients]`, >= 0; clients of weight 0 are ignored.
    start: A model `[...]` near the honest ones, see `robust_rules.Rows`.

  Returns:
    The aggregated model, zeros if all weights are 0; and the sum of weights.
  """
  rows = robust_rules.Rows(values, weights, start)
  if config.mixes_nearest_neighbors:
    rows = robust_rules.mix_nearest_neighbors(rows, config.num_byzantine)
  found = robust_rules.RULES[config.rule](rows, config)
  is_anybody = rows.num_real > 0
  return aggregation.Mean(
    tf.nest.map_structure(
      lambda leaf: tf.where(is_anybody, leaf, tf.zeros_like(leaf)), found
    ),
    tf.reduce_sum(weights),
  )


def robust_cluster_means(
  config: AggregationConfig,
  values: Structure,
  weights: tf.Tensor,
  starts: Structure,
) -> aggregation.Mean:
  """Returns `robust_mean` of every cluster.

  Args:
    config: The rule.
    values: `[clients, ...]`, finite.
    weights: float32 `[clients, num_clusters]`.
    starts: `[num_clusters, ...]`.
  """
  specs = tf.nest.map_structure(
    lambda leaf: tf.TensorSpec(leaf.shape[1:], leaf.dtype), starts
  )
  return tf.map_fn(
    lambda one: robust_mean(config, values, one[0], one[1]),
    (tf.transpose(weights), starts),
    fn_output_signature=aggregation.Mean(specs, tf.TensorSpec([], tf.float32)),
  )


def replace_means(
  phase: algorithm_lib.Phase,
  config: AggregationConfig,
  start: str | None,
) -> algorithm_lib.Phase:
  """Returns the phase with the rule in place of its means.

  Args:
    phase: The phase; returned unchanged if the rule is plain. Otherwise the
      phase collects the averaged fields: the server holds the cohort's models.
    config: The rule, applied to each cluster of a cluster mean.
    start: Field of the server state with the models from which clients started,
      `[...]`, or `[num_clusters, ...]` for a cluster mean; None if the averaged
      fields are updates.
  """
  if config.is_plain:
    return phase

  def take_mean(server_state, aggregator, results, field):
    is_by_cluster = isinstance(aggregator, aggregation.ClusterMean)
    take = robust_cluster_means if is_by_cluster else robust_mean
    weights = results[aggregator.weight_field]
    if start is None:
      before = tf.nest.map_structure(
        lambda leaf: tf.zeros([*weights.shape[1:], *leaf.shape[1:]]),
        results[field],
      )
    else:
      before = getattr(server_state, start)
    return take(config, results[field], weights, before)

  return collected_means.collect_means(phase, take_mean)
