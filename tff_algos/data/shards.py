"""Records of a dataset version's shards, in a folder or an object store."""

import collections
import concurrent.futures
import contextlib
import dataclasses
import pathlib
import resource
import threading
from collections.abc import Callable, Generator, Mapping
from typing import Any

from array_record.python import array_record_module

from tff_algos.core import errors
from tff_algos.core.structures import Array
from tff_algos.data import record_ranges
from tff_algos.stores import cached_object

# One record at a time by its number: no reading ahead, no thread pool.
_RANDOM_ACCESS = 'readahead_buffer_size:0,max_parallelism:0'
# What a reader of one record after another finds fetched.
_AHEAD_BYTES = 1 << 22
# A process may usually have 1,024 files open, of all kinds.
_MAX_OPEN = 256
_CLOSED = 'the dataset is closed; open it again to read from it'


class LocalShards:
  """Shards in the folder of a version.

  Of many, those that were not read for the longest time are closed. May be used
  by several threads.
  """

  def __init__(self, folder: pathlib.Path) -> None:
    """Opens none yet."""
    self._folder = folder
    self._readers: collections.OrderedDict[
      str, array_record_module.ArrayRecordReader
    ] = collections.OrderedDict()
    self._is_closed = False
    self._lock = threading.Lock()

  def read(self, shard: str, position: int) -> bytes:
    """Returns a record.

    Raises:
      DataError: If it is damaged, or there is none.
      ValueError: If the shards are closed.
    """
    with self._lock:
      if self._is_closed:
        raise ValueError(_CLOSED)
      if shard not in self._readers:
        if len(self._readers) >= _MAX_OPEN:
          # Not closed here: another thread may read from it, and it is closed
          # with its last reference.
          self._readers.popitem(last=False)
        self._readers[shard] = _open(self.place(shard))
      self._readers.move_to_end(shard)
      reader = self._readers[shard]
    return _read(reader, position)

  def place(self, shard: str) -> str:
    """Returns the path of a shard, for messages."""
    return str(self._folder / shard)

  def close(self) -> None:
    """Closes all open shards; later reads are refused."""
    with self._lock:
      self._is_closed = True
      while self._readers:
        _close(self._readers.popitem()[1])


@dataclasses.dataclass
class _OpenShard:
  """Shard of which parts are here.

  Attributes:
    file: The parts.
    bounds: Where its records are, see `record_ranges.find`.
    reader: ArrayRecord's reader of `file`.
    last: Position of the record that was read last.
    ahead: The request of what comes next.
  """

  file: cached_object.CachedObject
  bounds: Array
  reader: array_record_module.ArrayRecordReader
  last: int = -1
  ahead: concurrent.futures.Future[None] | None = None

  def close(self) -> None:
    """Waits for what is being read ahead, and frees the disk space."""
    if self.ahead is not None and not self.ahead.cancel():
      concurrent.futures.wait([self.ahead])
    _close(self.reader)
    self.file.close()


class PublishedShards:
  """Shards in an object store: a record is read as a range.

  What was read stays on local disk, up to a bound of bytes and of shards; the
  shard that was not read for the longest time is dropped first. Of a shard that
  is read record after record, the next ones are fetched meanwhile. May be used
  by several threads.
  """

  def __init__(
    self,
    open_object: Callable[[str], cached_object.CachedObject],
    places: Mapping[str, str],
    cache_bytes: int,
  ) -> None:
    """Fetches nothing yet.

    Args:
      open_object: Name of a shard -> its object.
      places: Name of a shard -> its address, for messages.
      cache_bytes: Bound of what is kept on local disk, in bytes; beyond it goes
        what one record and the reading ahead need.
    """
    self._open_object = open_object
    self._places = places
    self._cache_bytes = cache_bytes
    self._shards: collections.OrderedDict[str, _OpenShard] = (
      collections.OrderedDict()
    )
    self._is_closed = False
    self._lock = threading.Lock()
    self._pool = concurrent.futures.ThreadPoolExecutor(1)

  def read(self, shard: str, position: int) -> bytes:
    """Returns a record.

    Raises:
      DataError: If it is damaged, or there is none.
      InfrastructureError: If the object store cannot be reached.
      ValueError: If the shards are closed.
    """
    with self._lock:
      if self._is_closed:
        raise ValueError(_CLOSED)
      if shard not in self._shards:
        self._shards[shard] = self._open(shard)
      self._shards.move_to_end(shard)
      opened = self._shards[shard]
      if not 0 <= position < len(opened.bounds) - 1:
        raise errors.DataError(f'the shard has no record {position}')
      start, stop = map(int, opened.bounds[position : position + 2])
      with _removal():
        opened.file.fetch(start, stop)
      record = _read(opened.reader, position)
      if position == opened.last + 1:
        self._read_ahead(opened, stop)
      opened.last = position
      self._drop_oldest()
      return record

  def place(self, shard: str) -> str:
    """Returns the address of a shard, for messages."""
    return self._places[shard]

  def close(self) -> None:
    """Closes all shards, and frees the disk space; later reads are refused."""
    with self._lock:
      self._is_closed = True
      while self._shards:
        self._shards.popitem()[1].close()
      self._pool.shutdown()

  def num_cached_bytes(self) -> int:
    """Returns the number of bytes on local disk."""
    return sum(one.file.num_fetched_bytes for one in self._shards.values())

  def _open(self, shard: str) -> _OpenShard:
    with contextlib.ExitStack() as stack:
      file = self._open_object(shard)
      stack.callback(file.close)
      with _removal():
        bounds = record_ranges.find(file.read, file.size)
        file.fetch(int(bounds[-1]), file.size)
      opened = _OpenShard(file, bounds, _open(file.path))
      stack.pop_all()
    return opened

  def _read_ahead(self, shard: _OpenShard, position: int) -> None:
    """Requests the bytes from a position on, unless half of them are here."""
    is_asked = shard.ahead is not None and not shard.ahead.done()
    if not is_asked and not shard.file.has(position + _AHEAD_BYTES // 2):
      # If it fails, reading the record will fail, too, and say so.
      shard.ahead = self._pool.submit(
        shard.file.fetch, position, position + _AHEAD_BYTES
      )

  def _drop_oldest(self) -> None:
    # Two files each, and what was read goes with them.
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = limit // 4 if limit > 0 else _MAX_OPEN
    while len(self._shards) > most or (
      self._shards and self.num_cached_bytes() > self._cache_bytes
    ):
      self._shards.popitem(last=False)[1].close()


Shards = LocalShards | PublishedShards


@contextlib.contextmanager
def _damage() -> Generator[None]:
  """Turns what ArrayRecord's reader raises into DataError."""
  try:
    yield
  except (RuntimeError, IndexError) as error:
    raise errors.DataError(str(error).splitlines()[0]) from None


@_damage()
def _open(path: str) -> array_record_module.ArrayRecordReader:
  return array_record_module.ArrayRecordReader(path, _RANDOM_ACCESS)


@_damage()
def _read(
  reader: array_record_module.ArrayRecordReader, position: int
) -> bytes:
  # By its range: by a list of positions it takes longer in a longer shard.
  read: Any = reader.read  # Its type knows positions alone.
  return read(position, position + 1)[0]


def _close(reader: array_record_module.ArrayRecordReader) -> None:
  # A damaged shard fails here again; reading it has raised the error.
  with contextlib.suppress(RuntimeError):
    reader.close()


@contextlib.contextmanager
def _removal() -> Generator[None]:
  """Turns a missing object into InfrastructureError: the program may retry."""
  try:
    yield
  except FileNotFoundError as error:
    raise errors.InfrastructureError(
      f'{error}: the dataset was replaced, and this version removed. Open it '
      'again, which opens the current version'
    ) from None
