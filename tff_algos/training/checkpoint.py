"""Atomic checkpoints: server state and client states after a round.

    <folder>/round_000010/server_state.npz
                          client_index.npz   segment and row of each client
                          checkpoint.json    round, identity, seed,
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
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tff_algos.core import config as config_lib
from tff_algos.core import durable, errors
from tff_algos.core.structures import Structure
from tff_algos.training import client_state_store

_SCHEMA_VERSION = 1
_MANIFEST = 'checkpoint.json'
_SERVER_STATE = 'server_state.npz'
_CLIENT_INDEX = 'client_index.npz'
_STATES_FOLDER = 'client_states'
_TEMPORARY = '.writing'


class CheckpointManager:
  """Writes, finds and reads the checkpoints of one run."""

  def __init__(
    self,
    folder: str | os.PathLike[str],
    identity: Mapping[str, Any],
    num_kept: int = 2,
    *,
    read_only: bool = False,
  ):
    """Prepares a manager; writes nothing.

    Args:
      folder: Folder of the run's checkpoints.
      identity: Config entries that affect training state, JSON-ready: a
        checkpoint of another identity is refused.
      num_kept: Number of latest checkpoints that are kept, >= 1.
      read_only: Whether another process writes the checkpoints; `save` and
        `remove_unfinished` then do nothing.
    """
    self._folder = pathlib.Path(folder)
    self._identity = json.loads(json.dumps(identity))
    self._num_kept = num_kept
    self._read_only = read_only

  @property
  def states_folder(self) -> pathlib.Path:
    """Returns the folder of the client state store's segments."""
    return self._folder / _STATES_FOLDER

  def rounds(self) -> list[int]:
    """Returns the rounds that have a checkpoint, ascending."""
    return sorted(
      int(path.parent.name.removeprefix('round_'))
      for path in self._folder.glob(f'round_*/{_MANIFEST}')
    )

  def save(
    self,
    round_num: int,
    server_state: Structure,
    store: client_state_store.ClientStateStore,
    pinned_rounds: Collection[int] = (),
  ) -> None:
    """Writes the checkpoint of a finished round and removes old ones.

    Args:
      round_num: The round, >= 1.
      server_state: The server state after the round, NumPy.
      store: The committed client states after the round.
      pinned_rounds: Rounds whose checkpoints are kept at any age.

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
      index = store.write_segment(round_num)
      _save_arrays(temporary / _SERVER_STATE, tf.nest.flatten(server_state))
      _save_arrays(temporary / _CLIENT_INDEX, index)
      manifest = {
        'schema_version': _SCHEMA_VERSION,
        'round_num': round_num,
        'identity': self._identity,
        'seed': store.seed,
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
    self._remove_old({*self.rounds()[-self._num_kept :], *pinned_rounds})

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
    manifest = self._read_manifest(folder)
    self._check_identity(folder, manifest['identity'])
    for name, expected in manifest['files'].items():
      path = self._folder / name
      if not path.exists() or _sha256(path) != expected:
        raise errors.CheckpointError(
          f'checkpoint file {path} is missing or damaged (its SHA-256 is not '
          f'the one in {folder / _MANIFEST}). Remove {folder} to resume from '
          'an earlier checkpoint'
        )
    with np.load(folder / _CLIENT_INDEX) as arrays:
      store.restore(
        client_state_store.StoreIndex(arrays['0000'], arrays['0001'])
      )
    # Older checkpoints have no seed.
    store.seed = manifest.get('seed', store.seed)
    with np.load(folder / _SERVER_STATE) as arrays:
      leaves = [arrays[key] for key in sorted(arrays.files)]
    return tf.nest.pack_sequence_as(server_state, leaves)

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
      'Give this one a --workdir of its own, or take the old config'
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


def _save_arrays(path: pathlib.Path, arrays: Collection[np.ndarray]) -> None:
  """Works as `np.savez`, but leaves no file open if the disk is full."""
  with open(path, 'wb') as file:
    with zipfile.ZipFile(file, 'w') as archive:
      for i, array in enumerate(arrays):
        with archive.open(f'{i:04d}.npy', 'w', force_zip64=True) as entry:
          np.lib.format.write_array(entry, np.asarray(array))


def _sha256(path: pathlib.Path) -> str:
  with open(path, 'rb') as file:
    return hashlib.file_digest(file, 'sha256').hexdigest()
