"""Audit log of committees: inputs, decisions and results of each round.

`audit/log.jsonl` in the workdir has one line of JSON a round; each names the
SHA-256 of the line before, so no line can be changed, left out or put in
without all later ones. `audit/round_000012.npz` holds the round's uploads and
models, if they are kept. A round's arrays are written before its line, and its
line before its row of `metrics.csv`; on resume all three are cut off together,
so every round is there once.
"""

import hashlib
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from tff_algos.core import durable, errors

NONE = 'none'
DIGESTS = 'digests'
UPLOADS = 'uploads'
# What a log holds: nothing; digests of all that was sent; and all that itself.
LEVELS = (NONE, DIGESTS, UPLOADS)

Entry = Mapping[str, Any]


class AuditLog:
  """Takes rounds as they complete."""

  def __init__(self, workdir: str | os.PathLike[str]):
    """Opens nothing.

    Args:
      workdir: Where `audit/` goes.
    """
    self._folder = pathlib.Path(workdir, 'audit')
    self._path = self._folder / 'log.jsonl'
    self._previous = ''

  def resume(self, round_num: int) -> None:
    """Cuts off what follows a round; after round 0, everything.

    Raises:
      CheckpointError: If the disk refuses.
    """
    kept = []
    if round_num and self._path.exists():
      kept = [
        line
        for line in _whole_lines(self._path)
        if json.loads(line)['round'] <= round_num
      ]
    for path in self._folder.glob('round_*'):
      is_whole = path.suffix == '.npz'
      if not (is_whole and round_num and _round_of(path) <= round_num):
        path.unlink()
    self._previous = _sha256(kept[-1]) if kept else ''
    if self._folder.exists():
      self._write(self._path, lambda file: file.writelines(kept))

  def append(self, entry: Entry, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes one round; it outlasts a power loss from here on.

    Args:
      entry: JSON-ready, with `round`.
      arrays: What is kept of the round; nothing if there are none.

    Raises:
      CheckpointError: If the disk refuses.
    """
    spelled = json.dumps({**entry, 'previous': self._previous}, sort_keys=True)
    line = spelled.encode() + b'\n'
    try:
      durable.make_folder(self._folder)
      if arrays:
        path = self._folder / _arrays_name(entry['round'])
        self._write(path, lambda file: np.savez(file, **arrays))
      with open(self._path, 'ab') as file:
        file.write(line)
      durable.sync(self._path)
      durable.sync(self._folder)
    except OSError as error:
      raise _refused(self._folder, error) from error
    self._previous = _sha256(line)

  def _write(self, path: pathlib.Path, write) -> None:
    """Writes a file whole or not at all."""
    try:
      with durable.replacing(path, 'wb') as file:
        write(file)
    except OSError as error:
      raise _refused(path, error) from error


def read(workdir: str | os.PathLike[str]) -> list[tuple[Entry, str]]:
  """Returns each round's entry and the SHA-256 of its line, as they lie there.

  Raises:
    DataError: If there is no log, or a line is no entry.
  """
  path = pathlib.Path(workdir, 'audit', 'log.jsonl')
  if not path.is_file():
    raise errors.DataError(
      f'{path} is missing. Train with --config.algorithm.audit=digests (or '
      'uploads) to have one'
    )
  found = []
  for number, line in enumerate(_whole_lines(path), start=1):
    try:
      entry = json.loads(line)
      entry['round'], entry['previous']  # noqa: B018  # pyright: ignore[reportUnusedExpression]
    except (ValueError, KeyError, TypeError) as error:
      raise errors.DataError(
        f'{path}, line {number}, is no entry of a log ({error!r}); take the '
        'log from where it was copied, or train again'
      ) from None
    found.append((entry, _sha256(line)))
  return found


def read_arrays(
  workdir: str | os.PathLike[str], round_num: int
) -> dict[str, np.ndarray] | None:
  """Returns what was kept of a round; None if nothing was.

  Raises:
    ValueError: If the file is damaged.
  """
  path = pathlib.Path(workdir, 'audit', _arrays_name(round_num))
  if not path.is_file():
    return None
  try:
    with np.load(path) as arrays:
      return {name: arrays[name] for name in arrays.files}
  except Exception as error:
    # Damage shows as any of a dozen errors of zip files and of their contents.
    raise ValueError(f'{path} cannot be read: {error}') from error


def _whole_lines(path: pathlib.Path) -> list[bytes]:
  """Returns the lines; a process that was killed may have left half of one."""
  lines = path.read_bytes().splitlines(keepends=True)
  return [line for line in lines if line.endswith(b'\n')]


def _sha256(line: bytes) -> str:
  return hashlib.sha256(line).hexdigest()


def _arrays_name(round_num: int) -> str:
  return f'round_{round_num:06d}.npz'


def _round_of(path: pathlib.Path) -> int:
  return int(path.stem.removeprefix('round_'))


def _refused(path: pathlib.Path, error: OSError) -> errors.CheckpointError:
  return errors.CheckpointError(
    f'cannot write {path}: {error.strerror or error}. Free some space and run '
    'the same command again to resume'
  )
