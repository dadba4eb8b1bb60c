"""Reads a federated dataset: any client's examples by id, without Beam."""

import contextlib
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow
from array_record.python import array_record_module
from pyarrow import parquet

from tff_algos.core import errors
from tff_algos.data import integrity, layout
from tff_algos.data import schema as schema_lib

# One record at a time by its number: no reading ahead, no thread pool.
_RANDOM_ACCESS = 'readahead_buffer_size:0,max_parallelism:0'


class FederatedDataset:
  """One published version of a federated dataset.

  Attributes:
    path: Folder of the version.
    version: Its name: a hash of how it was made.
    manifest: What its `manifest.json` says.
    schema: Shape and meaning of an example.
    client_ids: Participating clients, sorted; training may use only these.
    unseen_client_ids: Clients of the same law that no training may see.
  """

  def __init__(
    self,
    path: pathlib.Path,
    manifest: Mapping[str, Any],
    clients: pyarrow.Table,
  ):
    """Use `open`."""
    self.path = path
    self.manifest = manifest
    self.version = manifest['version']
    self.schema = schema_lib.Schema.from_dict(manifest['schema'])
    ids = clients['client_id'].to_pylist()
    groups = clients['group'].to_pylist()
    self._row = {client_id: row for row, client_id in enumerate(ids)}
    self._shard = clients['shard'].to_numpy()
    self._position = clients['position'].to_numpy()
    self._counts = {
      split: clients[f'num_{split}_examples'].to_numpy()
      for split in schema_lib.SPLITS
    }
    self._mixture = _mixture(clients)
    self.client_ids = _members(ids, groups, schema_lib.PARTICIPATING)
    self.unseen_client_ids = _members(ids, groups, schema_lib.UNSEEN)
    self._readers: dict[str, Any] = {}

  @classmethod
  def open(
    cls, path: str | os.PathLike[str], *, verify: bool = True
  ) -> 'FederatedDataset':
    """Opens the published version of a dataset.

    Args:
      path: The dataset's folder, the one that holds `CURRENT`.
      verify: Whether to compare every file with its SHA-256 first. Without it
        a damaged record is found when it is read.

    Raises:
      DataError: If the dataset is missing, half-written, of another schema
        version or damaged.
    """
    folder = integrity.find_current(pathlib.Path(path))
    manifest = integrity.read_manifest(folder)
    integrity.check_files(folder, manifest, verify)
    return cls(folder, manifest, parquet.read_table(folder / layout.CLIENTS))

  @property
  def source_names(self) -> tuple[str, ...]:
    """Returns the names of the source distributions."""
    return self.schema.source_names

  def examples(self, client_id: str, split: str) -> schema_lib.Examples:
    """Returns the examples of one client, participating or unseen.

    A client without examples gets arrays of length 0.

    Args:
      client_id: The client's id.
      split: `'train'`, `'validation'` or `'test'`.

    Raises:
      DataError: If the client or the split is unknown or the record damaged.
    """
    _check_split(split)
    if client_id not in self._row:
      raise errors.DataError(
        f'unknown client id {client_id!r}; the dataset has '
        f'{len(self.client_ids)} participating clients '
        f'({_from_to(self.client_ids)}) and {len(self.unseen_client_ids)} '
        f'unseen ones ({_from_to(self.unseen_client_ids)}).'
      )
    row = self._row[client_id]
    shard = layout.shard_name(
      split, int(self._shard[row]), self.manifest['num_shards']
    )
    return self._read(
      shard, int(self._position[row]), int(self._counts[split][row])
    )

  def held_out(self, source_index: int) -> schema_lib.Examples:
    """Returns the held-out examples of one source distribution.

    No client has any of them, in any split or any other distribution.

    Raises:
      DataError: If there is no such distribution or the record is damaged.
    """
    if not 0 <= source_index < self.schema.num_sources:
      raise errors.DataError(
        f'unknown source distribution {source_index}; there are '
        f'{self.schema.num_sources}: {", ".join(self.source_names)}.'
      )
    shard = layout.shard_name(
      layout.HELD_OUT, source_index, self.schema.num_sources
    )
    return self._read(shard, 0, self.manifest['num_held_out'][source_index])

  def num_examples(self, split: str) -> np.ndarray:
    """Returns the sizes of the participating clients, int64 `[num_clients]`."""
    return self._num_examples(self.client_ids, split)

  def num_unseen_examples(self, split: str) -> np.ndarray:
    """Returns the sizes of the unseen clients, int64 `[num_unseen]`."""
    return self._num_examples(self.unseen_client_ids, split)

  def true_mixture(self) -> np.ndarray | None:
    """Returns the planned share of each source distribution at each client.

    Returns:
      float64 `[num_clients, num_sources]`, rows sum to 1, in the order of
      `client_ids`; None if clients are not mixtures (a natural partition).
    """
    return self._true_mixture(self.client_ids)

  def true_unseen_mixture(self) -> np.ndarray | None:
    """Returns the same as `true_mixture` for the unseen clients."""
    return self._true_mixture(self.unseen_client_ids)

  def close(self) -> None:
    """Closes the shards that were opened."""
    while self._readers:
      _, reader = self._readers.popitem()
      # A damaged shard says so again; whoever read it has been told.
      with contextlib.suppress(RuntimeError):
        reader.close()

  def __enter__(self) -> 'FederatedDataset':
    return self

  def __exit__(self, *unused_exception: Any) -> None:
    self.close()

  def _num_examples(self, ids: tuple[str, ...], split: str) -> np.ndarray:
    _check_split(split)
    rows = [self._row[client_id] for client_id in ids]
    return self._counts[split][rows].astype(np.int64)

  def _true_mixture(self, ids: tuple[str, ...]) -> np.ndarray | None:
    if self._mixture is None:
      return None
    return self._mixture[[self._row[client_id] for client_id in ids]]

  def _read(
    self, shard: str, position: int, num_examples: int
  ) -> schema_lib.Examples:
    try:
      record = self._reader(shard).read([position])[0]
      stored = schema_lib.decode_record(record, self.schema)
    except (RuntimeError, IndexError, errors.DataError) as error:
      raise errors.DataError(
        f'record {position} of {self.path / shard} is damaged: '
        f'{str(error).splitlines()[0]}. {integrity.BUILD_AGAIN}'
      ) from None
    if len(stored.y) != num_examples:
      raise errors.DataError(
        f'record {position} of {self.path / shard} has {len(stored.y)} '
        f'examples, {layout.CLIENTS} or {layout.MANIFEST} says '
        f'{num_examples}. {integrity.BUILD_AGAIN}'
      )
    return schema_lib.Examples(
      x=self.schema.decode_x(stored.x),
      y=stored.y.copy(),
      source=stored.source.copy(),
    )

  def _reader(self, shard: str) -> Any:
    if shard not in self._readers:
      self._readers[shard] = array_record_module.ArrayRecordReader(
        str(self.path / shard), _RANDOM_ACCESS
      )
    return self._readers[shard]


def _mixture(clients: pyarrow.Table) -> np.ndarray | None:
  rows = clients['mixture'].to_pylist()
  return None if None in rows else np.array(rows, np.float64)


def _members(ids: list[str], groups: list[str], group: str) -> tuple[str, ...]:
  pairs = zip(ids, groups, strict=True)
  return tuple(sorted(client_id for client_id, g in pairs if g == group))


def _check_split(split: str) -> None:
  if split not in schema_lib.SPLITS:
    raise errors.DataError(
      f'unknown split {split!r}; it must be one of '
      f'{", ".join(schema_lib.SPLITS)}.'
    )


def _from_to(ids: tuple[str, ...]) -> str:
  return f'{ids[0]!r} to {ids[-1]!r}' if ids else 'none'
