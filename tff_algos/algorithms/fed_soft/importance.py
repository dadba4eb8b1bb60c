"""Importance weights: share of a client's examples by best-fitting cluster.

FedSoft, Algorithm 1, lines 3-14.
"""

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import errors
from tff_algos.core import model as model_lib
from tff_algos.core.structures import Array
from tff_algos.numerics import statistics
from tff_algos.rounds import aggregation
from tff_algos.stages.clusters import assignment


def build_estimation(
  model: model_lib.Model, smoother: float
) -> algorithm_lib.Phase:
  """Returns the phase in which clients estimate their importance weights.

  Its server state has the fields `cluster_models`, `[num_clusters, ...]`, and
  `importance_weights`, `[num_clients, num_clusters]`. A client that takes no
  part, or whose loss is finite under no cluster model, keeps its row. The
  client metric `assigned_loss` is the mean lowest loss.

  Args:
    model: The model of all clusters.
    smoother: Smallest importance, in [0, 1).
  """

  def estimate(cluster_models, client_input, client_state, data, seed):
    del client_input, seed
    losses = assignment.cluster_losses(model, cluster_models, data)
    counts = best_cluster_counts(losses, data.mask)
    num_examples = tf.maximum(tf.reduce_sum(data.mask), 1.0)
    # Not renormalised. Counts start from 0 at every estimation, which the
    # printed pseudo-code leaves implicit.
    importance = tf.maximum(counts / num_examples, smoother)
    lowest = tf.reduce_min(losses, axis=0)
    return algorithm_lib.ClientOutput(
      {'importance_weights': importance},
      client_state,
      OrderedDict(assigned_loss=statistics.weighted_mean(lowest, data.mask)),
    )

  def store(server_state, aggregates):
    importance = aggregation.write_rows(
      server_state.importance_weights, aggregates['importance_weights']
    )
    return server_state._replace(importance_weights=importance), OrderedDict()

  return algorithm_lib.Phase(
    name='estimate_importance',
    make_message=lambda server_state: server_state.cluster_models,
    client_work=estimate,
    aggregation={'importance_weights': aggregation.Collect()},
    server_update=store,
    uses_client_state=False,
  )


def best_cluster_counts(losses: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
  """Returns the number of real examples assigned to each cluster.

  Args:
    losses: `[num_clusters, capacity]`, from `assignment.cluster_losses`.
    mask: `[capacity]`.

  Returns:
    `[num_clusters]` float32; a tie counts for the lowest cluster id. All NaN if
    a real example has a finite loss under no cluster (a NaN feature, say): it
    cannot be assigned, and the client's result is rejected.
  """
  best = tf.argmin(losses, axis=0, output_type=tf.int32)
  counts = tf.math.unsorted_segment_sum(mask, best, losses.shape[0])
  fits_one = tf.math.is_finite(tf.reduce_min(losses, axis=0))
  return tf.where(tf.reduce_all(fits_one | (mask <= 0)), counts, float('nan'))


def without_estimate(
  importance_weights: Array, clients: Array, smoother: float
) -> Array:
  """Returns the clients that lack the estimate that any other client has.

  Those that were not available, dropped out or were invalid in round 1, and
  those that joined in a continued run. An estimate of the smoother for each
  cluster counts as none.

  Args:
    importance_weights: `[num_clients, num_clusters]` float32.
    clients: Positions of clients, int32.
    smoother: Importance in every cluster before the first estimation.
  """
  rows = np.asarray(importance_weights)
  lacks = (rows == np.float32(smoother)).all(axis=1)
  return clients[lacks[clients] & ~lacks.all()]


def fixed_weights(
  table: Sequence[Sequence[float]], num_clients: int, num_clusters: int
) -> np.ndarray:
  """Returns configured importance weights, in place of estimates.

  Args:
    table: One row a client, one weight a cluster, each from 0 to 1; a row has
      a positive sum, but need not sum to 1.
    num_clients: Size of the population.
    num_clusters: Number of clusters.

  Returns:
    float32 `[num_clients, num_clusters]`.

  Raises:
    ConfigError: If the table has another shape, or a row other values.
  """
  widths = sorted({len(row) for row in table})
  if len(table) != num_clients or widths != [num_clusters]:
    raise errors.ConfigError(
      'fixed_importance must have a row for each of the '
      f'{num_clients} clients with a weight for each of the {num_clusters} '
      f'clusters, got {len(table)} rows with '
      f'{" or ".join(map(str, widths))} weights'
    )
  values = np.array(table, np.float32)
  is_right = ((values >= 0) & (values <= 1)).all(axis=1) & (values.any(axis=1))
  if not is_right.all():
    row = int(np.flatnonzero(~is_right)[0])
    raise errors.ConfigError(
      'the rows of fixed_importance must be weights from 0 to 1, not all 0; '
      f'row {row} is {tuple(table[row])}'
    )
  return values
