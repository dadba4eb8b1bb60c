"""Reader of a published version by shard, for downstream pipelines."""

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
    client_id: Client id.
    group: `'participating'` or `'unseen'`.
    position: Index of its record in the shard.
  """

  client_id: str
  group: str
  position: int


class Reader:
  """Reader of a version; opened by each worker on first use.

  Only the path is sent to workers: the folder of one version, since the current
  version may change while a pipeline runs.
  """

  def __init__(self, folder: pathlib.Path) -> None:
    self._folder = folder

  def __reduce__(self):
    return Reader, (self._folder,)

  @functools.cached_property
  def dataset(self) -> dataset_lib.FederatedDataset:
    """Returns the version; its files are verified before the pipeline runs."""
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
