"""Recovery of ground-truth clusters by learned clusters: ARI, NMI and others.

Cluster numbers are arbitrary, so every measure here is invariant under
renumbering. NumPy in, Python numbers out.
"""

from typing import NamedTuple

import numpy as np
from scipy import optimize
from sklearn import metrics
from sklearn.metrics import cluster as cluster_metrics

UNMATCHED = -1


class Recovery(NamedTuple):
  """Agreement of hard cluster ids with planted labels.

  Attributes:
    ari: Adjusted Rand index (Hubert and Arabie, 1985): 1 for the same
      partition, about 0 for a random one, may be negative.
    nmi: Mutual information over the arithmetic mean of the two entropies,
      in [0, 1].
    purity: Share of clients with the most frequent planted label of their
      cluster, in (0, 1]. It is 1 if every client is its own cluster, so read it
      together with the others.
  """

  ari: float
  nmi: float
  purity: float


def hard_labels(membership: np.ndarray) -> np.ndarray:
  """Returns the index of the largest entry in each row, the lowest on a tie.

  Args:
    membership: `[num_clients, num_clusters]`; need not sum to 1.

  Returns:
    int64 `[num_clients]`.

  Raises:
    ValueError: If `membership` is no matrix or holds a NaN.
  """
  return np.argmax(_checked('membership', membership), axis=1)


def recovery(cluster_ids: np.ndarray, planted: np.ndarray) -> Recovery:
  """Returns how well hard cluster ids recover planted labels.

  Args:
    cluster_ids: Integers `[num_clients]`, such as `hard_labels(membership)`.
    planted: Integers `[num_clients]`, such as `hard_labels(true_mixture)`.

  Raises:
    ValueError: If the two differ in shape or there is no client.
  """
  cluster_ids, planted = np.asarray(cluster_ids), np.asarray(planted)
  if cluster_ids.shape != planted.shape or cluster_ids.ndim != 1:
    raise ValueError(
      'cluster ids and planted labels must be two vectors of one length, got '
      f'shapes {cluster_ids.shape} and {planted.shape}'
    )
  if not cluster_ids.size:
    raise ValueError('recovery needs at least one client, got none')
  table = cluster_metrics.contingency_matrix(planted, cluster_ids)
  return Recovery(
    ari=float(metrics.adjusted_rand_score(planted, cluster_ids)),
    nmi=float(metrics.normalized_mutual_info_score(planted, cluster_ids)),
    purity=float(table.max(axis=0).sum() / cluster_ids.size),
  )


def match_clusters(
  membership: np.ndarray, true_mixture: np.ndarray
) -> np.ndarray:
  """Matches clusters with source distributions by the clients' memberships.

  The matching with the smallest sum of absolute differences over clients, by
  the Hungarian method.

  Args:
    membership: `[num_clients, num_clusters]`.
    true_mixture: Share of each source distribution at each client,
      `[num_clients, num_sources]`.

  Returns:
    int64 `[num_clusters]`: the source of each cluster, or `UNMATCHED` if there
    are more clusters than sources.

  Raises:
    ValueError: If the numbers of clients differ, or an entry is NaN.
  """
  distances = _distances(membership, true_mixture)
  clusters, sources = optimize.linear_sum_assignment(distances)
  matched = np.full(distances.shape[0], UNMATCHED)
  matched[clusters] = sources
  return matched


def membership_error(membership: np.ndarray, true_mixture: np.ndarray) -> float:
  """Returns the mean absolute error of memberships after matching.

  The mean over clients and over matched pairs of cluster and source; unmatched
  clusters and sources are ignored.

  Args:
    membership: `[num_clients, num_clusters]`, num_clients >= 1.
    true_mixture: `[num_clients, num_sources]`.

  Raises:
    ValueError: If the numbers of clients differ, or an entry is NaN.
  """
  distances = _distances(membership, true_mixture)
  return float(distances[optimize.linear_sum_assignment(distances)].mean())


def _distances(membership: np.ndarray, true_mixture: np.ndarray) -> np.ndarray:
  """Returns mean absolute differences, `[num_clusters, num_sources]`."""
  membership = _checked('membership', membership)
  true_mixture = _checked('true mixture', true_mixture)
  if len(membership) != len(true_mixture) or not len(membership):
    raise ValueError(
      'membership and true mixture must have one row for each client, got '
      f'{len(membership)} and {len(true_mixture)} rows'
    )
  return np.abs(membership[:, :, None] - true_mixture[:, None, :]).mean(axis=0)


def _checked(name: str, matrix: np.ndarray) -> np.ndarray:
  matrix = np.asarray(matrix, np.float64)
  if matrix.ndim != 2 or not matrix.shape[1]:
    raise ValueError(
      f'{name} must have the shape [num_clients, columns], got {matrix.shape}'
    )
  bad_rows = np.flatnonzero(np.isnan(matrix).any(axis=1))
  if bad_rows.size:
    raise ValueError(
      f'{name} is NaN in row {bad_rows[0]}: leave out clients without a value'
    )
  return matrix
