"""Matching of clusters with ground-truth sources, by clients and by scores.

NumPy in, NumPy out.
"""

from typing import NamedTuple

import numpy as np
from scipy import optimize

from tff_algos.evaluation import recovery

# The main cluster of a client whose memberships are all equal.
UNDECIDED = -1


class Association(NamedTuple):
  """Clusters and memberships of clients, by their main source.

  A client's main source is the one that most of its data come from.

  Attributes:
    num_clients: Clients by main source, int64 `[num_sources]`.
    num_by_cluster: Confusion matrix of main sources and main clusters, int64
      `[num_sources, num_clusters]`. A row sums to `num_clients` minus the
      undecided clients.
    mean_membership: Mean membership of these clients, float64 `[num_sources,
      num_clusters]`; NaN for a source without clients. A row sums to 1 if
      memberships do.
  """

  num_clients: np.ndarray
  num_by_cluster: np.ndarray
  mean_membership: np.ndarray


def main_clusters(membership: np.ndarray) -> np.ndarray:
  """Returns each client's cluster of largest membership.

  Args:
    membership: `[num_clients, num_clusters]`.

  Returns:
    int64 `[num_clients]`; the lowest of several that tie, `UNDECIDED` where
    two or more clusters all tie.

  Raises:
    ValueError: If `membership` is no matrix or holds a NaN.
  """
  clusters = recovery.hard_labels(membership)
  if membership.shape[1] > 1:
    clusters[np.ptp(membership, axis=1) == 0] = UNDECIDED
  return clusters


def associate(membership: np.ndarray, mixture: np.ndarray) -> Association:
  """Counts clients and averages memberships, by main source.

  Args:
    membership: `[num_clients, num_clusters]`.
    mixture: Planted share of each source, `[num_clients, num_sources]`.

  Raises:
    ValueError: If one of them is no matrix or holds a NaN.
  """
  sources = recovery.hard_labels(mixture)
  clusters = main_clusters(membership)
  shape = mixture.shape[1], membership.shape[1]
  counts = np.zeros(shape, np.int64)
  decided = clusters != UNDECIDED
  np.add.at(counts, (sources[decided], clusters[decided]), 1)
  means = np.full(shape, np.nan)
  for source in np.unique(sources):
    means[source] = np.mean(membership[sources == source], axis=0)
  return Association(np.bincount(sources, minlength=shape[0]), counts, means)


def best_clusters(scores: np.ndarray, *, higher_is_better: bool) -> np.ndarray:
  """Returns the cluster whose model is the best on each source.

  Args:
    scores: `[num_clusters, num_sources]`; NaN for a missing score.
    higher_is_better: True for an accuracy, False for an error.

  Returns:
    int64 `[num_sources]`; the lowest id on a tie, `recovery.UNMATCHED` for a
    source without scores.
  """
  signed = np.where(
    np.isnan(scores), -np.inf, scores if higher_is_better else -scores
  )
  best = np.argmax(signed, axis=0)
  best[np.isnan(scores).all(axis=0)] = recovery.UNMATCHED
  return best


def match_by_scores(
  scores: np.ndarray, *, higher_is_better: bool
) -> np.ndarray:
  """Matches clusters with sources by the best total score.

  For data without planted mixtures; `recovery.match_clusters` matches by the
  clients' mixtures.

  Args:
    scores: `[num_clusters, num_sources]`.
    higher_is_better: True for an accuracy, False for an error.

  Returns:
    int64 `[num_clusters]`: the source of each cluster, `recovery.UNMATCHED` if
    it has none; all unmatched if a score is not finite.
  """
  matched = np.full(len(scores), recovery.UNMATCHED)
  if np.isfinite(scores).all():
    clusters, sources = optimize.linear_sum_assignment(
      scores, maximize=higher_is_better
    )
    matched[clusters] = sources
  return matched
