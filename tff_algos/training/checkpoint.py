"""Atomic checkpoints: server state and client states after a round.

    <folder>/clients.json                    ids of all clients, in their order
    <folder>/round_000010/server_state.npz
                          client_index.npz   segment and row of each client
                          checkpoint.json    round, identity, seed, best round,
                                             SHA-256 of files
                          records.json       checksums of the metrics, the
                                             memberships and the audit log
    <folder>/client_states/round_000010.npy  rows that changed since the last

A checkpoint is a folder that is renamed into place when all its files are on
the disk, and renamed, durably, before they are removed. So a process killed at
any moment, or a power loss, leaves complete checkpoints only, and an incomplete
one is damage: an error, which says whether an earlier checkpoint is whole.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import zipfile
from collections.abc import (
  Callable,
  Collection,
  Generator,
  Mapping,
  Sequence,
)
from typing import Any, NamedTuple, NoReturn

import numpy as np
import tensorflow as tf
from absl import logging

from tff_algos.core import config as config_lib
from tff_algos.core import durable, errors, records, sealed_json
from tff_algos.core.structures import Structure
from tff_algos.training import client_state_store
from tff_algos.training import selection as selection_lib

# In the workdir.
FOLDER = 'checkpoints'
PARENT_FILE = 'parent.json'
# In the folder of the checkpoints.
DEPARTED = 'departed'
# Prefix of folders that are incomplete, or being removed.
TEMPORARY = '.writing'
LAST = 'last'
BEST = 'best'
_SCHEMA_VERSION = 1
_MANIFEST = 'checkpoint.json'
_SERVER_STATE = 'server_state.npz'
_CLIENT_INDEX = 'client_index.npz'
_CLIENTS = 'clients.json'
_STATES_FOLDER = 'client_states'
# Among the files of a checkpoint.
_PARENT = f'../{PARENT_FILE}'


def saved_rounds(folder: pathlib.Path) -> list[int]:
  """Returns the rounds that have a checkpoint in a folder, ascending.

  A damaged one counts, so that it is not passed over for an older one.

  Raises:
    CheckpointError: If the folder is a file.
  """
  if os.path.lexists(folder) and not folder.is_dir():
    raise errors.CheckpointError(
      f'{folder} is a file, where the folder of checkpoints belongs. Put a '
      'copy of the folder back, or remove it and run binaries.train again, '
      'which then trains from the beginning'
    )
  return sorted(
    int(path.name.removeprefix('round_'))
    for path in folder.glob('round_*')
    if re.fullmatch(r'round_\d{6,}', path.name)
  )


def parse_choice(text: str) -> int | str:
  """Returns a choice for `CheckpointManager.find`.

  Raises:
    ConfigError: If it is neither a round nor `'last'` or `'best'`.
  """
  if text.isdecimal():
    return int(text)
  if text not in (LAST, BEST):
    raise errors.ConfigError(
      f'round must be the number of a round, {LAST!r} or {BEST!r}, got {text!r}'
    )
  return text


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


def fill(
  folder: pathlib.Path, state: Structure, leaves: list[np.ndarray], remedy: str
) -> Structure:
  """Returns a saved server state in the structure of an initial one.

  Args:
    folder: That of the checkpoint or its run, for the error.
    state: The initial server state, NumPy.
    leaves: Leaves of the saved one.
    remedy: What to do if they do not fit.

  Raises:
    CheckpointError: If they have other shapes.
  """
  expected = [leaf.shape for leaf in tf.nest.flatten(state)]
  found = [leaf.shape for leaf in leaves]
  if expected != found:
    raise errors.CheckpointError(
      f'{folder} has a server state with arrays of the shapes {found}, with '
      f'this config, data and program they are {expected}. {remedy}'
    )
  return tf.nest.pack_sequence_as(state, leaves)


class CheckpointManager:
  """Writes, finds and reads the checkpoints of one run.

  Attributes:
    run_identity: Config entries that affect training state, JSON-ready.
    on_saved: Called after each checkpoint; None for nothing.
  """

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
    # As it is read again: lists for tuples.
    self.run_identity = json.loads(json.dumps(identity))
    self._num_kept = num_kept
    self._client_ids = tuple(client_ids)
    self._read_only = read_only
    self.on_saved: Callable[[], object] | None = None

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
      ConfigError: If it is none of them.
      CheckpointError: If there is no such checkpoint.
    """
    if isinstance(choice, str):
      choice = parse_choice(choice)
    saved = self.rounds()
    if not saved:
      raise errors.CheckpointError(
        f'{self._folder} holds no checkpoint; run binaries.train first'
      )
    if choice == LAST:
      return saved[-1]
    if choice == BEST:
      choice = self.progress(saved[-1]).best_round
      if choice < 0 and self.starts_run(saved[-1]):
        choice = saved[-1]  # A continued run that has no round of its own yet.
      if choice < 0:
        raise errors.CheckpointError(
          f'{self._folder.parent} has no best round: no evaluated round has '
          'the metric of config.training.selection, say for want of validation '
          "examples. Take the round 'last', or train a run of its own, in "
          'another --workdir, with a config.training.selection.metric that its '
          'evaluations have, such as held_out/...'
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
    return selection_lib.Progress(**manifest['progress'])

  def seed(self, round_num: int) -> int:
    """Returns the seed of a checkpoint's run: that of its best restart."""
    return self._read_manifest(self._round_folder(round_num))['seed']

  def check_parent(self, round_num: int) -> None:
    """Raises CheckpointError if the record of the parent run is damaged.

    Args:
      round_num: One of `rounds()`; nothing is checked if its checkpoint has no
        such record.
    """
    files = self._read_manifest(self._round_folder(round_num))['files']
    known = {_PARENT: files[_PARENT]} if _PARENT in files else {}
    self._check_files(round_num, known)

  def checked_records(self, round_num: int) -> records.Entries:
    """Returns the checked entries of the run's records until a checkpoint.

    Empty, with a warning, if `records.json` was removed: the records are then
    taken as they are.

    Args:
      round_num: One of `rounds()`, or 0.

    Raises:
      CheckpointError: If a record is missing or damaged.
    """
    if not round_num:
      return {}
    place = self._round_folder(round_num) / records.FILE
    entries = self._read_records(round_num)
    if entries is None and not place.parent.exists():
      self._refuse(place.parent, f'{place} is missing')
    if entries is None:
      logging.warning(
        '%s is missing: metrics and memberships until round %d are taken as '
        'they are.',
        place,
        round_num,
      )
      return {}
    found = records.first_problem(self._folder.parent, entries)
    if found:
      self._refuse(
        self._round_folder(round_num),
        str(found),
        f'remove {found.path} and {place} to go on without it, or ',
      )
    return entries

  def starts_run(self, round_num: int) -> bool:
    """Returns whether a continued run has this checkpoint from its parent."""
    return self._read_manifest(self._round_folder(round_num))['starts_run']

  def save(
    self,
    round_num: int,
    server_state: Structure,
    store: client_state_store.ClientStateStore,
    progress: selection_lib.Progress = selection_lib.Progress(),
    *,
    entries: records.Entries | None = None,
    starts_run: bool = False,
  ) -> None:
    """Writes the checkpoint of a finished round and removes old ones.

    That of the best round is kept at any age.

    Args:
      round_num: The round, >= 1.
      server_state: The server state after the round, NumPy.
      store: The committed client states after the round.
      progress: The best round so far.
      entries: Of the records until the round, durable ones.
      starts_run: Whether it has the states that a continued run starts from.

    Raises:
      InfrastructureError: If the disk refuses; earlier ones are untouched.
    """
    temporary = self._folder / f'{TEMPORARY}_{round_num:06d}'
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
        'identity': self.run_identity,
        'seed': store.seed,
        'client_state': store.row_type(),
        'progress': progress._asdict() if progress.best_round >= 0 else {},
        'starts_run': starts_run,
        'files': self._hash_files(round_num, temporary, index, store),
      }
      spelled = json.dumps(sealed_json.seal(manifest), indent=2)
      (temporary / _MANIFEST).write_text(spelled)
      records.write(temporary, entries or {})
      durable.publish(temporary, target)
      store.mark_saved(index)
      self._remove_old(self._kept_rounds(progress.best_round))
    except BaseException as error:
      if not target.exists():
        shutil.rmtree(temporary, ignore_errors=True)
        with contextlib.suppress(OSError):
          store.segment_path(round_num).unlink()
      if not isinstance(error, OSError):
        raise
      failed = 'cannot write the checkpoint'
      if target.exists():
        failed = 'a power loss may undo the checkpoint'
      raise errors.InfrastructureError(
        f'{failed} of round {round_num} in {self._folder}: '
        f'{error.strerror or error}. {self._last_good()} Free some space and '
        'run the same command again to resume from there'
      ) from error
    if self.on_saved is not None:
      self.on_saved()

  def restore(
    self,
    round_num: int,
    server_state: Structure,
    store: client_state_store.ClientStateStore,
    *,
    maps_all: bool = False,
  ) -> Structure:
    """Reads a checkpoint.

    Args:
      round_num: One of `rounds()`.
      server_state: Any state of the right structure, such as the initial one.
      store: Receives the client states and their seed.
      maps_all: As of `ClientStateStore.restore`.

    Returns:
      The server state, NumPy.

    Raises:
      CheckpointError: If it is damaged, of another run's identity, or if its
        server state has another structure.
    """
    self.check_identity(round_num)
    saved = self.read(round_num)
    with self._refusing_gaps(round_num):
      store.restore(saved.index, maps_all=maps_all)
    store.seed = saved.manifest['seed']
    return fill(
      self._round_folder(round_num),
      server_state,
      saved.server_leaves,
      'Another version of the program wrote it: take that version, or train '
      'anew in another --workdir',
    )

  def read(self, round_num: int) -> Saved:
    """Reads a checkpoint of any identity.

    Args:
      round_num: One of `rounds()`.

    Raises:
      CheckpointError: If it is damaged.
    """
    folder = self._round_folder(round_num)
    manifest = self._read_manifest(folder)
    self._check_files(round_num, manifest['files'])
    with self._refusing_gaps(round_num):
      with np.load(folder / _CLIENT_INDEX) as arrays:
        index = client_state_store.StoreIndex(arrays['0000'], arrays['0001'])
      with np.load(folder / _SERVER_STATE) as arrays:
        leaves = [arrays[key] for key in sorted(arrays.files)]
      client_ids = json.loads((self._folder / _CLIENTS).read_text())
      return Saved(manifest, tuple(client_ids), index, leaves)

  def remove_unfinished(self) -> None:
    """Removes what a killed process left: incomplete and old checkpoints.

    Raises:
      CheckpointError: If a checkpoint is damaged.
    """
    if self._read_only:
      return
    for path in self._folder.glob(f'{TEMPORARY}_*'):
      shutil.rmtree(path)
    saved = self.rounds()
    if saved:
      best_round = self.progress(saved[-1]).best_round
      self._remove_old(self._kept_rounds(best_round))

  def _write_client_ids(self) -> None:
    # Before the first checkpoint the file is that of a save that failed, maybe
    # of another dataset.
    if not self.rounds():
      with durable.replacing(self._folder / _CLIENTS) as file:
        json.dump(self._client_ids, file)

  def _round_folder(self, round_num: int) -> pathlib.Path:
    return self._folder / f'round_{round_num:06d}'

  def _read_manifest(self, folder: pathlib.Path) -> dict[str, Any]:
    try:
      manifest = sealed_json.read(folder / _MANIFEST, '')
      version = manifest['schema_version']
      _ = manifest['identity'], manifest['files']
    except errors.DataError as error:
      self._refuse(folder, str(error).removesuffix('. '))
    except KeyError as error:
      self._refuse(folder, f'{folder / _MANIFEST} has no entry {error}')
    if version != _SCHEMA_VERSION:
      raise errors.CheckpointError(
        f'{folder} has checkpoint schema version {version}, this program reads '
        f'{_SCHEMA_VERSION}. Use another --workdir'
      )
    return manifest

  def _read_records(self, round_num: int) -> records.Entries | None:
    folder = self._round_folder(round_num)
    try:
      found = records.read(folder, '')
    except errors.DataError as error:
      self._refuse(
        folder,
        str(error).removesuffix('. '),
        f'remove {folder / records.FILE} to go on without it, or ',
      )
    return None if found is None else found['files']

  def _check_files(self, round_num: int, files: Mapping[str, str]) -> None:
    found = records.first_problem(self._folder, files)
    if found:
      folder = self._round_folder(round_num)
      self._refuse(folder, f'{found} (by {folder / _MANIFEST})')

  @contextlib.contextmanager
  def _refusing_gaps(self, round_num: int) -> Generator[None]:
    """Raises CheckpointError for a file that was removed since its check."""
    try:
      yield
    except FileNotFoundError as error:
      folder = self._round_folder(round_num)
      self._refuse(folder, f'{error.filename} is missing')

  def _refuse(
    self, folder: pathlib.Path, found: str, choice: str = ''
  ) -> NoReturn:
    """Raises CheckpointError with what to do about a damaged checkpoint.

    Args:
      folder: Folder of the checkpoint.
      found: The file and what is wrong with it.
      choice: Another thing to do, with a comma and an `or`.
    """
    if not os.path.lexists(folder):
      raise errors.CheckpointError(
        f'{folder} was removed while it was read, by a training that goes on '
        'and keeps its latest checkpoints: run the same command again'
      )
    raise errors.CheckpointError(
      f'{found}. Put a copy of it back, or {choice}{self._way_out(folder)}'
    )

  def _way_out(self, folder: pathlib.Path) -> str:
    """Returns which checkpoints to remove, and what training then does."""
    whole = [
      round_num
      for round_num in self.rounds()
      if self._round_folder(round_num) != folder and self._is_whole(round_num)
    ]
    lost = {*self.rounds()} - {*whole}
    # Going on from a later one would not make a lost best round anew.
    whole = [one for one in whole if self.progress(one).best_round not in lost]
    parent = records.locate(self._folder, _PARENT)
    if not whole and self._lacks_parent(folder):
      return (
        f'remove {self._folder} and {parent} and run binaries.train again with '
        '--continue_from, which names the run that this one continues'
      )
    if not whole:
      return (
        f'remove {self._folder} and run binaries.train again: it has no whole '
        'checkpoint to go on from, so that it trains from the beginning'
      )
    damaged = [
      str(self._round_folder(round_num))
      for round_num in self.rounds()
      if round_num not in whole
    ]
    return (
      f'remove {" and ".join(damaged)} and run binaries.train again: it goes '
      f'on from the checkpoint of round {whole[-1]}, which is whole'
    )

  def _lacks_parent(self, folder: pathlib.Path) -> bool:
    """Returns whether a checkpoint is of a run whose parent is not known."""
    try:
      files = sealed_json.read(folder / _MANIFEST, '')['files']
    except (errors.DataError, KeyError):
      return False
    known = {_PARENT: files[_PARENT]} if _PARENT in files else {}
    return records.first_problem(self._folder, known) is not None

  def _is_whole(self, round_num: int) -> bool:
    """Returns whether a checkpoint of the run and its records are undamaged."""
    folder = self._round_folder(round_num)
    try:
      manifest = sealed_json.read(folder / _MANIFEST, '')
      known = records.read(folder, '') or {'files': {}}
      is_ours = self.run_identity in ({}, manifest['identity'])
      return is_ours and not (
        records.first_problem(self._folder, manifest['files'])
        or records.first_problem(self._folder.parent, known['files'])
      )
    except (errors.DataError, KeyError):
      return False

  def check_identity(self, round_num: int) -> None:
    """Raises CheckpointError if a checkpoint is of another run's identity."""
    folder, identity = self._round_folder(round_num), self.identity(round_num)
    if identity == self.run_identity:
      return
    differences = config_lib.differences(self.run_identity, identity, 'now')
    found = f'{folder} belongs to another experiment ({"; ".join(differences)})'
    if any(map(self._is_whole, self.rounds())):
      self._refuse(folder, found)
    raise errors.CheckpointError(
      f'{found}. Give this one a --workdir of its own, with --continue_from to '
      'go on with other data, or take the old config. If the checkpoints were '
      f'copied here, put those of the run back, or remove {self._folder} and '
      'run binaries.train again, which then trains from the beginning'
    )

  def _hash_files(
    self,
    round_num: int,
    temporary: pathlib.Path,
    index: client_state_store.StoreIndex,
    store: client_state_store.ClientStateStore,
  ) -> dict[str, str]:
    """Returns path within the folder -> SHA-256, of all needed files."""
    target = self._round_folder(round_num).name
    hashes = {
      f'{target}/{name}': records.file_sha256(temporary / name)
      for name in (_SERVER_STATE, _CLIENT_INDEX)
    }
    rounds = map(int, np.unique(index.segment[index.segment > 0]))
    segments = [store.segment_path(one).name for one in rounds]
    departed = self._folder / DEPARTED
    has_parent = (self._folder.parent / PARENT_FILE).exists()
    constant = [
      _CLIENTS,
      *([_PARENT] if has_parent else []),
      *(f'{_STATES_FOLDER}/{name}' for name in segments),
      *(f'{DEPARTED}/{path.name}' for path in departed.glob('*')),
    ]
    known = self._known_hashes()
    for name in constant:
      path = records.locate(self._folder, name)
      hashes[name] = known.get(name) or records.file_sha256(path)
    return hashes

  def _known_hashes(self) -> dict[str, str]:
    rounds = self.rounds()
    if not rounds:
      return {}
    return self._read_manifest(self._round_folder(rounds[-1]))['files']

  def _kept_rounds(self, best_round: int) -> set[int]:
    return {*self.rounds()[-self._num_kept :], best_round}

  def _remove_old(self, kept_rounds: Collection[int]) -> None:
    needed = set()
    for round_num in self.rounds():
      folder = self._round_folder(round_num)
      if round_num not in kept_rounds:
        # Renamed first, so that a partly removed folder is not a checkpoint.
        removed = self._folder / f'{TEMPORARY}_{round_num:06d}'
        os.rename(folder, removed)
        durable.sync(self._folder)
        shutil.rmtree(removed)
      else:
        needed.update(self._read_manifest(folder)['files'])
    for path in self.states_folder.glob('*.npy'):
      if f'{_STATES_FOLDER}/{path.name}' not in needed:
        durable.check_file_place(path)
        path.unlink()

  def _last_good(self) -> str:
    rounds = self.rounds()
    if not rounds:
      return 'There is no earlier checkpoint.'
    return f'The checkpoint of round {rounds[-1]} is whole.'


def reader(workdir: str | os.PathLike[str]) -> CheckpointManager:
  """Returns a read-only manager of a run's checkpoints."""
  return CheckpointManager(pathlib.Path(workdir, FOLDER), {}, read_only=True)


def save_arrays(path: pathlib.Path, arrays: Collection[np.ndarray]) -> None:
  """Works as `np.savez`, but leaves no file open if the disk is full.

  The arrays are named `0000`, `0001` and so on.
  """
  with open(path, 'wb') as file:
    with zipfile.ZipFile(file, 'w') as archive:
      for i, array in enumerate(arrays):
        with archive.open(f'{i:04d}.npy', 'w', force_zip64=True) as entry:
          np.lib.format.write_array(entry, np.asarray(array))
