"""Client sampling by cluster, in proportion to importance times examples.

Ruan and Joe-Wong (2021), arXiv:2112.06053, Eq. 6; on the host, in float64.
"""

import numpy as np

from tff_algos.core import algorithm

SELECTIONS = ('without_replacement', 'with_replacement', 'weighted_full')


def selection_probs(
  importance_weights: np.ndarray, num_examples: np.ndarray
) -> np.ndarray:
  """Returns the selection probabilities of the clients for each cluster.

  Eq. 6, with the sum over all clients (as in its Eq. 38; the printed
  sum over the selected clients would be circular).

  Args:
    importance_weights: `[num_clients, num_clusters]`, >= 0.
    num_examples: `[num_clients]`, >= 0; 0 excludes a client.

  Returns:
    float64 `[num_clusters, num_clients]`; rows sum to 1. A cluster in which
    every importance is 0 draws in proportion to the examples.
  """
  examples = np.asarray(num_examples, np.float64)
  shares = np.asarray(importance_weights, np.float64).T * examples
  nobody = shares.sum(axis=1) == 0
  shares[nobody] = examples
  return shares / shares.sum(axis=1, keepdims=True)


def draw_per_cluster(
  probs: np.ndarray,
  cohort_size_per_cluster: int,
  with_replacement: bool,
  generator: np.random.Generator,
) -> np.ndarray:
  """Samples a cohort for each cluster, independently.

  Args:
    probs: float64 `[num_clusters, num_clients]`, rows sum to 1.
    cohort_size_per_cluster: Slots to fill per cluster.
    with_replacement: Whether a client may fill several slots of a cluster.
      Without replacement the draw is successive sampling.
    generator: Source of randomness.

  Returns:
    Number of slots filled by each client, int64 `[num_clients, num_clusters]`;
    each column sums to `cohort_size_per_cluster`.
  """
  slots = np.zeros(probs.shape[::-1], np.int64)
  for cluster_id, row in enumerate(probs):
    drawn = generator.choice(
      len(row), cohort_size_per_cluster, replace=with_replacement, p=row
    )
    np.add.at(slots[:, cluster_id], drawn, 1)
  return slots


def draw_shares(
  importance_weights: np.ndarray,
  population: algorithm.Population,
  selection: str,
  cohort_size_per_cluster: int,
  generator: np.random.Generator,
) -> np.ndarray:
  """Samples the cohort and returns its weights in each cluster's mean.

  Args:
    importance_weights: `[num_clients, num_clusters]`, >= 0.
    population: All clients.
    selection: `'without_replacement'` or `'with_replacement'`: weights are the
      slots filled by `draw_per_cluster` with `selection_probs`.
      `'weighted_full'`: weights are all clients' probabilities (FedSoft, Eq.
      27); also used where sampling without replacement would select all
      clients, as the plain means of all clusters would be equal.
    cohort_size_per_cluster: Slots to fill per cluster.
    generator: Source of randomness.

  Returns:
    `[num_clients, num_clusters]`, >= 0; rows of zeros for other clients.
  """
  available = len(population.clients_with_examples)
  if not available:
    return np.zeros(np.shape(importance_weights))
  probs = selection_probs(importance_weights, population.available_examples)
  draws_all = cohort_size_per_cluster == available
  if selection == 'weighted_full' or (
    selection == 'without_replacement' and draws_all
  ):
    return probs.T
  with_replacement = selection == 'with_replacement'
  return draw_per_cluster(
    probs, cohort_size_per_cluster, with_replacement, generator
  )
