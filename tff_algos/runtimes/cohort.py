"""Cohort of a phase call, loaded a block at a time; the runtime protocol."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import seeds
from tff_algos.core.structures import Structure
from tff_algos.data import schema
from tff_algos.rounds import composer


class ClientSource(Protocol):
  """Source of the population's examples."""

  population: algorithm_lib.Population

  def examples(self, client_index: int) -> schema.Examples:
    """Returns a client's examples, unpadded."""
    ...

  def stream(self) -> Iterator[schema.Examples]:
    """Yields the examples of all clients in their order, and keeps none."""
    ...


class Cohort(NamedTuple):
  """Clients of a phase call, and loading of their inputs, states, examples.

  Attributes:
    call: The phase call.
    round_num: The round, for seeds and error texts.
    base_seed: The run's seed.
    source: Source of the examples.
    load_states: Client indices int32 `[n]` -> client states stacked
      `[n, ...]`, NumPy, tensors or `pjrt.held_states.HeldLeaf`s.
  """

  call: algorithm_lib.PhaseCall
  round_num: int
  base_seed: int
  source: ClientSource
  load_states: Callable[[np.ndarray], Structure]

  @property
  def size(self) -> int:
    """Returns the number of clients."""
    return len(self.call.client_indices)

  @property
  def client_ids(self) -> list[str]:
    """Returns the ids of the clients, in the call's order."""
    ids = self.source.population.client_ids
    return [ids[index] for index in self.call.client_indices]

  @property
  def num_examples(self) -> np.ndarray:
    """Returns the number of examples of each client, int64 `[size]`."""
    return self.source.population.num_examples[self.call.client_indices]

  @property
  def shards(self) -> np.ndarray | None:
    """Returns the shard of each client, int `[size]`; None if in none."""
    shards = self.source.population.shards
    return None if shards is None else shards[self.call.client_indices]

  def part(self, positions: np.ndarray | slice) -> 'Cohort':
    """Returns the cohort of the clients at some positions."""
    return self._replace(call=self.call.of(positions))

  def client(
    self, position: int, *, uses_client_state: bool
  ) -> composer.Clients:
    """Loads the client at a position, of NumPy arrays, unstacked.

    Its examples are not padded, but that a client without any has one row whose
    mask is 0.
    """
    one = self.describe(slice(position, position + 1), uses_client_state)
    (examples,) = self.examples(one.client_index)
    client = tf.nest.map_structure(lambda leaf: leaf[0], one)
    return client._replace(data=_unpadded(examples))

  def describe(
    self, positions: np.ndarray | slice, uses_client_state: bool
  ) -> composer.Clients:
    """Returns inputs, states and seeds of some clients, without examples.

    Args:
      positions: In the cohort; one may come several times.
      uses_client_state: Whether to load client states.

    Returns:
      Clients stacked `[len(positions), ...]`, of NumPy arrays, but states as
      `load_states` returns them; data `()`.
    """
    indices = np.asarray(self.call.client_indices[positions], np.int32)
    ids = self.source.population.client_ids
    return composer.Clients(
      client_index=indices,
      client_input=tf.nest.map_structure(
        lambda leaf: leaf[positions], self.call.client_inputs
      ),
      client_state=self.load_states(indices) if uses_client_state else (),
      data=(),  # pyright: ignore[reportArgumentType]
      seed=seeds.derive_seeds(
        self.base_seed,
        self.call.purpose,
        self.round_num,
        (ids[index] for index in indices),
      ),
    )

  def examples(self, client_indices: np.ndarray) -> list[schema.Examples]:
    """Returns the examples of some clients of the population, unpadded."""
    return [self.source.examples(int(index)) for index in client_indices]


def _unpadded(examples: schema.Examples) -> algorithm_lib.ClientData:
  """Returns a client's examples, or one row of zeros with mask 0 if none."""
  num_examples = examples.num_examples
  mask = np.ones(num_examples, np.float32)
  columns: Structure = (examples.x, examples.y, mask)
  if not num_examples:
    columns = [np.zeros((1, *c.shape[1:]), c.dtype) for c in columns]
  return algorithm_lib.ClientData(*columns)


class PhaseOutput(NamedTuple):
  """Output of a phase call: new states and metrics.

  Attributes:
    server_state: The new server state.
    client_states: New client states in parts: pairs of client indices int32
      `[n]` and states `[n, ...]`, as `Cohort.load_states` returns them. Each
      client of the call is in one part; states are `()` if the phase uses none.
    server_metrics: Metrics of `server_update`.
    client_metrics: name -> MeanStat, summed over the valid clients.
    num_invalid: Number of clients whose result was NaN or infinite and was
      excluded.
  """

  server_state: Structure
  client_states: list[tuple[np.ndarray, Structure]]
  server_metrics: Structure
  client_metrics: dict[str, Any]
  num_invalid: int


class Runtime(Protocol):
  """Execution of phases. The result is the same on every runtime.

  Use it as a context manager, which owns its processes and threads.
  """

  def __enter__(self) -> 'Runtime':
    """Starts the runtime's processes and threads."""
    ...

  def __exit__(self, *exc_info: Any) -> None:
    """Ends the runtime's processes and threads."""
    ...

  def run(
    self, phase: algorithm_lib.Phase, server_state: Structure, cohort: Cohort
  ) -> PhaseOutput:
    """Runs one phase call.

    The server state is NumPy in and out; client states are as
    `Cohort.load_states` returns them.

    Raises:
      ConfigError: If the phase is another algorithm's, and the runtime keeps
        graphs by names of phases.
    """
    ...


def to_numpy(structure: Structure) -> Structure:
  """Returns a structure of tensors as NumPy arrays."""
  return tf.nest.map_structure(np.asarray, structure)


def concatenate(blocks: list[Structure]) -> Structure:
  """Joins structures of stacked NumPy arrays along axis 0."""
  return tf.nest.map_structure(lambda *leaves: np.concatenate(leaves), *blocks)
