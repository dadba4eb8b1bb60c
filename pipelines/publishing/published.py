"""Reads a published version shard by shard, for pipelines that come after."""

import functools
import pathlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from pyarrow import parquet

from tff_algos.data import dataset as dataset_lib
from tff_algos.data import layout


class Client(NamedTuple):
  """A client of a shard.

  Attributes:
    client_id: Its id.
    group: `'participating'` or `'unseen'`.
    position: Its record within the shard.
  """

  client_id: str
  group: str
  position: int


class Reader:
  """Reads a version; opened by each worker when it first needs it.

  What a worker is sent is the path alone: that of one version's folder, since
  the current version may change while a pipeline runs.
  """

  def __init__(self, folder: pathlib.Path) -> None:
    self._folder = folder

  def __reduce__(self):
    return Reader, (self._folder,)

  @functools.cached_property
  def dataset(self) -> dataset_lib.FederatedDataset:
    """Returns the version; its files were verified before the pipeline ran."""
    return dataset_lib.FederatedDataset.open_folder(self._folder, verify=False)

  def clients(self, shard: int) -> list[Client]:
    """Returns the clients of a shard in the order of their records."""
    return self._clients[shard]

  @functools.cached_property
  def _clients(self) -> list[list[Client]]:
    shards: list[list[Client]] = [
      [] for _ in range(self.dataset.manifest['num_shards'])
    ]
    for row in _rows(self.dataset.path / layout.CLIENTS):
      shards[row['shard']].append(
        Client(row['client_id'], row['group'], row['position'])
      )
    return [sorted(clients, key=lambda c: c.position) for clients in shards]


def _rows(path: pathlib.Path) -> Iterator[dict[str, Any]]:
  columns = ['client_id', 'group', 'shard', 'position']
  yield from parquet.read_table(path, columns=columns).to_pylist()
