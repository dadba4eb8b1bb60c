"""One TensorFlow graph for a block of clients; the fast simulator.

A block of clients is stacked on axis 0. Where the model turns into batched
matrix products the clients are vectorized; convolutions are looped over inside
the graph. Blocks stream through: only sums, and what a phase collects, are
kept. Graphs are traced once per phase, whatever the cohort.
"""

import dataclasses
import functools
from typing import Any

import tensorflow as tf

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import checks
from tff_algos.data import batching
from tff_algos.numerics import trees
from tff_algos.runtimes import cohort as cohort_lib
from tff_algos.runtimes import vectorization
from tff_algos.stages import composer

Structure = Any


@dataclasses.dataclass(frozen=True)
class VectorizedConfig:
  """Options of the vectorized runtime.

  Attributes:
    clients_per_block: Clients stacked at a time, >= 1. More use more memory.
  """

  clients_per_block: int = 100

  def __post_init__(self):
    checks.check_int('clients_per_block', self.clients_per_block, minimum=1)


@dataclasses.dataclass(frozen=True)
class _Graphs:
  """The traced functions of one phase."""

  make_message: Any
  work: Any
  server_update: Any


class VectorizedRuntime:
  """Runs phases as TensorFlow graphs over blocks of stacked clients."""

  def __init__(
    self,
    algorithm: algorithm_lib.FederatedAlgorithm,
    num_clients: int,
    config: VectorizedConfig | None = None,
  ):
    """Prepares the graphs of an algorithm.

    Args:
      algorithm: What to run.
      num_clients: Size of the population.
      config: Options.
    """
    self._algorithm = algorithm
    self._types = composer.check_algorithm(algorithm, num_clients)
    self._config = config or VectorizedConfig()
    self._graphs: dict[str, _Graphs] = {}

  def __enter__(self) -> 'VectorizedRuntime':
    return self

  def __exit__(self, *exc_info: Any) -> None:
    self._graphs.clear()

  def run(
    self,
    phase: algorithm_lib.Phase,
    server_state: Structure,
    cohort: cohort_lib.Cohort,
  ) -> cohort_lib.PhaseOutput:
    """Runs one phase call, see `cohort.Runtime`."""
    graphs = self._graphs_of(phase)
    message = graphs.make_message(server_state)
    size = self._config.clients_per_block
    sums, collections, states = None, [], []
    for start in range(0, cohort.size, size):
      clients = cohort.load(
        start,
        min(start + size, cohort.size),
        uses_client_state=phase.uses_client_state,
        capacity=batching.bucket_capacity,
      )
      block_sums, collection, block_states = graphs.work(message, clients)
      sums = block_sums if sums is None else trees.add(sums, block_sums)
      collections.append(cohort_lib.to_numpy(collection))
      states.append(cohort_lib.to_numpy(block_states))
    new_state, server_metrics = graphs.server_update(
      server_state, sums, cohort_lib.concatenate(collections)
    )
    return cohort_lib.PhaseOutput(
      server_state=cohort_lib.to_numpy(new_state),
      client_states=cohort_lib.concatenate(states),
      server_metrics=cohort_lib.to_numpy(server_metrics),
      client_metrics=dict(cohort_lib.to_numpy(sums['metrics'])),
      num_invalid=int(sums['num_invalid']),
    )

  def _graphs_of(self, phase: algorithm_lib.Phase) -> _Graphs:
    if phase.name not in self._graphs:
      self._graphs[phase.name] = self._build(phase)
    return self._graphs[phase.name]

  def _build(self, phase: algorithm_lib.Phase) -> _Graphs:
    types = self._types.get(phase.name) or composer.check_phase(
      phase,
      self._server_type(),
      self._client_type(),
      composer.data_spec(self._algorithm.cluster_model),
    )
    blocks = _any_length(types.clients)
    graph = functools.partial(tf.function, autograph=False)

    @functools.partial(graph, input_signature=[types.message, blocks])
    def work(message, clients):
      one = functools.partial(composer.client_work, phase, message)
      outputs = self._map_clients(one, clients, types.output)
      return (
        composer.partial_sums(phase, outputs),
        composer.collected(phase, clients.client_index, outputs),
        outputs.client_state,
      )

    sums, collection, _ = work.get_concrete_function().structured_outputs
    return _Graphs(
      make_message=graph(
        phase.make_message, input_signature=[types.server_state]
      ),
      work=work,
      server_update=graph(
        functools.partial(composer.server_update, phase),
        input_signature=[
          types.server_state,
          *tf.nest.map_structure(
            lambda leaf: tf.TensorSpec(leaf.shape, leaf.dtype),
            (sums, collection),
          ),
        ],
      ),
    )

  def _map_clients(self, function, clients, output_type):
    if self._algorithm.cluster_model.vectorizes:
      return vectorization.map_stacked(function, clients)
    return tf.map_fn(function, clients, fn_output_signature=output_type)

  def _server_type(self) -> Structure:
    return next(iter(self._types.values())).server_state

  def _client_type(self) -> Structure:
    return composer.state_specs(self._algorithm, 1)[1]


def _any_length(spec: Structure) -> Structure:
  """Returns the type of a stack of any number of values of a type."""
  return tf.nest.map_structure(
    lambda leaf: tf.TensorSpec([None, *leaf.shape], leaf.dtype), spec
  )
