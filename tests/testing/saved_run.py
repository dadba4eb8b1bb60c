"""A training that needs no model, and saves a checkpoint of every round."""

import pathlib
from typing import NamedTuple

import numpy as np

from tff_algos.training import checkpoint, client_state_store

_NUM_CLIENTS = 6
_IDENTITY = {'seed': 3, 'algorithm': {'name': 'a', 'sizes': (1, 2)}}


class ServerState(NamedTuple):
  weights: dict[str, np.ndarray]
  round_num: np.ndarray


def server_state(round_num: int) -> ServerState:
  """Returns the state after a round."""
  kernel = np.full(4, round_num / 7, np.float32)
  return ServerState(
    {'kernel': kernel, 'bias': -kernel[:1]}, np.int64(round_num)
  )


class Run:
  """A training that needs no model: round r changes the clients r and 2 r."""

  def __init__(
    self, folder, identity=None, num_kept=2, kind='memory', **options
  ):
    self.folder = folder
    self.checkpoints = checkpoint.CheckpointManager(
      folder, identity or _IDENTITY, num_kept, **options
    )
    self.store = client_state_store.ClientStateStore(
      lambda index, seed: np.full(3, -index, np.float64),
      _NUM_CLIENTS,
      self.checkpoints.states_folder,
      kind,
    )
    self.round_num = 0

  def resume(self) -> 'Run':
    self.checkpoints.remove_unfinished()
    if self.checkpoints.rounds():
      self.restore(self.checkpoints.rounds()[-1])
    return self

  def restore(self, round_num: int, **options) -> ServerState:
    self.round_num = round_num
    return self.checkpoints.restore(
      round_num, server_state(0), self.store, **options
    )

  def step(self) -> None:
    self.round_num += 1
    changed = sorted({self.round_num % 6, 2 * self.round_num % 6})
    values = [np.full(3, 100 * self.round_num + i, np.float64) for i in changed]
    self.store.stage(np.array(changed), np.stack(values))
    self.store.commit()

  def train(self, num_rounds: int, **save_options) -> 'Run':
    while self.round_num < num_rounds:
      self.step()
      self.save(**save_options)
    return self

  def save(self, **options) -> None:
    state = server_state(self.round_num)
    self.checkpoints.save(self.round_num, state, self.store, **options)

  def states(self) -> list[float]:
    return self.store.load(np.arange(_NUM_CLIENTS))[:, 0].tolist()


def expected_states(round_num: int) -> list[float]:
  """Returns the first number of each client's state after a round."""
  states = [-float(i) for i in range(_NUM_CLIENTS)]
  for r in range(1, round_num + 1):
    for i in (r % 6, 2 * r % 6):
      states[i] = 100.0 * r + i
  return states


def check_latest(folder) -> int:
  """Restores the latest checkpoint and checks all of it; returns its round."""
  run = Run(folder)
  round_num = run.checkpoints.rounds()[-1]
  state = run.restore(round_num)
  np.testing.assert_equal(state, server_state(round_num))
  assert run.states() == expected_states(round_num)
  return round_num


def files(folder) -> list[str]:
  """Returns the paths of all files within a folder, sorted."""
  return sorted(
    str(path.relative_to(folder))
    for path in pathlib.Path(folder).rglob('*')
    if path.is_file()
  )
