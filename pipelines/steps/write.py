"""Beam steps that group examples by output file and write the shards.

A distributed runner may execute a step more than once and returns results in
any order. So writes are idempotent: every file is sorted by content, and handed
over as a whole by one step per group.
"""

import contextlib
import itertools
import json
import os
from collections.abc import Generator, Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from array_record.python import array_record_module

from pipelines.engines import failures
from pipelines.examples import hashing
from pipelines.publishing import staging as staging_lib
from pipelines.steps import pieces, planning
from tff_algos.core import errors
from tff_algos.core import records as records_lib
from tff_algos.data import layout
from tff_algos.data import schema as schema_lib

# One record per group: a client is read without decompressing its neighbours.
_WRITER_OPTIONS = 'group_size:1'

CLIENTS = 'clients'


class ShardWriter(NamedTuple):
  """Writer of the files of one shard.

  Attributes:
    staging: Staging folder.
    schema: The dataset's schema.
    num_clients: Number of clients in all shards.
    num_shards: Number of files of each split.
    seed: The dataset's seed; determines the order of a client's examples.
  """

  staging: staging_lib.Staging
  schema: schema_lib.Schema
  num_clients: int
  num_shards: int
  seed: int

  def write(self, kind: str, index: int, piece: pieces.Piece) -> None:
    """Writes a shard's files and the facts about them.

    Args:
      kind: `CLIENTS` or `layout.HELD_OUT`.
      index: Number of the shard, or of the source distribution.
      piece: All examples of the shard, in any order.
    """
    examples = _sort(piece, self.seed)
    facts: dict[str, Any] = {'files': {}, 'counts': {}, 'label_histogram': {}}
    if kind == layout.HELD_OUT:
      name = layout.shard_name(kind, index, self.schema.num_sources)
      self._write_file(name, kind, [examples.stored], facts)
    else:
      clients = planning.clients_of(index, self.num_clients, self.num_shards)
      cells = _cut(examples, clients)
      for split, records in zip(schema_lib.SPLITS, cells, strict=True):
        name = layout.shard_name(split, index, self.num_shards)
        self._write_file(name, split, records, facts)
    with self.staging.handing_over(
      self.staging.part(kind, index).with_suffix('.json')
    ) as path:
      path.write_text(json.dumps(facts))

  def _write_file(
    self,
    name: str,
    split: str,
    records: list[schema_lib.StoredExamples],
    facts: dict[str, Any],
  ) -> None:
    with self.staging.handing_over(self.staging.version / name) as path:
      with _disk_errors():
        writer = array_record_module.ArrayRecordWriter(
          str(path), _WRITER_OPTIONS
        )
        for stored in records:
          writer.write(schema_lib.encode_record(stored, self.schema))
        writer.close()
      facts['files'][name] = records_lib.describe_file(path)
    facts['counts'][split] = [len(stored.y) for stored in records]
    facts['label_histogram'][split] = [
      np.bincount(
        stored.y[schema_lib.has_label(stored.y)].ravel(),
        minlength=self.schema.num_classes,
      ).tolist()
      if self.schema.num_classes
      else []
      for stored in records
    ]


class WriteShard(beam.DoFn):
  """DoFn: ((kind, index), runs) -> name of the shard, after writing it."""

  def __init__(self, writer: ShardWriter, num_blocks: int) -> None:
    self._writer = writer
    self._num_blocks = num_blocks

  def process(
    self, keyed_runs: tuple[pieces.Key, Iterable[pieces.Run]]
  ) -> Iterator[str]:
    """Writes one shard."""
    (kind, index), runs = keyed_runs
    with failures.carried():
      found = pieces.collect(runs, self._num_blocks)
      piece = pieces.load(self._writer.staging, found)
      self._writer.write(kind, index, piece)
    yield f'{kind}-{index}'


@contextlib.contextmanager
def _disk_errors() -> Generator[None]:
  """Converts errors of ArrayRecord, which are texts, to OSError."""
  try:
    yield
  except RuntimeError as error:
    for number in errors.OF_DISKS:
      if os.strerror(number) in str(error):
        raise OSError(number, os.strerror(number)) from None
    raise


def _sort(piece: pieces.Piece, seed: int) -> pieces.Piece:
  """Returns the examples of a shard, sorted by content."""
  lot = hashing.draw(piece.stored.example_id, seed, 'write/order')
  order = np.lexsort(
    (piece.position, piece.stored.source, lot, piece.client, piece.split)
  )
  return pieces.select(piece, order)


def _cut(
  examples: pieces.Piece, clients: range
) -> list[list[schema_lib.StoredExamples]]:
  """Returns sorted examples by split and client, including empty ones."""
  cell = examples.split.astype(np.int64) * len(clients)
  cell += examples.client - clients.start
  num_cells = len(schema_lib.SPLITS) * len(clients)
  bounds = np.searchsorted(cell, np.arange(num_cells + 1))
  cells = [
    schema_lib.take(examples.stored, slice(start, stop))
    for start, stop in itertools.pairwise(bounds)
  ]
  return [
    cells[first : first + len(clients)]
    for first in range(0, num_cells, len(clients))
  ]
