"""Audit log of committees: inputs, decisions and results of each round.

`audit/log.jsonl` in the workdir has one line of JSON per round with the SHA-256
of the line before (a hash chain), so no line can be changed, removed or
inserted without changing all later lines. `audit/round_000012.npz` holds the
round's uploads and models, if they are kept. A round's arrays are written
before its line, and its line before its row of `metrics.csv`; on resume all
three are truncated together, so every round is recorded once.
"""

import hashlib
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from tff_algos.core import durable, errors, records, round_files

NONE = 'none'
DIGESTS = 'digests'
UPLOADS = 'uploads'
# Content of a log: nothing, digests of all uploads and models, or these
# themselves.
LEVELS = (NONE, DIGESTS, UPLOADS)
_NAME = 'audit/log.jsonl'

Entry = Mapping[str, Any]


class AuditLog:
  """Writer of an audit log, one round at a time."""

  def __init__(self, workdir: str | os.PathLike[str]):
    """Sets the paths, without opening files.

    Args:
      workdir: Folder that contains `audit/`.
    """
    self._path = path_of(workdir)
    self._arrays = _arrays_of(workdir)
    self._previous = ''
    self._lines = records.Growth()

  def entries(self) -> records.Entries:
    """Returns the entries of the log's files; empty before the first round."""
    if not self._previous:
      return {}
    return {**self._arrays.entries, _NAME: self._lines.entry(grows=True)}

  def resume(self, round_num: int, entries: records.Entries) -> None:
    """Removes all rounds after `round_num`; with 0, all rounds.

    Args:
      round_num: The round.
      entries: Checked entries of the records until it; without that of the log,
        its lines are taken as they are.

    Raises:
      DataError: If a log without a checked entry has a damaged line.
      InfrastructureError: If the files cannot be written.
    """
    kept = []
    entry = entries.get(_NAME)
    if entry:
      kept = records.read_part(self._path, entry).splitlines(keepends=True)
    elif round_num and self._path.exists():
      remedy = 'remove the log to go on without it'
      kept = [
        line
        for told, line in _parse(self._path, remedy)
        if told['round'] <= round_num
      ]
    self._arrays.resume(round_num, entries)
    self._previous = _sha256(kept[-1]) if kept else ''
    self._lines = records.Growth(b''.join(kept))
    if self._path.parent.exists():
      with durable.writing(self._path):
        with durable.replacing(self._path, 'wb') as file:
          file.writelines(kept)

  def append(self, entry: Entry, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes one round durably: once this returns, it survives a power loss.

    Args:
      entry: JSON-ready, with `round`.
      arrays: Arrays of the round to keep; no file is written if it is empty.

    Raises:
      InfrastructureError: If the files cannot be written.
    """
    spelled = json.dumps({**entry, 'previous': self._previous}, sort_keys=True)
    line = spelled.encode() + b'\n'
    folder = self._path.parent
    if arrays:
      self._arrays.write(entry['round'], lambda file: np.savez(file, **arrays))
    with durable.writing(folder):
      durable.make_folder(folder)
      with open(self._path, 'ab') as file:
        file.write(line)
      durable.sync(self._path)
      durable.sync(folder)
    self._previous = _sha256(line)
    self._lines.append(line)


def path_of(workdir: str | os.PathLike[str]) -> pathlib.Path:
  """Returns the file of a run's log."""
  return pathlib.Path(workdir, _NAME)


def read(workdir: str | os.PathLike[str]) -> list[tuple[Entry, str]]:
  """Returns each round's entry and the SHA-256 of its line, in file order.

  Raises:
    DataError: If there is no log, or a line is no entry.
  """
  path = path_of(workdir)
  if not path.is_file():
    raise errors.DataError(
      f'{path} is missing. Train with --config.algorithm.audit=digests (or '
      'uploads) to have one'
    )
  remedy = 'copy the log again from its workdir, or train again'
  return [(entry, _sha256(line)) for entry, line in _parse(path, remedy)]


def read_arrays(
  workdir: str | os.PathLike[str], round_num: int
) -> dict[str, np.ndarray] | None:
  """Returns the stored arrays of a round; None if none were stored.

  Raises:
    ValueError: If the file is damaged.
  """
  path = _arrays_of(workdir).path_of(round_num)
  if not path.is_file():
    return None
  try:
    with np.load(path) as arrays:
      return {name: arrays[name] for name in arrays.files}
  except Exception as error:
    # A damaged file raises any of a dozen classes of zip and NumPy errors.
    raise ValueError(f'{path} cannot be read: {error}') from error


def _parse(path: pathlib.Path, remedy: str) -> list[tuple[Entry, bytes]]:
  """Returns each round's entry and its line.

  Without the last line if it is not complete: a killed process may leave one.

  Args:
    path: The log.
    remedy: What to do if a line is no entry.

  Raises:
    DataError: If a line is no entry.
  """
  found = []
  lines = path.read_bytes().splitlines(keepends=True)
  for number, line in enumerate(lines, start=1):
    if not line.endswith(b'\n'):
      continue
    try:
      entry = json.loads(line)
      _ = entry['round'], entry['previous']
    except (ValueError, KeyError, TypeError) as error:
      raise errors.DataError(
        f'{path}, line {number}, is no entry of a log ({error!r}); {remedy}'
      ) from None
    found.append((entry, line))
  return found


def _sha256(line: bytes) -> str:
  return hashlib.sha256(line).hexdigest()


def _arrays_of(workdir: str | os.PathLike[str]) -> round_files.RoundFiles:
  return round_files.RoundFiles(workdir, 'audit', '.npz')
