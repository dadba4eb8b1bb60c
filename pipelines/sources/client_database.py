"""Base of sources in TensorFlow Federated's SQLite format, by client.

Table `client_metadata` has the number of examples of a client in each split;
table `examples` holds each as a serialized `tf.train.Example`. TFF downloads
Federated EMNIST, Stack Overflow and Shakespeare in this form.
"""

import contextlib
import dataclasses
import pathlib
import sqlite3
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from google.protobuf import message

from pipelines.examples import hashing
from pipelines.sources import base, files
from tff_algos.core import checks, errors
from tff_algos.data import example_proto

TRAIN = 'train'
TEST = 'test'


@dataclasses.dataclass(frozen=True)
class Options:
  """Options of a client database: file, split and filters of clients.

  Attributes:
    folder: Folder of the unpacked database.
    file: File name, such as `'emnist_all.sqlite'`.
    use_test: Whether the clients' examples of the split `test` are the
      official test split; else they are not read.
    min_train: Least number of examples of a client in the split `train`.
    min_test: Least number in the split `test`.
    num_clients: Number of clients to sample from the rest; None for all.
    draw_seed: Seed of the sampling.
  """

  folder: str
  file: str
  use_test: bool = True
  min_train: int = 1
  min_test: int = 0
  num_clients: int | None = None
  draw_seed: int = 0

  def __post_init__(self) -> None:
    checks.check_int('min_train', self.min_train, minimum=0)
    checks.check_int('min_test', self.min_test, minimum=0)
    checks.check_int('draw_seed', self.draw_seed, minimum=0)
    if self.num_clients is not None:
      checks.check_int('num_clients', self.num_clients, minimum=1)


class ClientDatabase(base.FolderSource):
  """Source whose blocks are runs of records; subclasses parse a record.

  The group of an example is its client, unless the subclass names another.
  A record may hold several examples; the position of a dead letter counts them
  from the first record of its block.
  """

  def read(self, block: base.Block) -> Iterator[base.RawExample]:
    """Yields the examples of a block."""
    sizes = self._client_sizes(block.part)
    clients = list(sizes)
    # A subclass has less.
    recorded = ClientDatabase._client_sizes(self, block.part)
    with _open(self._path()) as database:
      for run in base.runs(list(sizes.values()), block):
        client = clients[run.index]
        is_last = run.stop == recorded[client]
        for record in _records(database, client, block.part, run, is_last):
          for example in self._parse(record):
            yield example._replace(
              is_test=block.part == TEST,
              client=client,
              group=example.group or client,
            )

  def has_test_split(self) -> bool:
    """Returns whether the split `test` is used."""
    return self._options.use_test

  def _sizes(self) -> Mapping[str, int]:
    return {
      part: sum(self._client_sizes(part).values()) for part in self._parts()
    }

  def _parse(self, record: Any) -> Iterator[base.RawExample]:
    """Yields the examples of one record."""
    try:
      features = example_proto.Example.FromString(record).features.feature
    except (message.DecodeError, TypeError):
      yield base.malformed('the record is no tf.train.Example')
      return
    yield from self._examples(features)

  def _examples(self, features: Mapping[str, Any]) -> Iterator[base.RawExample]:
    raise NotImplementedError

  def _client_sizes(self, split: str) -> dict[str, int]:
    """Returns client -> number of its records, of the selected clients."""
    path = self._path()
    chosen = _choose(path, self._options)
    return {client: sizes.get(split, 0) for client, sizes in chosen.items()}

  def _path(self) -> pathlib.Path:
    return files.find(self._options.folder, self._options.file)

  def _files(self) -> list[pathlib.Path]:
    return [self._path()]


@files.cached(1)
def _choose(path: pathlib.Path, options: Options) -> dict[str, dict[str, int]]:
  """Returns client -> split -> number of records, of the selected clients."""
  counts = _count(path)
  chosen = [
    client
    for client, sizes in counts.items()
    if sizes.get(TRAIN, 0) >= options.min_train
    and sizes.get(TEST, 0) >= options.min_test
  ]
  if options.num_clients is not None:
    chosen = _draw(chosen, options.num_clients, options.draw_seed, path)
  return {client: counts[client] for client in sorted(chosen)}


def _draw(
  clients: Sequence[str], count: int, seed: int, path: pathlib.Path
) -> list[str]:
  """Samples `count` clients by the hash of their ids."""
  if count > len(clients):
    raise errors.DataError(
      f'{path} has {len(clients)} clients with enough examples, num_clients is '
      f'{count}. Lower it, or min_train and min_test.'
    )
  lots = hashing.draw_lots(clients, seed, 'client_database/clients')
  order = np.argsort(lots, kind='stable')
  return [clients[int(i)] for i in order[:count]]


@contextlib.contextmanager
def _open(path: pathlib.Path) -> Generator[sqlite3.Connection]:
  """Opens a database read-only; converts errors of SQLite to DataError."""
  try:
    uri = f'{path.resolve().as_uri()}?mode=ro&immutable=1'
    with contextlib.closing(sqlite3.connect(uri, uri=True)) as database:
      yield database
  except (sqlite3.Error, UnicodeDecodeError) as error:
    raise errors.DataError(
      f'{path} is no sound SQLite database of examples by client: {error}. Is '
      'it unpacked and whole?'
    ) from None


def _count(path: pathlib.Path) -> dict[str, dict[str, int]]:
  """Returns client -> split -> number of its records."""
  counts: dict[str, dict[str, int]] = {}
  with _open(path) as database:
    rows = database.execute(
      'SELECT client_id, split_name, num_examples FROM client_metadata'
    )
    for client, split, size in rows:
      if not (isinstance(client, str) and isinstance(size, int) and size >= 0):
        raise errors.DataError(
          f'{path} says that client {client!r} has {size!r} examples'
        )
      if split in counts.setdefault(client, {}):
        raise errors.DataError(
          f'{path} has the client {client!r} twice in the split {split!r}'
        )
      counts[client][split] = size
    (most,) = database.execute('SELECT max(rowid) FROM examples').fetchone()
  # An upper bound; count(*) would read the whole database.
  if sum(sum(sizes.values()) for sizes in counts.values()) > (most or 0):
    raise errors.DataError(
      f'client_metadata of {path} speaks of more examples than there are: the '
      'database is damaged.'
    )
  return counts


def _records(
  database: sqlite3.Connection,
  client: str,
  split: str,
  run: base.Run,
  is_last: bool,
) -> list[Any]:
  """Returns the records of a run, the client's last or not, in their order."""
  size = run.stop - run.start
  rows = database.execute(
    'SELECT serialized_example_proto FROM examples WHERE client_id = ? AND '
    'split_name = ? ORDER BY rowid LIMIT ? OFFSET ?',
    (client, split, size + is_last, run.start),
  ).fetchall()
  if len(rows) != size:
    raise errors.DataError(
      f'the client {client!r} has {"more" if len(rows) > size else "fewer"} '
      f'examples in the split {split!r} than client_metadata says: the '
      'database is damaged.'
    )
  return [record for (record,) in rows]
