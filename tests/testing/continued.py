"""Runs on disk that continue one another, for the cases of the contract."""

import pathlib

import numpy as np
import tensorflow as tf

from tff_algos.runtimes import client_sources
from tff_algos.training import checkpoint, continuation, loop

SEED = 3


class Run:
  """A run in its folder: some rounds, and a checkpoint after the last.

  Attributes:
    server_state: The server state after the last round.
    round_num: That round.
  """

  def __init__(self, case, folder: pathlib.Path, source):
    self.case, self.folder, self.source = case, folder, source
    identity = {
      'model': 'toy',
      'algorithm': {'name': case.algorithm.name},
      'seed': SEED,
      'dataset_version': folder.name,
    }
    self.checkpoints = checkpoint.CheckpointManager(
      folder / checkpoint.FOLDER,
      identity,
      client_ids=source.population.client_ids,
    )
    self.store = loop.build_store(
      case.algorithm,
      source.population,
      SEED,
      self.checkpoints.states_folder,
      'memory',
    )
    self.server_state = loop.initial_server_state(
      case.algorithm, source.population.num_clients, SEED
    )
    self.round_num = 0

  def train(self, num_rounds: int) -> 'Run':
    for _ in range(num_rounds):
      self.server_state, _ = loop.run_round(
        self.case.algorithm,
        self.case.vectorized,
        self.source,
        self.store,
        self.server_state,
        self.round_num + 1,
        SEED,
      )
      self.round_num += 1
      self.store.commit()
    self.checkpoints.save(self.round_num, self.server_state, self.store)
    return self

  def follow(self, name: str, source, **options) -> 'Run':
    """Returns a run beside this one that continues it."""
    child = Run(self.case, self.folder.with_name(name), source)
    config = continuation.ContinuationConfig(**{'min_known': 0.0, **options})
    parent = continuation.find_parent(child.folder, self.folder, config)
    child.parent = continuation.start(
      parent,
      child.folder,
      self.case.algorithm,
      self.case.debug,
      source,
      child.store,
      child.checkpoints,
      config,
    )
    child.round_num = child.checkpoints.find()
    child.server_state = child.checkpoints.restore(
      child.round_num, child.server_state, child.store
    )
    return child

  def state_of(self, client_id: str):
    """Returns a client's state, NumPy."""
    ids = self.source.population.client_ids
    loaded = self.store.load(np.array([ids.index(client_id)]))
    return tf.nest.map_structure(lambda leaf: np.asarray(leaf)[0], loaded)


def population(source, client_ids, **others) -> client_sources.ArraySource:
  """Returns some clients of a source, and others with its examples.

  Args:
    source: The clients to take from.
    client_ids: Its clients that are taken, in this order.
    **others: New client id -> the client of `source` whose examples it has.
  """
  ids = source.population.client_ids
  taken = {one: one for one in client_ids} | others
  return client_sources.ArraySource(
    {name: source.examples(ids.index(of)) for name, of in taken.items()}
  )
