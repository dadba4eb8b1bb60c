"""Toy populations: a few small clients with known distributions."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tff_algos.core import seeds
from tff_algos.data import schema
from tff_algos.models import registry as models
from tff_algos.runtimes import client_sources, debug_runtime
from tff_algos.runtimes import cohort as cohort_lib
from tff_algos.runtimes.vectorized import vectorized_runtime
from tff_algos.training import loop, simulation

# Of the sentences of `token_clients`, for `transformer`.
_PLACES, _NUM_WORDS = 3, 6


class ToySource(client_sources.ArraySource):
  """Clients `c000`, `c001` and so on; a test may change them before round 1."""

  def __init__(self, clients: list[schema.Examples]):
    super().__init__({f'c{i:03d}': one for i, one in enumerate(clients)})
    for array in itertools.chain(*self.stream()):
      array.flags.writeable = True


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
  num_clients: int, shape: tuple[int, ...] = (4, 4, 1), seed: int = 0
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


def build(
  section: Mapping[str, Any],
  input_shape: tuple[int, ...],
  num_outputs: int = 3,
  task: str = 'classification',
  **facts: Any,
):
  """Builds the model that a config's `model` section, as written, names.

  Args:
    section: The model's name and its options.
    input_shape: Shape of one example.
    num_outputs: Number of classes, or 1 for regression.
    task: Task of the data set.
    **facts: Other facts about the data set that `models.build_model` takes.
  """
  return models.build_model(
    models.parse_config(section),
    task=task,
    input_shape=input_shape,
    num_outputs=num_outputs,
    **facts,
  )


def mlp(shape: tuple[int, ...] = (4, 4, 1)):
  """A perceptron for `image_clients`."""
  return build({'name': 'mlp', 'hidden_sizes': (5,)}, shape)


def logistic(shape: tuple[int, ...] = (4, 4, 1)):
  """Logistic regression for `image_clients`: the cheapest model to trace."""
  return build({'name': 'logistic_regression'}, shape)


def linear(num_features: int):
  """Linear regression without intercept for `linear_clients`."""
  return build(
    {'name': 'linear_regression', 'use_bias': False},
    (num_features,),
    1,
    'regression',
  )


def transformer():
  """A transformer with a decoder of its own; word 0 is padding, 1 unscored."""
  return build(
    {
      'name': 'transformer',
      'num_blocks': 1,
      'width': 4,
      'num_heads': 2,
      'hidden_size': 4,
      'decoder': 'untied',
    },
    (_PLACES,),
    _NUM_WORDS,
    input_dtype=tf.int32,
    label_shape=(_PLACES,),
    special_ids={'padding': 0, 'out_of_vocabulary': 1},
  )


def token_clients(sizes: list[int]) -> ToySource:
  """Clients with random sentences for `transformer`, of different lengths."""
  generator = seeds.numpy_generator(0, 'toy')
  clients = []
  for size in sizes:
    shape = (size, _PLACES + 1)
    tokens = generator.integers(1, _NUM_WORDS, shape).astype(np.int32)
    lengths = generator.integers(2, _PLACES + 2, (size, 1))
    tokens[np.arange(_PLACES + 1) >= lengths] = 0
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


def block_runtime(
  algorithm, num_clients: int
) -> vectorized_runtime.VectorizedRuntime:
  """The default runtime in blocks of two clients, if the model vectorizes."""
  block = 2 if algorithm.cluster_model.vectorizes else 1
  return vectorized_runtime.VectorizedRuntime(
    algorithm, num_clients, vectorized_runtime.VectorizedConfig(block)
  )


def initial_states(algorithm, population, seed: int = 0):
  """Returns the server state and the list of client states of round 0.

  Other draws than a training's, by which the numbers in tests were chosen.
  """
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
  round_num, seed, source = cohort_args
  kept = simulation.ClientStates(states)
  output = loop.run_call(
    runtime, phase, source, kept, server_state, call, round_num, seed
  )
  states[:] = kept.rows
  return output


def run_rounds(
  algorithm,
  source,
  num_rounds: int,
  seed: int = 0,
  start=None,
  first_round: int = 1,
  runtime=None,
):
  """Runs rounds in memory; returns server state, client states, outputs.

  Args:
    algorithm: What to run.
    source: The population.
    num_rounds: How many rounds.
    seed: The run's seed.
    start: (server state, client states) to go on from; None starts afresh.
    first_round: Number of the first round that is run.
    runtime: Who runs it; None for a debug runtime.
  """
  runtime = runtime or debug_runtime.DebugRuntime(
    algorithm, source.population.num_clients
  )
  start = start or initial_states(algorithm, source.population, seed)
  run = simulation.Simulation(algorithm, source, runtime, seed, start)
  run.round_num = first_round - 1
  outputs = []
  for _ in range(num_rounds):
    outputs += [one.output for one in run.run_round()]
  return run.server_state, run.client_states, outputs


def states_of(output: cohort_lib.PhaseOutput, client_indices):
  """Returns the new states of some clients, stacked `[n, ...]`, NumPy."""
  indices = np.concatenate([part for part, _ in output.client_states])
  states = cohort_lib.concatenate(
    [cohort_lib.to_numpy(part) for _, part in output.client_states]
  )
  position = {int(index): i for i, index in enumerate(indices)}
  rows = [position[int(index)] for index in client_indices]
  return tf.nest.map_structure(lambda leaf: leaf[rows], states)


def assert_outputs_close(
  output: cohort_lib.PhaseOutput,
  expected: cohort_lib.PhaseOutput,
  rtol: float,
) -> None:
  """Compares two outputs of one call; the order of states does not count."""
  clients = np.sort(np.concatenate([part for part, _ in output.client_states]))
  one, other = (
    tf.nest.flatten(
      (tuple(each._replace(client_states=())), states_of(each, clients))
    )
    for each in (output, expected)
  )
  for ours, theirs in zip(one, other, strict=True):
    np.testing.assert_allclose(ours, theirs, rtol=rtol)
