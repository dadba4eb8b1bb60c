"""Parts of an object on local disk: a sparse file, filled by range reads."""

import os
import pathlib
import tempfile
import threading

from tff_algos.core import errors
from tff_algos.stores import objects as objects_lib

_BLOCK_BYTES = 1 << 16
# One request reads at most this: who needs what comes first does not wait for
# all that is read ahead.
_REQUEST_BYTES = 1 << 20


class CachedObject:
  """Object of which the parts that were asked for are on local disk.

  The file has no name in a folder: nothing of it is left when the process
  ends, however that ends.

  Attributes:
    path: Path of a file of the object's size, for readers in this process;
      what was not fetched is zeros.
    size: Number of bytes of the object.
    num_fetched_bytes: Bytes that are on local disk.
  """

  def __init__(
    self,
    objects: objects_lib.Objects,
    name: str,
    size: int,
    folder: pathlib.Path,
  ) -> None:
    """Fetches nothing yet.

    Args:
      objects: Objects of the address.
      name: Name of the object, which must not change.
      size: Number of its bytes.
      folder: An existing folder, on whose file system the parts are.
    """
    self._objects = objects
    self._name = name
    self._file = tempfile.TemporaryFile(dir=folder)
    self._file.truncate(size)
    self._is_here = bytearray(-(-size // _BLOCK_BYTES))
    self._lock = threading.Lock()
    self.path = f'/dev/fd/{self._file.fileno()}'
    self.size = size
    self.num_fetched_bytes = 0

  def fetch(self, start: int, stop: int) -> None:
    """Reads a part of the object, unless it is here.

    Raises:
      DataError: If the object is shorter than it should be.
      FileNotFoundError: If it is not there any more.
      InfrastructureError: If the store cannot be reached.
    """
    first, last = (
      start // _BLOCK_BYTES,
      -(-min(stop, self.size) // _BLOCK_BYTES),
    )
    while first < last:
      with self._lock:
        first = self._is_here.find(0, first, last)
        if first < 0:
          return
        end = self._is_here.find(1, first, last)
        end = last if end < 0 else end
        end = min(end, first + _REQUEST_BYTES // _BLOCK_BYTES)
        self._fetch_blocks(first, end)
      first = end

  def has(self, position: int) -> bool:
    """Returns whether a byte is here; one behind the end always is."""
    return position >= self.size or bool(
      self._is_here[position // _BLOCK_BYTES]
    )

  def read(self, start: int, stop: int) -> bytes:
    """Returns a part of the object; raises as `fetch`."""
    self.fetch(start, stop)
    return os.pread(self._file.fileno(), stop - start, start)

  def close(self) -> None:
    """Frees the disk space."""
    self._file.close()

  def _fetch_blocks(self, first: int, last: int) -> None:
    start = first * _BLOCK_BYTES
    stop = min(last * _BLOCK_BYTES, self.size)
    content = self._objects.read_range(self._name, start, stop)
    if len(content) != stop - start:
      raise errors.DataError(
        f'{self._objects.address}/{self._name} is damaged: it has less than '
        f'{self.size} bytes. Delete it, and publish the folder again'
      )
    self._file.seek(start)
    self._file.write(content)
    self._file.flush()
    self.num_fetched_bytes += len(content)
    self._is_here[first:last] = b'\1' * (last - first)
