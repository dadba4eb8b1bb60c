"""State and metrics of training through the managers of `tff.program`.

Takes any `tff.program.ProgramStateManager` and `tff.program.ReleaseManager`;
TFF itself is not imported.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from concurrent import futures
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from tff_algos.core import errors, records
from tff_algos.training import simulation as simulation_lib


class ReleaseManager(Protocol):
  """What is used of `tff.program.ReleaseManager`."""

  async def release(self, value: Any, key: Any) -> None:
    """Releases a value under a key."""
    ...


class ProgramStateManager(Protocol):
  """What is used of `tff.program.ProgramStateManager`."""

  async def save(self, program_state: Any, version: int) -> None:
    """Saves a state as a version."""
    ...

  async def load(self, version: int, structure: Any) -> Any:
    """Returns the state of a version."""
    ...

  async def get_versions(self) -> list[int] | None:
    """Returns the saved versions; None for none."""
    ...


class Releases:
  """Observer of a training that releases the metrics of every round.

  The `loop.Observer` of `loop.train`. The key of a release is its round. When a
  round runs again, TFF's CSV manager replaces its row and those of later
  rounds; the TensorBoard manager adds to what it wrote.
  """

  def __init__(self, *managers: ReleaseManager):
    """Takes the managers, all of which get all metrics."""
    self._managers = managers

  def resume(self, round_num: int, entries: records.Entries) -> None:
    """Does nothing: managers decide what a second release of a key does."""

  def record(
    self,
    round_num: int,
    metrics: Mapping[str, float],
    memberships: np.ndarray | None = None,
  ) -> None:
    """Releases the metrics of a round; memberships are not released."""
    del memberships
    for manager in self._managers:
      _wait_for(manager.release(dict(metrics), round_num))

  def persist(self) -> records.Entries:
    """Returns no entries: managers keep what is released."""
    return {}


def save_state(
  manager: ProgramStateManager, simulation: simulation_lib.Simulation
) -> None:
  """Saves server state and client states; the version is the last round.

  The state is the list of their leaves: `tff.program.FileProgramStateManager`
  refuses dictionaries and tuples with the TensorFlow of our lock file.
  """
  leaves = tf.nest.flatten(_states(simulation))
  _wait_for(manager.save(leaves, simulation.round_num))


def load_state(
  manager: ProgramStateManager,
  simulation: simulation_lib.Simulation,
  round_num: int | None = None,
) -> None:
  """Restores a state that `save_state` saved, in place.

  Args:
    manager: The manager that saved it.
    simulation: Of the same algorithm and population.
    round_num: The round; None for the last saved.

  Raises:
    CheckpointError: If the manager has no such round.
  """
  versions = _wait_for(manager.get_versions()) or []
  if round_num is None and versions:
    round_num = max(versions)
  if round_num is None or round_num not in versions:
    wanted = 'state' if round_num is None else f'state of round {round_num}'
    raise errors.CheckpointError(
      f'the program state manager has no {wanted}; it has rounds '
      f'{sorted(versions)}. Save one by save_state'
    )
  states = _states(simulation)
  leaves = _wait_for(manager.load(round_num, tf.nest.flatten(states)))
  restored = tf.nest.pack_sequence_as(states, list(leaves))
  simulation.server_state, simulation.client_states = restored
  simulation.round_num = round_num


def _states(simulation: simulation_lib.Simulation) -> tuple[Any, list[Any]]:
  return simulation.server_state, list(simulation.client_states)


def _wait_for(call: Coroutine[Any, Any, Any]) -> Any:
  """Returns the result of a coroutine.

  In a thread of its own: a notebook's thread has a running event loop.
  """
  with futures.ThreadPoolExecutor(1) as thread:
    return thread.submit(asyncio.run, call).result()
