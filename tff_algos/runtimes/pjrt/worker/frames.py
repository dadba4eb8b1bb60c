"""Messages between a program and its accelerator worker: JSON and arrays.

A message is a JSON header, sent over a Unix socket, and a file in memory that
holds the arrays, of which only the descriptor crosses the socket. The receiver
maps it: no array is copied into the socket, and nothing has a name on a disk
that could be left behind.

The worker imports this module with NumPy alone.
"""

import errno
import json
import math
import mmap
import os
import socket
from collections.abc import Sequence
from typing import Any

import numpy as np

_ALIGNMENT = 64
_LENGTH_BYTES = 8


def send(
  connection: socket.socket,
  header: dict[str, Any],
  arrays: Sequence[np.ndarray] = (),
) -> None:
  """Sends a message.

  Args:
    connection: A connected Unix stream socket.
    header: Values of JSON.
    arrays: Arrays of native byte order.

  Raises:
    OSError: If the other side is gone, or memory ran out.
  """
  described, end = [], 0
  for one in arrays:
    described.append(
      {'dtype': one.dtype.name, 'shape': one.shape, 'start': end}
    )
    end += -(-one.nbytes // _ALIGNMENT) * _ALIGNMENT
  words = json.dumps({'header': header, 'arrays': described}).encode()
  descriptors = []
  try:
    if end:
      descriptors.append(os.memfd_create('arrays'))
      os.truncate(descriptors[0], end)
      with mmap.mmap(descriptors[0], end) as memory:
        for one, place in zip(arrays, described, strict=True):
          if one.nbytes:
            _view(memory, place)[...] = one
    socket.send_fds(
      connection, [len(words).to_bytes(_LENGTH_BYTES, 'little')], descriptors
    )
    connection.sendall(words)
  finally:
    for descriptor in descriptors:
      os.close(descriptor)


def receive(
  connection: socket.socket,
) -> tuple[dict[str, Any], list[np.ndarray]] | None:
  """Returns the next message; None if the other side has closed.

  Returns:
    The header, and the arrays, which keep their memory alive.

  Raises:
    OSError: If the other side is gone, or memory or descriptors ran out.
  """
  length, descriptors, flags, _ = socket.recv_fds(connection, _LENGTH_BYTES, 1)
  if flags & socket.MSG_CTRUNC:
    # The kernel drops a descriptor for which this process has no place.
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
  if not length:
    return None
  try:
    length += _read(connection, _LENGTH_BYTES - len(length))
    message = json.loads(
      _read(connection, int.from_bytes(length, 'little')).decode()
    )
    memory = mmap.mmap(descriptors[0], 0) if descriptors else None
  finally:
    for descriptor in descriptors:
      os.close(descriptor)
  return message['header'], [
    _view(memory, place) for place in message['arrays']
  ]


def _view(memory: mmap.mmap | None, place: dict[str, Any]) -> np.ndarray:
  dtype, shape = np.dtype(place['dtype']), tuple(place['shape'])
  if not math.prod(shape):
    return np.zeros(shape, dtype)
  return np.ndarray(shape, dtype, memory, place['start'])


def _read(connection: socket.socket, num_bytes: int) -> bytes:
  """Returns exactly so many bytes.

  Raises:
    ConnectionError: If the other side closes before.
  """
  words = bytearray()
  while len(words) < num_bytes:
    part = connection.recv(min(num_bytes - len(words), 1 << 20))
    if not part:
      raise ConnectionError('the other side closed within a message')
    words += part
  return bytes(words)
