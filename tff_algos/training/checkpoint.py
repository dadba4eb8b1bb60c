"""Atomic checkpoints: server state and client states after a round.

    <folder>/clients.json                    ids of all clients, in their order
    <folder>/round_000010/server_state.npz
                          client_index.npz   segment and row of each client
                          checkpoint.json    round, identity, seed, best round,
                                             SHA-256 of files
    <folder>/client_states/round_000010.npy  rows that changed since the last

A checkpoint is a folder that is renamed into place when all its files are on
the disk. So a process killed at any moment, or a power loss, leaves complete
checkpoints only.
"""

import hashlib
import json
import os
import pathlib
import shutil
import zipfile
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tff_algos.core import checks, durable, errors
from tff_algos.core import config as config_lib
from tff_algos.core.structures import Structure
from tff_algos.training import client_state_store
from tff_algos.training import selection as selection_lib

# In the workdir.
FOLDER = 'checkpoints'
LAST = 'last'
BEST = 'best'
_SCHEMA_VERSION = 1
_MANIFEST = 'checkpoint.json'
_SERVER_STATE = 'server_state.npz'
_CLIENT_INDEX = 'client_index.npz'
_CLIENTS = 'clients.json'
_STATES_FOLDER = 'client_states'
_TEMPORARY = '.writing'


def saved_rounds(folder: pathlib.Path) -> list[int]:
  """Returns the rounds that have a checkpoint in a folder, ascending."""
  return sorted(
    int(path.parent.name.removeprefix('round_'))
    for path in folder.glob(f'round_*/{_MANIFEST}')
  )


def parse_choice(text: str) -> int | str:
  """Returns a choice for `CheckpointManager.find`.

  Raises:
    ConfigError: If it is neither a round nor `'last'` or `'best'`.
  """
  if text.isdecimal():
    return int(text)
  return checks.check_one_of('round', text, (LAST, BEST))


class Saved(NamedTuple):
  """Content of a checkpoint.

  Attributes:
    manifest: Content of `checkpoint.json`.
    client_ids: All clients, in the order of the index.
    index: Positions of their states.
    server_leaves: Leaves of the server state.
  """

  manifest: Mapping[str, Any]
  client_ids: tuple[str, ...]
  index: client_state_store.StoreIndex
  server_leaves: list[np.ndarray]


class CheckpointManager:
  """Writes, finds and reads the checkpoints of one run."""

  def __init__(
    self,
    folder: str | os.PathLike[str],
    identity: Mapping[str, Any],
    num_kept: int = 2,
    *,
    client_ids: Sequence[str] = (),
    read_only: bool = False,
  ):
    """Prepares a manager; writes nothing.

    Args:
      folder: Folder of the run's checkpoints.
      identity: Config entries that affect training state, JSON-ready: a
        checkpoint of another identity is refused.
      num_kept: Number of latest checkpoints that are kept, >= 1.
      client_ids: All clients; a run that continues this one finds their states
        by these.
      read_only: Whether another process writes the checkpoints; `save` and
        `remove_unfinished` then do nothing.
    """
    self._folder = pathlib.Path(folder)
    self._identity = json.loads(json.dumps(identity))
    self._num_kept = num_kept
    self._client_ids = tuple(client_ids)
    self._read_only = read_only

  @property
  def states_folder(self) -> pathlib.Path:
    """Returns the folder of the client state store's segments."""
    return self._folder / _STATES_FOLDER

  def rounds(self) -> list[int]:
    """Returns the rounds that have a checkpoint, ascending."""
    return saved_rounds(self._folder)

  def find(self, choice: int | str = LAST) -> int:
    """Returns the round of a checkpoint.

    Args:
      choice: A round, `'last'`, or `'best'` by the run's selection metric.

    Raises:
      CheckpointError: If there is no such checkpoint.
    """
    saved = self.rounds()
    if not saved:
      raise errors.CheckpointError(
        f'{self._folder.parent} holds no checkpoint; run binaries.train first'
      )
    if choice == LAST:
      return saved[-1]
    if choice == BEST:
      choice = self.progress(saved[-1]).best_round
      if choice < 0:
        raise errors.CheckpointError(
          f'{self._folder.parent} has no best round: no evaluated round has '
          'the metric of config.training.selection, say for want of validation '
          "examples. Name a metric that it has, or take the round 'last'"
        )
    if choice not in saved:
      raise errors.CheckpointError(
        f'{self._folder.parent} holds no checkpoint of round {choice}; it has '
        f'those of the rounds {", ".join(map(str, saved))}'
      )
    return int(choice)

  def identity(self, round_num: int) -> Mapping[str, Any]:
    """Returns the identity of the run that wrote a checkpoint."""
    return self._read_manifest(self._round_folder(round_num))['identity']

  def progress(self, round_num: int) -> selection_lib.Progress:
    """Returns the best round until a checkpoint."""
    manifest = self._read_manifest(self._round_folder(round_num))
    return selection_lib.Progress(**manifest.get('progress', {}))

  def starts_run(self, round_num: int) -> bool:
    """Returns whether a continued run has this checkpoint from its parent."""
    manifest = self._read_manifest(self._round_folder(round_num))
    return manifest.get('starts_run', False)

  def save(
    self,
    round_num: int,
    server_state: Structure,
    store: client_state_store.ClientStateStore,
    progress: selection_lib.Progress = selection_lib.Progress(),
    *,
    starts_run: bool = False,
  ) -> None:
    """Writes the checkpoint of a finished round and removes old ones.

    That of the best round is kept at any age.

    Args:
      round_num: The round, >= 1.
      server_state: The server state after the round, NumPy.
      store: The committed client states after the round.
      progress: The best round so far.
      starts_run: Whether it has the states that a continued run starts from.

    Raises:
      CheckpointError: If writing fails; earlier checkpoints are untouched.
    """
    temporary = self._folder / f'{_TEMPORARY}_{round_num:06d}'
    target = self._round_folder(round_num)
    if self._read_only or target.exists():
      return
    try:
      durable.make_folder(self._folder)
      temporary.mkdir()
      self._write_client_ids()
      index = store.write_segment(round_num)
      save_arrays(temporary / _SERVER_STATE, tf.nest.flatten(server_state))
      save_arrays(temporary / _CLIENT_INDEX, index)
      manifest = {
        'schema_version': _SCHEMA_VERSION,
        'round_num': round_num,
        'identity': self._identity,
        'seed': store.seed,
        'client_state': store.row_type(),
        'progress': progress._asdict() if progress.best_round >= 0 else {},
        'starts_run': starts_run,
        'files': self._hash_files(temporary, index, store),
      }
      (temporary / _MANIFEST).write_text(json.dumps(manifest, indent=2))
      durable.publish(temporary, target)
    except BaseException as error:
      if not target.exists():
        shutil.rmtree(temporary, ignore_errors=True)
        store.segment_path(round_num).unlink(missing_ok=True)
      if not isinstance(error, OSError):
        raise
      raise errors.CheckpointError(
        f'cannot write the checkpoint of round {round_num} in {self._folder}: '
        f'{error.strerror or error}. {self._last_good()} Free some space and '
        'run the same command again to resume from there'
      ) from error
    store.mark_saved(index)
    self._remove_old({*self.rounds()[-self._num_kept :], progress.best_round})

  def restore(
    self,
    round_num: int,
    server_state: Structure,
    store: client_state_store.ClientStateStore,
  ) -> Structure:
    """Reads a checkpoint.

    Args:
      round_num: One of `rounds()`.
      server_state: Any state of the right structure, such as the initial one.
      store: Receives the client states and their seed.

    Returns:
      The server state, NumPy.

    Raises:
      CheckpointError: If it is damaged, or of another run's identity.
    """
    folder = self._round_folder(round_num)
    self._check_identity(folder, self._read_manifest(folder)['identity'])
    saved = self.read(round_num)
    store.restore(saved.index)
    # Older checkpoints have no seed.
    store.seed = saved.manifest.get('seed', store.seed)
    return tf.nest.pack_sequence_as(server_state, saved.server_leaves)

  def read(self, round_num: int) -> Saved:
    """Reads a checkpoint of any identity.

    Args:
      round_num: One of `rounds()`.

    Raises:
      CheckpointError: If it is damaged.
    """
    folder = self._round_folder(round_num)
    manifest = self._read_manifest(folder)
    for name, expected in manifest['files'].items():
      path = self._folder / name
      if not path.exists() or _sha256(path) != expected:
        raise errors.CheckpointError(
          f'checkpoint file {path} is missing or damaged (its SHA-256 is not '
          f'the one in {folder / _MANIFEST}). Remove {folder} to resume from '
          'an earlier checkpoint'
        )
    with np.load(folder / _CLIENT_INDEX) as arrays:
      index = client_state_store.StoreIndex(arrays['0000'], arrays['0001'])
    with np.load(folder / _SERVER_STATE) as arrays:
      leaves = [arrays[key] for key in sorted(arrays.files)]
    # Older checkpoints have no ids.
    ids = self._folder / _CLIENTS
    client_ids = json.loads(ids.read_text()) if ids.exists() else ()
    return Saved(manifest, tuple(client_ids), index, leaves)

  def remove_unfinished(self) -> None:
    """Removes incomplete checkpoints of a killed process."""
    if self._read_only:
      return
    unfinished = {*self._folder.glob(f'{_TEMPORARY}_*')}
    # A power loss may undo the rename that began a checkpoint's removal.
    unfinished.update(self._folder.glob('round_*'))
    for path in unfinished - {*map(self._round_folder, self.rounds())}:
      shutil.rmtree(path)
    self._remove_old(set(self.rounds()))

  def _write_client_ids(self) -> None:
    path = self._folder / _CLIENTS
    if self._client_ids and not path.exists():
      with durable.replacing(path) as file:
        json.dump(self._client_ids, file)

  def _round_folder(self, round_num: int) -> pathlib.Path:
    return self._folder / f'round_{round_num:06d}'

  def _read_manifest(self, folder: pathlib.Path) -> dict[str, Any]:
    try:
      manifest = json.loads((folder / _MANIFEST).read_text())
      version = manifest['schema_version']
      _ = manifest['identity'], manifest['files']
    except (OSError, ValueError, KeyError, TypeError) as error:
      raise errors.CheckpointError(
        f'{folder / _MANIFEST} cannot be read: {error!r}. Remove {folder} to '
        'resume from an earlier checkpoint'
      ) from error
    if version != _SCHEMA_VERSION:
      raise errors.CheckpointError(
        f'{folder} has checkpoint schema version {version}, this program reads '
        f'{_SCHEMA_VERSION}. Use another --workdir'
      )
    return manifest

  def _check_identity(
    self, folder: pathlib.Path, identity: Mapping[str, Any]
  ) -> None:
    if identity == self._identity:
      return
    differences = config_lib.differences(self._identity, identity, 'now')
    raise errors.CheckpointError(
      f'{folder} belongs to another experiment ({"; ".join(differences)}). '
      'Give this one a --workdir of its own, with --continue_from to go on '
      'with other data, or take the old config'
    )

  def _hash_files(
    self,
    temporary: pathlib.Path,
    index: client_state_store.StoreIndex,
    store: client_state_store.ClientStateStore,
  ) -> dict[str, str]:
    """Returns path within the folder -> SHA-256, of all needed files."""
    target = self._round_folder(int(temporary.name.split('_')[-1])).name
    hashes = {
      f'{target}/{name}': _sha256(temporary / name)
      for name in (_SERVER_STATE, _CLIENT_INDEX)
    }
    known = self._known_hashes()
    if self._client_ids:
      path = self._folder / _CLIENTS
      hashes[_CLIENTS] = known.get(_CLIENTS) or _sha256(path)
    for round_num in np.unique(index.segment[index.segment > 0]):
      path = store.segment_path(int(round_num))
      name = f'{_STATES_FOLDER}/{path.name}'
      hashes[name] = known.get(name) or _sha256(path)
    return hashes

  def _known_hashes(self) -> dict[str, str]:
    rounds = self.rounds()
    if not rounds:
      return {}
    return self._read_manifest(self._round_folder(rounds[-1]))['files']

  def _remove_old(self, kept_rounds: Collection[int]) -> None:
    needed = set()
    for round_num in self.rounds():
      folder = self._round_folder(round_num)
      if round_num not in kept_rounds:
        # Renamed first, so that a partly removed folder is not a checkpoint.
        removed = self._folder / f'{_TEMPORARY}_{round_num:06d}'
        os.rename(folder, removed)
        shutil.rmtree(removed)
      else:
        needed.update(self._read_manifest(folder)['files'])
    for path in self.states_folder.glob('*.npy'):
      if f'{_STATES_FOLDER}/{path.name}' not in needed:
        path.unlink()

  def _last_good(self) -> str:
    rounds = self.rounds()
    if not rounds:
      return 'There is no earlier checkpoint.'
    return f'The checkpoint of round {rounds[-1]} is whole.'


def save_arrays(path: pathlib.Path, arrays: Collection[np.ndarray]) -> None:
  """Works as `np.savez`, but leaves no file open if the disk is full.

  The arrays are named `0000`, `0001` and so on.
  """
  with open(path, 'wb') as file:
    with zipfile.ZipFile(file, 'w') as archive:
      for i, array in enumerate(arrays):
        with archive.open(f'{i:04d}.npy', 'w', force_zip64=True) as entry:
          np.lib.format.write_array(entry, np.asarray(array))


def _sha256(path: pathlib.Path) -> str:
  with open(path, 'rb') as file:
    return hashlib.file_digest(file, 'sha256').hexdigest()
