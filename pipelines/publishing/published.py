"""Reader of a published version by shard, for downstream pipelines."""

import functools
import pathlib
from typing import NamedTuple

from tff_algos.data import dataset as dataset_lib


class Client(NamedTuple):
  """A client of a shard.

  Attributes:
    client_id: Client id.
    group: `'participating'`, `'unseen'` or `'unlabelled'`.
    position: Index of its record in the shard.
  """

  client_id: str
  group: str
  position: int


class Reader:
  """Reader of a version; opened by each worker on first use.

  Only its place is sent to workers: the folder of one version, or the address
  and the version, since the current one may change while a pipeline runs.
  """

  def __init__(
    self, place: pathlib.Path | str, version: str | None = None
  ) -> None:
    """Opens nothing yet.

    Args:
      place: Folder of the version; or the address of the dataset.
      version: Name of the version at the address.
    """
    self._place = place
    self._version = version

  @classmethod
  def of(cls, dataset: dataset_lib.FederatedDataset) -> 'Reader':
    """Returns a reader of the version that is open."""
    if dataset.address is None:
      return cls(dataset.path.resolve())
    return cls(dataset.address, dataset.version)

  def __reduce__(self):
    return Reader, (self._place, self._version)

  @functools.cached_property
  def dataset(self) -> dataset_lib.FederatedDataset:
    """Returns the version; its files are verified before the pipeline runs."""
    if isinstance(self._place, pathlib.Path):
      return dataset_lib.FederatedDataset.open_folder(self._place, verify=False)
    return dataset_lib.FederatedDataset.open(self._place, version=self._version)

  def clients(self, shard: int) -> list[Client]:
    """Returns the clients of a shard in the order of their records."""
    return [Client(*one) for one in self.dataset.clients_of_shard(shard)]
