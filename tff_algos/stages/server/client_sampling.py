"""Client sampling on the host, and client weights in means."""

from collections import OrderedDict
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tff_algos.core import algorithm, errors, seeds

# Weights of clients in a mean.
WEIGHTINGS = ('uniform', 'examples')
# Client input: the number of clients with examples, which only a plan knows.
NUM_CLIENTS = OrderedDict(num_clients=tf.TensorSpec([], tf.float32))


def check_cohort_size(
  name: str, cohort_size: int, population: algorithm.Population
) -> None:
  """Raises ConfigError if a cohort needs more clients than are available."""
  available = len(population.clients_with_examples)
  if cohort_size > available:
    raise errors.ConfigError(
      f'{name} is {cohort_size}, but only {available} of the '
      f'{population.num_clients} clients have training examples and are '
      f'available; lower {name} or let more clients take part'
    )


def draw_uniform(
  client_indices: np.ndarray, size: int, generator: np.random.Generator
) -> np.ndarray:
  """Samples clients uniformly without replacement.

  Args:
    client_indices: Clients to sample from, distinct.
    size: Number of sampled clients, at most the number of `client_indices`.
    generator: Source of randomness.

  Returns:
    Client indices, int32 `[size]`, ascending.
  """
  drawn = generator.choice(client_indices, size, replace=False)
  return np.sort(drawn).astype(np.int32)


def draw_cohort(
  population: algorithm.Population, cohort_size: int, seed: int, round_num: int
) -> np.ndarray:
  """Samples a round's cohort uniformly from the clients with examples.

  Args:
    population: All clients.
    cohort_size: Number of clients; 0 for all that have examples.
    seed: The run's seed.
    round_num: From 1.

  Returns:
    Client indices, int32 `[cohort]`, ascending.

  Raises:
    ConfigError: If fewer clients have examples.
  """
  available = population.clients_with_examples
  if not cohort_size:
    return available
  check_cohort_size('cohort_size', cohort_size, population)
  generator = seeds.numpy_generator(seed, 'cohort', round_num)
  return draw_uniform(available, cohort_size, generator)


def build_uniform_plan(
  cohort_size: int,
  *,
  downlink_floats: int,
  uplink_floats: int,
  local_solves: int = 1,
  sends_num_clients: bool = False,
) -> Callable[..., algorithm.RoundPlan]:
  """Returns the plan of one phase, `'train'`, on a uniformly sampled cohort.

  Args:
    cohort_size: As in `draw_cohort`.
    downlink_floats: Numbers sent to each client.
    uplink_floats: Numbers sent by each client.
    local_solves: Local solves of each client.
    sends_num_clients: Whether the client input is `NUM_CLIENTS`, else `()`.
  """

  def plan_round(server_state, population, round_num, seed):
    del server_state
    drawn = draw_cohort(population, cohort_size, seed, round_num)
    count = len(drawn)
    cost = algorithm.Cost(
      count * downlink_floats, count * uplink_floats, count * local_solves
    )
    inputs = ()
    if sends_num_clients:
      num_clients = np.count_nonzero(population.num_examples)
      inputs = OrderedDict(num_clients=np.full(count, num_clients, np.float32))
    yield algorithm.PhaseCall('train', drawn, inputs, cost)

  return plan_round


def client_weight(data: algorithm.ClientData, weighting: str) -> tf.Tensor:
  """Returns the weight of a client in a mean, float32 `[]`.

  Args:
    data: The client's examples; the weight is 0 without any.
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
    `[num_clients]`, summing to 1; 0 for a client without examples.

  Raises:
    ConfigError: If no client has examples.
  """
  sizes = np.asarray(population.num_examples, np.float64)
  if not sizes.any():
    raise errors.ConfigError(
      'no client has training examples; make a dataset that has some'
    )
  weights = sizes if weighting == 'examples' else np.minimum(sizes, 1)
  return (weights / weights.sum()).astype(np.float32)
