"""Pieces: examples of a block grouped by output file, shuffled by reference.

Each block stores its examples in one file, sorted by output file, and only the
positions of runs in it are shuffled. So a worker holds one block and one shard
in memory, regardless of the size of the dataset.
"""

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from pipelines.publishing import staging as staging_lib
from tff_algos.core import errors
from tff_algos.core.structures import Array
from tff_algos.data import schema as schema_lib

# A block's file begins with the dtypes of its columns, padded to this.
_HEADER_BYTES = 1024
# (kind of file, its number)
Key = tuple[str, int]


class Piece(NamedTuple):
  """Examples of one block for one output file.

  Attributes:
    stored: The examples in their stored form.
    client: Client index of each example, int32 `[n]`.
    split: Position in `schema.SPLITS`, int8 `[n]`.
    position: Position of the raw example in the source, int64 `[n]`.
  """

  stored: schema_lib.StoredExamples
  client: Array
  split: Array
  position: Array


class Run(NamedTuple):
  """Position of a stored piece in the file of its block.

  Attributes:
    block: Number of the block.
    start: Position of the first one in the block's file.
    stop: Position after the last one.
  """

  block: int
  start: int
  stop: int


def save(
  staging: staging_lib.Staging,
  block: int,
  keyed: Iterable[tuple[Key, Piece]],
) -> list[tuple[Key, Run]]:
  """Writes all pieces of a block; returns one run for each key."""
  by_key: dict[Key, list[Piece]] = {}
  for key, piece in keyed:
    by_key.setdefault(key, []).append(piece)
  whole = join([piece for pieces in by_key.values() for piece in pieces])
  columns = dict(zip(_names(), _columns(whole), strict=True))
  rows = np.empty(
    len(whole.position),
    [
      (name, column.dtype, column.shape[1:]) for name, column in columns.items()
    ],
  )
  for name, column in columns.items():
    rows[name] = column
  with staging.handing_over(staging.part('pieces', block)) as path:
    with open(path, 'wb') as file:
      file.write(json.dumps(rows.dtype.descr).encode().ljust(_HEADER_BYTES))
      rows.tofile(file)
  runs, start = [], 0
  for key, pieces in by_key.items():
    stop = start + sum(len(piece.position) for piece in pieces)
    runs.append((key, Run(block, start, stop)))
    start = stop
  return runs


def load(staging: staging_lib.Staging, runs: Iterable[Run]) -> Piece:
  """Returns the examples of some runs, at least one."""
  runs = sorted(runs)
  # Without examples an empty run gives the dtypes.
  filled = [run for run in runs if run.stop > run.start] or runs[:1]
  # All blocks have the same columns.
  header = staging.read(
    staging.part('pieces', filled[0].block), 0, _HEADER_BYTES
  )
  dtype = np.dtype(
    [(name, kind, tuple(*shape)) for name, kind, *shape in json.loads(header)]
  )
  parts = []
  for run in filled:
    start, stop = (
      _HEADER_BYTES + row * dtype.itemsize for row in (run.start, run.stop)
    )
    content = staging.read(staging.part('pieces', run.block), start, stop)
    rows = np.frombuffer(content, dtype)
    parts.append(_piece(rows[name] for name in _names()))
  return join(parts)


def collect(runs: Iterable[Run], num_blocks: int) -> set[Run]:
  """Returns the distinct runs of one output file.

  Raises:
    InfrastructureError: If there is not one run of every block.
  """
  found = set(runs)
  blocks = {run.block for run in found}
  if len(found) != len(blocks) or blocks != set(range(num_blocks)):
    raise errors.InfrastructureError(
      f'the engine lost or mixed up what it shuffled: a file got {len(found)} '
      f'runs of {len(blocks)} blocks, of {num_blocks}. Run this again, and on '
      'another engine if it happens again.'
    )
  return found


def join(pieces: Sequence[Piece]) -> Piece:
  """Returns the concatenation of one or more pieces."""
  return _piece(
    np.concatenate(arrays)
    for arrays in zip(*(_columns(piece) for piece in pieces), strict=True)
  )


def select(piece: Piece, rows: Array) -> Piece:
  """Returns some examples of a piece, by mask or index."""
  return _piece(column[rows] for column in _columns(piece))


def _piece(columns: Iterable[Array]) -> Piece:
  *stored, client, split, position = columns
  return Piece(schema_lib.StoredExamples(*stored), client, split, position)


def _columns(piece: Piece) -> tuple[Array, ...]:
  return (*piece.stored, piece.client, piece.split, piece.position)


def _names() -> tuple[str, ...]:
  return (*schema_lib.StoredExamples._fields, *Piece._fields[1:])
