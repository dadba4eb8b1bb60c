"""Toy populations: a few small clients with known distributions."""

import numpy as np

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import seeds
from tff_algos.data import schema
from tff_algos.models import registry as models
from tff_algos.runtimes import cohort as cohort_lib


class ToySource:
  """A population held in memory."""

  def __init__(self, clients: list[schema.Examples]):
    self._clients = clients
    self.population = algorithm_lib.Population(
      tuple(f'c{i:03d}' for i in range(len(clients))),
      np.array([client.num_examples for client in clients], np.int64),
    )

  def examples(self, client_index: int) -> schema.Examples:
    return self._clients[client_index]


def linear_clients(
  thetas: np.ndarray, mixtures: np.ndarray, sizes: list[int], seed: int = 0
) -> ToySource:
  """Clients whose examples follow y = <x, theta_s> + noise, by mixture."""
  generator = seeds.numpy_generator(seed, 'toy')
  clients = []
  for mixture, size in zip(mixtures, sizes, strict=True):
    source = generator.choice(len(thetas), size, p=mixture)
    x = generator.normal(size=(size, thetas.shape[1]))
    y = np.einsum('nd,nd->n', x, thetas[source]) + generator.normal(size=size)
    clients.append(
      schema.Examples(
        x.astype(np.float32), y.astype(np.float32), source.astype(np.int32)
      )
    )
  return ToySource(clients)


def image_clients(
  num_clients: int = 5, shape: tuple[int, ...] = (4, 4, 1), seed: int = 0
) -> ToySource:
  """Clients of different sizes with 3 separable classes of tiny images."""
  generator = seeds.numpy_generator(seed, 'toy')
  means = generator.normal(size=(3, *shape))
  clients = []
  for i in range(num_clients):
    size = 3 + 4 * i
    y = generator.integers(0, 3, size)
    x = means[y] + 0.3 * generator.normal(size=(size, *shape))
    clients.append(
      schema.Examples(
        x.astype(np.float32), y.astype(np.int32), np.zeros(size, np.int32)
      )
    )
  return ToySource(clients)


def mlp(shape: tuple[int, ...] = (4, 4, 1)):
  """A perceptron for `image_clients`."""
  return models.build_model(
    {'name': 'mlp', 'hidden_sizes': (5,)},
    task='classification',
    input_shape=shape,
    num_outputs=3,
  )


def linear(num_features: int):
  """Linear regression without intercept for `linear_clients`."""
  return models.build_model(
    {'name': 'linear_regression', 'use_bias': False},
    task='regression',
    input_shape=(num_features,),
    num_outputs=1,
  )


def run_rounds(
  algorithm, runtime, source, num_rounds: int, seed: int = 0, start=None
):
  """Runs rounds without files; returns server state, client states, outputs."""
  population = source.population
  run_seed = seeds.derive_seed(seed, 'init')
  if start is None:
    server_state = cohort_lib.to_numpy(
      algorithm.init_server_state(run_seed, population.num_clients)
    )
    states = [
      cohort_lib.to_numpy(
        algorithm.init_client_state(
          run_seed, seeds.derive_seed(seed, 'init', 0, client_id)
        )
      )
      for client_id in population.client_ids
    ]
  else:
    server_state, states = start
    states = list(states)
  outputs = []

  def load_states(indices):
    import tensorflow as tf

    rows = [states[int(index)] for index in indices]
    return tf.nest.map_structure(lambda *leaves: np.stack(leaves), *rows)

  import tensorflow as tf

  for round_num in range(1, num_rounds + 1):
    plan = algorithm.plan_round(server_state, population, round_num, seed)
    call = next(plan)
    while True:
      phase = algorithm.phases[call.phase]
      cohort = cohort_lib.Cohort(call, round_num, seed, source, load_states)
      output = runtime.run(phase, server_state, cohort)
      server_state = output.server_state
      if phase.uses_client_state:
        for row, index in enumerate(call.client_indices):
          states[int(index)] = tf.nest.map_structure(
            lambda leaf: leaf[row],  # noqa: B023
            output.client_states,
          )
      outputs.append(output)
      try:
        call = plan.send(server_state)
      except StopIteration:
        break
  return server_state, states, outputs
