"""Byte ranges of the records of an ArrayRecord file, from its footer.

An ArrayRecord file is a sequence of Riegeli chunks; with `group_size:1` each
has one record. The footer, a chunk too, has the position of each chunk, and the
last 64 KiB of the file have the position of the footer. ArrayRecord's own
reader reads whole files and tells no positions.

Formats: `doc/riegeli_records_file_format.md` of google/riegeli,
`cpp/layout.proto` of google/array_record.
"""

import struct
from collections.abc import Callable

import numpy as np
import pyarrow

from tff_algos.core import errors
from tff_algos.core.structures import Array

BLOCK_BYTES = 1 << 16

# Each block begins with a header, which interrupts the chunk that is there.
_BLOCK_HEADER_BYTES = 24
# Hash of the header, size of the data, hash of the data; the low byte is the
# type, the rest the number of records; size of the decoded data.
_CHUNK_HEADER = struct.Struct('<5Q')
_SIMPLE_CHUNK = ord('r')
_CODECS = {ord('z'): 'zstd', ord('b'): 'brotli'}
_MAGIC = 0x71930E704FDAE05E


def find(read: Callable[[int, int], bytes], size: int) -> Array:
  """Returns the bounds of the records of a file, in bytes.

  Args:
    read: (start, stop) -> these bytes of the file; called once for the end of
      a small file, and twice where the footer begins before it.
    size: Size of the file.

  Returns:
    int64 `[num_records + 1]`: record i is in the bytes `bounds[i]` to
    `bounds[i + 1]`. The last bound is the start of the footer, from which on
    the file's reader needs all bytes.

  Raises:
    DataError: If it is no ArrayRecord file of one record a chunk.
  """
  try:
    start = max(0, size - 2 * BLOCK_BYTES)
    end = read(start, size)
    (postscript, *_) = _records(end[-BLOCK_BYTES:], size - BLOCK_BYTES)
    fields = _fields(postscript)
    footer = fields[1]
    if fields[2] != _MAGIC or not 0 <= footer < size - BLOCK_BYTES:
      raise ValueError('its last block is not that of an ArrayRecord file')
    content = end[footer - start :] if footer >= start else read(footer, size)
    _, *chunks = map(_fields, _records(content, footer))
    bounds = [chunk[1] for chunk in chunks]
    if any(chunk[3] != 1 for chunk in chunks):
      raise ValueError('a chunk has several records')
    return np.array([*bounds, footer], np.int64)
  except (ValueError, KeyError, IndexError, struct.error) as error:
    raise errors.DataError(f'its footer cannot be read: {error!r}') from None


def _records(content: bytes, position: int) -> list[bytes]:
  """Returns the records of the chunk at the start of a part of a file."""
  pieces, start = [], 0
  while start < len(content):
    in_block = (position + start) % BLOCK_BYTES
    stop = start + BLOCK_BYTES - in_block
    header = max(0, _BLOCK_HEADER_BYTES - in_block)
    pieces.append(content[start + header : stop])
    start = stop
  chunk = b''.join(pieces)
  _, data_size, _, kind, _ = _CHUNK_HEADER.unpack_from(chunk)
  data = chunk[_CHUNK_HEADER.size :][:data_size]
  if kind & 255 != _SIMPLE_CHUNK or len(data) != data_size:
    raise ValueError('a chunk is of another kind, or torn')
  sizes_size, start = _varint(data, 1)
  values = _decompress(data[0], data[start + sizes_size :])
  sizes = _decompress(data[0], data[start:][:sizes_size])
  records, start, place = [], 0, 0
  for _ in range(kind >> 8):
    size, place = _varint(sizes, place)
    records.append(values[start : start + size])
    start += size
  return records


def _decompress(kind: int, content: bytes) -> bytes:
  if not kind:
    return content
  size, start = _varint(content, 0)
  codec = pyarrow.Codec(_CODECS[kind])
  try:
    return codec.decompress(content[start:], size, asbytes=True)
  except OSError as error:
    raise ValueError(f'it cannot be decompressed: {error}') from None


def _fields(message: bytes) -> dict[int, int]:
  """Returns number -> value of a protocol buffer of integers alone.

  Other messages are not understood: the footer's first record is one.
  """
  fields, place = {}, 0
  while place < len(message):
    tag, place = _varint(message, place)
    value, place = _varint(message, place)
    if tag & 7:
      return {}
    fields[tag >> 3] = value
  return fields


def _varint(content: bytes, place: int) -> tuple[int, int]:
  """Returns an integer of seven bits a byte, and the place after it."""
  value = shift = 0
  while True:
    byte = content[place]
    value |= (byte & 127) << shift
    place, shift = place + 1, shift + 7
    if byte < 128:
      return value, place
