"""Toy populations: a few small clients with known distributions."""

import numpy as np
import tensorflow as tf

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import seeds
from tff_algos.data import schema
from tff_algos.models import registry as models
from tff_algos.rounds import plans
from tff_algos.runtimes import cohort as cohort_lib
from tff_algos.runtimes.vectorized import vectorized_runtime


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
    models.parse_config({'name': 'mlp', 'hidden_sizes': (5,)}),
    task='classification',
    input_shape=shape,
    num_outputs=3,
  )


def logistic(shape: tuple[int, ...] = (4, 4, 1)):
  """Logistic regression for `image_clients`: the cheapest model to trace."""
  return models.build_model(
    models.parse_config({'name': 'logistic_regression'}),
    task='classification',
    input_shape=shape,
    num_outputs=3,
  )


def linear(num_features: int):
  """Linear regression without intercept for `linear_clients`."""
  return models.build_model(
    models.parse_config({'name': 'linear_regression', 'use_bias': False}),
    task='regression',
    input_shape=(num_features,),
    num_outputs=1,
  )


def transformer(places: int = 3, words: int = 6):
  """A transformer with a decoder of its own; word 0 is padding, 1 unscored."""
  return models.build_model(
    models.parse_config(
      {
        'name': 'transformer',
        'num_blocks': 1,
        'width': 4,
        'num_heads': 2,
        'hidden_size': 4,
        'decoder': 'untied',
      }
    ),
    task='classification',
    input_shape=(places,),
    num_outputs=words,
    input_dtype=tf.int32,
    label_shape=(places,),
    special_ids={'padding': 0, 'out_of_vocabulary': 1},
  )


def token_clients(
  sizes: list[int], places: int = 3, words: int = 6, seed: int = 0
) -> ToySource:
  """Clients with random sentences for `transformer`, of different lengths."""
  generator = seeds.numpy_generator(seed, 'toy')
  clients = []
  for size in sizes:
    tokens = generator.integers(1, words, (size, places + 1)).astype(np.int32)
    lengths = generator.integers(2, places + 2, (size, 1))
    tokens[np.arange(places + 1) >= lengths] = 0
    clients.append(
      schema.Examples(tokens[:, :-1], tokens[:, 1:], np.zeros(size, np.int32))
    )
  return ToySource(clients)


def graph_runtime(
  algorithm, num_clients: int
) -> vectorized_runtime.VectorizedRuntime:
  """The default runtime with one client a block, so that nothing is vectorized.

  Its graphs are traced in half of the time or less. That an algorithm gives the
  same vectorized is what the contract tests show: in `make verify`, of all.
  """
  return vectorized_runtime.VectorizedRuntime(
    algorithm,
    num_clients,
    vectorized_runtime.VectorizedConfig(clients_per_block=1),
  )


def initial_states(algorithm, population, seed: int = 0):
  """Returns the server state and the list of client states of round 0."""
  run_seed = seeds.derive_seed(seed, 'init')
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
  return server_state, states


def run_call(runtime, phase, server_state, states, call, cohort_args):
  """Runs one phase call and writes the new client states into `states`.

  Args:
    runtime: Who runs it.
    phase: What `call` names.
    server_state: The state before.
    states: Client states by client index; changed.
    call: The phase call.
    cohort_args: (round_num, base_seed, source).

  Returns:
    The `PhaseOutput`.
  """

  def load_states(indices):
    rows = [states[int(index)] for index in indices]
    return tf.nest.map_structure(lambda *leaves: np.stack(leaves), *rows)

  output = runtime.run(
    phase, server_state, cohort_lib.Cohort(call, *cohort_args, load_states)
  )
  if phase.uses_client_state:
    new_states = output.states_of(call.client_indices)
    for row, index in enumerate(call.client_indices):
      states[int(index)] = tf.nest.map_structure(
        lambda leaf: leaf[row],  # noqa: B023
        new_states,
      )
  return output


def run_rounds(
  algorithm,
  runtime,
  source,
  num_rounds: int,
  seed: int = 0,
  start=None,
  first_round: int = 1,
):
  """Runs rounds without files; returns server state, client states, outputs.

  Args:
    algorithm: What to run.
    runtime: Who runs it.
    source: The population.
    num_rounds: How many rounds.
    seed: The run's seed.
    start: (server state, client states) to go on from; None starts afresh.
    first_round: Number of the first round that is run.
  """
  population = source.population
  server_state, states = start or initial_states(algorithm, population, seed)
  states = list(states)
  outputs = []
  for round_num in range(first_round, first_round + num_rounds):
    calls = plans.Calls(
      algorithm.plan_round(server_state, population, round_num, seed),
      server_state,
    )
    for call in calls:
      output = run_call(
        runtime,
        algorithm.phases[call.phase],
        calls.server_state,
        states,
        call,
        (round_num, seed, source),
      )
      calls.server_state = output.server_state
      outputs.append(output)
    server_state = calls.server_state
  return server_state, states, outputs


def assert_outputs_close(
  output: cohort_lib.PhaseOutput,
  expected: cohort_lib.PhaseOutput,
  rtol: float,
) -> None:
  """Compares two outputs of one call; the order of states does not count."""
  clients = np.sort(np.concatenate([part for part, _ in output.client_states]))
  one, other = (
    tf.nest.flatten(
      (tuple(each._replace(client_states=())), each.states_of(clients))
    )
    for each in (output, expected)
  )
  for ours, theirs in zip(one, other, strict=True):
    np.testing.assert_allclose(ours, theirs, rtol=rtol)
