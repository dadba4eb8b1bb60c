"""Who takes part, drawn on the host in float64, and what each counts."""

import numpy as np
import tensorflow as tf

from tff_algos.core import algorithm, errors, seeds

# What a client may count in a mean.
WEIGHTINGS = ('uniform', 'examples')

SELECTIONS = ('without_replacement', 'with_replacement', 'weighted_full')


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
    cohort_size: How many; 0 for all that have examples.
    generator: Source of randomness.

  Returns:
    Client indices, int32 `[cohort]`, ascending.

  Raises:
    ConfigError: If fewer clients have examples.
  """
  check_cohort_size('cohort_size', cohort_size, population)
  available = np.flatnonzero(population.num_examples).astype(np.int32)
  if not cohort_size:
    return available
  drawn = generator.choice(available, cohort_size, replace=False)
  return np.sort(drawn)


def draw_some_or_all(
  population: algorithm.Population, cohort_size: int, seed: int, round_num: int
) -> np.ndarray:
  """Returns a round's cohort, uniformly drawn, or all that have examples.

  Args:
    population: All clients.
    cohort_size: How many; 0 for all that have examples.
    seed: The run's seed.
    round_num: From 1.

  Returns:
    Client indices, int32 `[cohort]`, ascending.

  Raises:
    ConfigError: If fewer clients have examples.
  """
  return draw_uniform(
    population, cohort_size, seeds.numpy_generator(seed, 'cohort', round_num)
  )


def client_weight(data: algorithm.ClientData, weighting: str) -> tf.Tensor:
  """Returns what a client counts in a mean, float32 `[]`.

  Args:
    data: Its examples; without any it counts nothing.
    weighting: `'uniform'` or `'examples'`, one of `WEIGHTINGS`.
  """
  num_examples = tf.reduce_sum(data.mask)
  return {
    'examples': num_examples,
    'uniform': tf.minimum(num_examples, 1.0),
  }[weighting]


def population_shares(
  population: algorithm.Population, weighting: str
) -> np.ndarray:
  """Returns p_i, the clients' weights in the objective, float32.

  Args:
    population: All clients.
    weighting: `'examples'`, or `'uniform'` for all that have examples.

  Returns:
    `[num_clients]`, of sum 1; 0 for a client without examples.

  Raises:
    ConfigError: If no client has examples.
  """
  sizes = np.asarray(population.num_examples, np.float64)
  if not sizes.any():
    raise errors.ConfigError(
      'no client has training examples; make a data set that has some'
    )
  weights = sizes if weighting == 'examples' else np.minimum(sizes, 1)
  return (weights / weights.sum()).astype(np.float32)


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


def draw_shares(
  importance_weights: np.ndarray,
  population: algorithm.Population,
  selection: str,
  cohort_size_per_cluster: int,
  generator: np.random.Generator,
) -> np.ndarray:
  """Draws who takes part, and says what each weighs in each cluster's mean.

  Args:
    importance_weights: `[num_clients, num_clusters]`, >= 0.
    population: All clients.
    selection: `'without_replacement'` or `'with_replacement'`: the slots that
      `draw_per_cluster` fills by `selection_probs`. `'weighted_full'`:
      everybody's probability (FedSoft, Eq. 27). That is also taken where
      drawing without replacement would draw everybody, as the plain means of
      all clusters would be equal.
    cohort_size_per_cluster: Slots to fill per cluster.
    generator: Source of randomness.

  Returns:
    `[num_clients, num_clusters]`, >= 0; a row of zeros for who takes no part.
  """
  probs = selection_probs(importance_weights, population.num_examples)
  available = np.count_nonzero(population.num_examples)
  draws_all = cohort_size_per_cluster == available
  if selection == 'weighted_full' or (
    selection == 'without_replacement' and draws_all
  ):
    return probs.T
  with_replacement = selection == 'with_replacement'
  return draw_per_cluster(
    probs, cohort_size_per_cluster, with_replacement, generator
  )
