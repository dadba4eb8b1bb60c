"""Who takes part: draws of clients, on the host in float64."""

import numpy as np

from tff_algos.core import algorithm, errors


def check_cohort_size(
  name: str, cohort_size: int, population: algorithm.Population
) -> None:
  """Raises ConfigError if fewer clients have examples than are to be drawn."""
  available = int(np.count_nonzero(population.num_examples))
  if cohort_size > available:
    raise errors.ConfigError(
      f'{name} is {cohort_size}, but only {available} of the '
      f'{population.num_clients} clients have training examples; lower {name} '
      'or make a data set of more clients'
    )


def draw_uniform(
  population: algorithm.Population,
  cohort_size: int,
  generator: np.random.Generator,
) -> np.ndarray:
  """Returns distinct clients that have examples, uniformly drawn.

  Args:
    population: All clients.
    cohort_size: How many; at most the number of clients with examples.
    generator: Source of randomness.

  Returns:
    Client indices, int32 `[cohort_size]`, ascending.
  """
  available = np.flatnonzero(population.num_examples)
  drawn = generator.choice(available, cohort_size, replace=False)
  return np.sort(drawn).astype(np.int32)


def selection_probs(
  importance_weights: np.ndarray, num_examples: np.ndarray
) -> np.ndarray:
  """Returns each client's chance to be drawn for each cluster.

  FedSoft, Eq. 6, with the sum over all clients (as in its Eq. 38; the printed
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
  """Draws a cohort for each cluster, independently.

  Args:
    probs: float64 `[num_clusters, num_clients]`, rows sum to 1.
    cohort_size_per_cluster: Slots to fill per cluster.
    with_replacement: Whether a client may fill several slots of a cluster.
      Without replacement the draw is successive sampling.
    generator: Source of randomness.

  Returns:
    Slots that each client fills, int64 `[num_clients, num_clusters]`; each
    column sums to `cohort_size_per_cluster`.
  """
  slots = np.zeros(probs.shape[::-1], np.int64)
  for cluster_id, row in enumerate(probs):
    drawn = generator.choice(
      len(row), cohort_size_per_cluster, replace=with_replacement, p=row
    )
    np.add.at(slots[:, cluster_id], drawn, 1)
  return slots
