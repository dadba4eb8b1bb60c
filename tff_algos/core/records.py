"""Checksums of a run's records: what its files must hash to when read again.

`records.json` in a folder lists files of a workdir with their sizes and
SHA-256. That of a checkpoint has the rows of `metrics.csv`, the memberships and
the audit log until its round; that of `evaluation/` has these and its tables.

Logs grow after they were recorded, so an entry covers the first part of a log.
A table grows by rows and, at its right, by columns: an entry covers its first
rows and columns, in which a killed process's rest of a row has no part.
"""

import contextlib
import csv
import hashlib
import io
import os
import pathlib
from collections.abc import Generator, Iterable, Mapping
from typing import Any, NamedTuple

from tff_algos.core import durable, errors, folder_lock, sealed_json

FILE = 'records.json'
_PATIENCE_SECONDS = 60.0

# `size_bytes` and `sha256`; of a growing log also `grows`, of a growing table
# `num_rows` (without the header) and `num_columns`.
Entry = Mapping[str, Any]
# Path in the workdir -> entry.
Entries = Mapping[str, Entry]


def describe(content: bytes, **growth: Any) -> Entry:
  """Returns the entry of a file's content, or of its first part.

  Args:
    content: The bytes that the entry covers.
    **growth: `grows=True` of a log, `num_rows` and `num_columns` of a table.
  """
  return Growth(content).entry(**growth)


def describe_file(path: pathlib.Path) -> Entry:
  """Returns the entry of a file that does not grow."""
  with open(path, 'rb') as file:
    digest = hashlib.file_digest(file, 'sha256')
    return {'size_bytes': file.tell(), 'sha256': digest.hexdigest()}


def file_sha256(path: pathlib.Path) -> str:
  """Returns the SHA-256 of a file, in hexadecimal digits."""
  return describe_file(path)['sha256']


class Growth:
  """Entry of a file that is written from its start to its end."""

  def __init__(self, content: bytes = b''):
    """Takes the content of the file so far."""
    self._digest = hashlib.sha256(content)
    self._size = len(content)

  def append(self, content: bytes) -> None:
    """Adds what was appended to the file."""
    self._digest.update(content)
    self._size += len(content)

  def entry(self, **growth: Any) -> Entry:
    """Returns the entry of all bytes so far, see `describe`."""
    return {
      'size_bytes': self._size,
      'sha256': self._digest.hexdigest(),
      **growth,
    }


def table_part(
  content: bytes, num_rows: int, num_columns: int | None = None
) -> bytes:
  """Returns the first rows and columns of a CSV table, with its header.

  Bytes that are no part of a table as Python's `csv` writes it do not come
  back, so that the checksum of the part differs.
  """
  text = content.decode('utf-8', 'replace')
  part = io.StringIO(newline='')
  writer = csv.writer(part)
  with contextlib.suppress(csv.Error):
    lines = csv.reader(io.StringIO(text, newline=''))
    for number, line in zip(range(num_rows + 1), lines, strict=False):
      # Columns that were added later are empty in earlier rows.
      is_changed = num_columns and number and any(line[num_columns:])
      writer.writerow(line if is_changed else line[:num_columns])
  return part.getvalue().encode()


def read_part(path: pathlib.Path, entry: Entry) -> bytes:
  """Returns the part of a growing file that an entry covers.

  Raises:
    OSError: If the file cannot be read.
  """
  content = path.read_bytes()
  if 'num_rows' in entry:
    return table_part(content, entry['num_rows'], entry['num_columns'])
  return content[: entry['size_bytes']]


class Problem(NamedTuple):
  """A damaged file; its text is `<path> is missing` and the like.

  Attributes:
    path: The file, or the file that stands where a folder of it belongs.
    fault: What is wrong with it.
  """

  path: pathlib.Path
  fault: str

  def __str__(self) -> str:
    return f'{self.path} {self.fault}'


def locate(folder: pathlib.Path, name: str) -> pathlib.Path:
  """Returns the path of a file, without `..`, by which names may begin."""
  return pathlib.Path(os.path.normpath(folder / name))


def first_problem(
  workdir: pathlib.Path, entries: Mapping[str, Entry | str]
) -> Problem | None:
  """Returns the first damaged file; None if there is none.

  Args:
    workdir: The folder that the paths begin at.
    entries: Path -> entry, or SHA-256 alone.
  """
  for name, entry in entries.items():
    path = locate(workdir, name)
    entry = {'sha256': entry} if isinstance(entry, str) else entry
    found = _problem(path, entry)
    if found:
      return found
  return None


def _problem(path: pathlib.Path, entry: Entry) -> Problem | None:
  try:
    is_grown = 'grows' in entry or 'num_rows' in entry
    found = (
      describe(read_part(path, entry)) if is_grown else describe_file(path)
    )
  except FileNotFoundError:
    return Problem(path, 'is missing')
  except IsADirectoryError:
    return Problem(path, 'is a folder, not a file')
  except OSError as error:
    if errors.is_of_disk(error):
      raise
    for folder in path.parents:
      if os.path.lexists(folder) and not folder.is_dir():
        return Problem(folder, 'is a file, not a folder')
    return Problem(path, f'cannot be read: {error.strerror}')
  if found['sha256'] == entry['sha256']:
    return None
  if not found['size_bytes']:
    return Problem(path, 'is damaged: it is empty')
  size = entry.get('size_bytes', found['size_bytes'])
  lost = size - found['size_bytes']
  if lost > 0:
    return Problem(path, f'is damaged: {lost} of {size} bytes are missing')
  return Problem(
    path, 'is damaged, or of another run: its SHA-256 is not the recorded one'
  )


def write(folder: pathlib.Path, entries: Entries, **facts: Any) -> None:
  """Writes `records.json`: the entries, and other JSON-ready facts."""
  sealed_json.write(folder / FILE, {**facts, 'files': dict(entries)})


def read(folder: pathlib.Path, remedy: str) -> dict[str, Any] | None:
  """Returns the content of `records.json`; None if there is none.

  Args:
    folder: Its folder.
    remedy: What to do if it is damaged, a sentence.

  Raises:
    DataError: If it is damaged.
    OSError: If the disk fails.
  """
  if not folder.joinpath(FILE).exists():
    return None
  return sealed_json.read(folder / FILE, remedy)


@contextlib.contextmanager
def rewriting(
  workdir: pathlib.Path,
  folder: str,
  names: Iterable[str],
  others: Entries | None = None,
  **facts: Any,
) -> Generator[None]:
  """Records files of a folder that the block writes, one block at a time.

  They are forgotten first, so that a process that is killed in the block leaves
  no entry that its files do not match.

  Args:
    workdir: The workdir.
    folder: Name of the folder in it, which has a `records.json`.
    names: Files of the folder.
    others: Entries of other files of the workdir, which replace those that the
      folder has.
    **facts: Other entries of `records.json`, which replace those that it has.
      If they contradict them, the folder's files are of something else, and are
      removed.

  Raises:
    WorkdirBusyError: If another process writes there for a minute.
  """
  place, paths = workdir / folder, [f'{folder}/{name}' for name in names]
  durable.make_folder(place)
  busy = f'another program writes in {place}'
  with folder_lock.exclusive(place, busy, _PATIENCE_SECONDS):
    known = read(place, f'Remove {place / FILE}, and run this again.') or {}
    if any(known.get(name, fact) != fact for name, fact in facts.items()):
      for path in place.iterdir():
        if path.is_file() and path.name not in (FILE, folder_lock.FILE):
          path.unlink()
      known = {}
    files = {
      path: entry
      for path, entry in known.pop('files', {}).items()
      if path not in paths and (others is None or path.startswith(folder))
    }
    write(place, files, **known)
    yield
    files |= {path: describe_file(workdir / path) for path in paths}
    write(place, {**files, **(others or {})}, **{**known, **facts})
