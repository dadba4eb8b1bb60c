"""Reader of a federated dataset: any client's examples by id, without Beam."""

import contextlib
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow
from pyarrow import parquet

from tff_algos.core import checks, errors, rich_repr
from tff_algos.core.structures import Array
from tff_algos.data import (
  integrity,
  layout,
  leases,
  published_version,
  raw_features,
)
from tff_algos.data import schema as schema_lib
from tff_algos.data import shards as shards_lib
from tff_algos.features import spec as spec_lib
from tff_algos.stores import objects

# Of the table of clients; statistics read the histograms of labels, which take
# more memory than all others.
_COLUMNS = (
  *('client_id', 'group', 'shard', 'position', 'cluster_id'),
  *('mixture', 'label_mixture'),
  *(raw_features.CLIENT_MEAN, raw_features.CLIENT_DEVIATION),
  *(f'num_{split}_examples' for split in schema_lib.SPLITS),
)


class FederatedDataset(rich_repr.Described):
  """One published version of a federated dataset.

  Attributes:
    path: Folder of the version; of one in an object store, a local copy without
      shards, until it is closed.
    address: Address of a dataset in an object store; None of one in a folder.
    version: Name of the version: a hash of everything that determines it.
    manifest: Content of `manifest.json`.
    schema: Shape and meaning of an example.
    client_ids: Participating clients, sorted; training may use only these.
    unseen_client_ids: Clients of the same scheme that are held out from all
      training, sorted.
    unlabelled_client_ids: Clients without labels, to be scored, sorted; all
      their examples are test examples.
  """

  def __init__(
    self,
    path: pathlib.Path,
    manifest: Mapping[str, Any],
    clients: pyarrow.Table,
    shards: shards_lib.Shards,
  ) -> None:
    """Use `open`."""
    self.path = path
    self.address: str | None = None
    self._shards = shards
    self.manifest = manifest
    self.version = manifest['version']
    self.schema = schema_lib.Schema.from_dict(manifest['schema'])
    ids = clients['client_id'].to_pylist()
    groups = clients['group'].to_pylist()
    self._records = clients.select(['client_id', 'group', 'position'])
    self._row = {client_id: row for row, client_id in enumerate(ids)}
    self._shard = clients['shard'].to_numpy()
    self._position = clients['position'].to_numpy()
    self._counts = {
      split: clients[f'num_{split}_examples'].to_numpy()
      for split in schema_lib.SPLITS
    }
    self._mixture = _matrix(clients, 'mixture')
    self._label_mixture = _matrix(clients, 'label_mixture')
    self._feature_mean = _matrix(clients, raw_features.CLIENT_MEAN)
    self._feature_deviation = _matrix(clients, raw_features.CLIENT_DEVIATION)
    self._cluster = (
      clients['cluster_id'].to_numpy()
      if 'cluster_id' in clients.column_names
      else None
    )
    self._shared_tests: dict[str, schema_lib.StoredExamples] = {}
    self._ids = {
      group: _members(ids, groups, group)
      for group in (*schema_lib.GROUPS, schema_lib.UNLABELLED)
    }
    self.client_ids = self._ids[schema_lib.PARTICIPATING]
    self.unseen_client_ids = self._ids[schema_lib.UNSEEN]
    self.unlabelled_client_ids = self._ids[schema_lib.UNLABELLED]
    self._lease = contextlib.ExitStack()

  @classmethod
  def open(
    cls,
    path: str | os.PathLike[str],
    *,
    as_of: str | None = None,
    version: str | None = None,
    verify: bool = True,
    cache_bytes: int = published_version.CACHE_BYTES,
  ) -> 'FederatedDataset':
    """Opens a published version of a dataset, with a lease against removal.

    Args:
      path: The dataset's folder, the one that holds `CURRENT`; or the folder
        of one version, to which the workdir of a nightly run links; or the
        address of a dataset or a workdir in an object store (docs/scale.md); or
        a file that holds such an address, see `layout.write_address`.
      as_of: Opens the version of the latest date up to this one, see
        `dates.parse`, in place of the current one.
      version: Opens the version of this name.
      verify: Whether to compare every file with its SHA-256 first. Without it,
        and in an object store, a damaged record is found when it is read.
      cache_bytes: Of a dataset in an object store, the bound of what is kept of
        its shards on local disk.

    Raises:
      ConfigError: If both `as_of` and `version` are given.
      DataError: If the dataset is missing, half-written, of another schema
        version or damaged.
      InfrastructureError: If the object store cannot be reached.
    """
    place = layout.read_address(path) or path
    with contextlib.ExitStack() as stack:
      if objects.is_address(place):
        found = published_version.open_version(
          str(place), as_of, version, cache_bytes, stack
        )
        opened = cls._read_clients(*found)
        opened.address = str(place)
      else:
        folder = _hold(pathlib.Path(place), as_of, version, stack)
        opened = cls.open_folder(folder, verify=verify)
      opened._lease = stack.pop_all()
    return opened

  @classmethod
  def open_folder(
    cls, folder: pathlib.Path, *, verify: bool = True
  ) -> 'FederatedDataset':
    """Opens a version by its own folder, whether it is the current one or not.

    Args:
      folder: `<dataset>/versions/<version>`; the caller ensures that it is not
        removed.
      verify: As for `open`.

    Raises:
      DataError: As `open`.
    """
    manifest = integrity.read_manifest(folder)
    integrity.check_files(folder, manifest, verify)
    return cls._read_clients(folder, manifest, shards_lib.LocalShards(folder))

  @classmethod
  def _read_clients(
    cls,
    folder: pathlib.Path,
    manifest: Mapping[str, Any],
    shards: shards_lib.Shards,
  ) -> 'FederatedDataset':
    with parquet.ParquetFile(folder / layout.CLIENTS) as file:
      return cls(folder, manifest, file.read(_COLUMNS), shards)

  @property
  def feature_spec(self) -> spec_lib.FeatureSpec:
    """Returns the raw columns and their encoding as examples."""
    return raw_features.of_manifest(self.manifest)

  @property
  def source_names(self) -> tuple[str, ...]:
    """Returns the names of the source distributions."""
    return self.schema.source_names

  def examples(self, client_id: str, split: str) -> schema_lib.Examples:
    """Returns the examples of one client of any group.

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
        f'({_from_to(self.client_ids)}), {len(self.unseen_client_ids)} unseen '
        f'ones ({_from_to(self.unseen_client_ids)}) and '
        f'{len(self.unlabelled_client_ids)} without labels.'
      )
    row = self._row[client_id]
    if split == schema_lib.TEST and 'shared_test' in self.manifest:
      return self._read_shared_test(row)
    shard = layout.shard_name(
      split, int(self._shard[row]), self.manifest['num_shards']
    )
    return self._read(
      shard, int(self._position[row]), int(self._counts[split][row])
    )

  def held_out(self, source_index: int) -> schema_lib.Examples:
    """Returns the held-out examples of one source distribution.

    They are in no client's training or validation split, of any distribution,
    and in clients' test splits only if `splits.client_test` is not `'ratio'`.

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

  def num_examples(
    self, split: str, group: str = schema_lib.PARTICIPATING
  ) -> Array:
    """Returns the sizes of a group's clients, int64 `[num_clients]`.

    Args:
      split: `'train'`, `'validation'` or `'test'`.
      group: `'participating'`, `'unseen'` or `'unlabelled'`.
    """
    _check_split(split)
    rows = [self._row[client_id] for client_id in self._members_of(group)]
    return self._counts[split][rows].astype(np.int64)

  def shards_of(self, client_ids: Sequence[str]) -> Array:
    """Returns the shard with each client's examples, int64 `[n]`."""
    return self._shard[[self._row[one] for one in client_ids]].astype(np.int64)

  def clients_of_shard(self, shard: int) -> list[tuple[str, str, int]]:
    """Returns id, group and position of a shard's clients, by position."""
    rows = np.flatnonzero(self._shard == shard)
    found = self._records.take(rows).sort_by('position').to_pydict()
    return list(zip(*found.values(), strict=True))

  def true_mixture(self, group: str = schema_lib.PARTICIPATING) -> Array | None:
    """Returns the planned share of each source distribution at each client.

    Args:
      group: See `num_examples`.

    Returns:
      float64 `[num_clients, num_sources]`, rows sum to 1, in the order of the
      clients' ids; None if clients are not mixtures (a natural partition).
    """
    return self._rows(self._mixture, self._members_of(group))

  def true_clusters(
    self, group: str = schema_lib.PARTICIPATING
  ) -> Array | None:
    """Returns the planted cluster of each client of a group.

    Args:
      group: See `num_examples`.

    Returns:
      int32 `[num_clients]`; None if the partition planted no clusters.
    """
    return self._rows(self._cluster, self._members_of(group))

  def true_label_mixture(self) -> Array | None:
    """Returns the planned share of each class at each participating client.

    Returns:
      float64 `[num_clients, num_classes]`, of the training examples; rows sum
      to 1, or are 0 for a client without any. None if the partition does not
      depend on classes.
    """
    return self._rows(self._label_mixture, self.client_ids)

  def description(self) -> tuple[str, Mapping[str, object]]:
    """Returns the version, and numbers of clients and examples."""
    counts = {
      split: int(self.num_examples(split).sum()) for split in schema_lib.SPLITS
    }
    shape = ' x '.join(map(str, self.schema.x_shape)) or 'one number'
    return f'Federated dataset {self.version}', {
      'participating clients': len(self.client_ids),
      'unseen clients': len(self.unseen_client_ids),
      'examples of participating clients': ', '.join(
        f'{count} {split}' for split, count in counts.items()
      ),
      'features': f'{shape}, {self.schema.x_dtype}',
      'labels': (
        f'{self.schema.num_classes} classes'
        if self.schema.num_classes
        else 'numbers'
      ),
    }

  def close(self) -> None:
    """Releases the lease on the version; no examples can be read any more."""
    self._shards.close()
    self._lease.close()

  def __enter__(self) -> 'FederatedDataset':
    return self

  def __exit__(self, *unused_exception: Any) -> None:
    self.close()

  def client_statistics(
    self, client_ids: tuple[str, ...]
  ) -> tuple[Array, Array] | None:
    """Returns the statistics that raw columns are standardized by.

    Args:
      client_ids: Some clients of any group.

    Returns:
      Mean and standard deviation of the columns `feature_spec.by_client`,
      float32 `[len(client_ids), columns]`; None without such columns.
    """
    mean = self._rows(self._feature_mean, client_ids)
    deviation = self._rows(self._feature_deviation, client_ids)
    if mean is None or deviation is None:
      return None
    return mean, deviation

  def _members_of(self, group: str) -> tuple[str, ...]:
    return self._ids[checks.check_one_of('group', group, self._ids)]

  def _rows(self, column: Array | None, ids: tuple[str, ...]) -> Array | None:
    if column is None:
      return None
    return column[[self._row[client_id] for client_id in ids]]

  def _read(
    self, shard: str, position: int, num_examples: int
  ) -> schema_lib.Examples:
    stored = self._read_stored(shard, position)
    self._check_count(
      f'record {position} of {self._shards.place(shard)}', stored, num_examples
    )
    return self._decode(stored)

  def _read_shared_test(self, row: int) -> schema_lib.Examples:
    """Returns the held-out examples of the classes that a client has."""
    source = 0 if self._mixture is None else int(self._mixture[row].argmax())
    shard = layout.shard_name(layout.HELD_OUT, source, self.schema.num_sources)
    if shard not in self._shared_tests:
      self._shared_tests[shard] = self._read_stored(shard, 0)
    shared = self._shared_tests[shard]
    shares = checks.check_given('label_mixture', self._label_mixture)
    is_own = shares[row][shared.y] > 0
    stored = schema_lib.take(shared, is_own)
    self._check_count(
      f"the client's part of {self._shards.place(shard)}",
      stored,
      int(self._counts[schema_lib.TEST][row]),
    )
    return self._decode(stored)

  def _read_stored(
    self, shard: str, position: int
  ) -> schema_lib.StoredExamples:
    try:
      record = self._shards.read(shard, position)
      return schema_lib.decode_record(record, self.schema)
    except errors.DataError as error:
      raise errors.DataError(
        f'record {position} of {self._shards.place(shard)} is damaged: '
        f'{error}. {integrity.BUILD_AGAIN}'
      ) from None

  def _check_count(
    self, what: str, stored: schema_lib.StoredExamples, num_examples: int
  ) -> None:
    if len(stored.y) != num_examples:
      raise errors.DataError(
        f'{what} has {len(stored.y)} examples, {layout.CLIENTS} or '
        f'{layout.MANIFEST} says {num_examples}. {integrity.BUILD_AGAIN}'
      )

  def _decode(self, stored: schema_lib.StoredExamples) -> schema_lib.Examples:
    return schema_lib.Examples(
      x=self.schema.decode_x(stored.x),
      y=stored.y.copy(),
      source=stored.source.copy(),
    )


def _hold(
  dataset: pathlib.Path,
  as_of: str | None,
  version: str | None,
  stack: contextlib.ExitStack,
) -> pathlib.Path:
  """Returns the folder of a version, with a lease on it in `stack`."""
  while True:
    if not (as_of or version) and (dataset / layout.MANIFEST).is_file():
      folder = dataset.resolve()
    else:
      folder = integrity.find(dataset, as_of, version)
    lease = leases.hold(folder)
    if lease is not None:
      stack.enter_context(lease)
      return folder
    if folder.is_dir() and not (folder / layout.MANIFEST).exists():
      return folder  # Reading the manifest then raises the error.


def _matrix(clients: pyarrow.Table, name: str) -> Array | None:
  """Returns a column of vectors; None if it is missing or has nulls."""
  if name not in clients.column_names:
    return None
  column = clients[name].combine_chunks()
  if column.null_count:
    return None
  return column.flatten().to_numpy().reshape((len(column), -1))


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
