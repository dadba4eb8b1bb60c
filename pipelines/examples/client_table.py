"""Per-client statistics of a shard: counts and moments."""

from collections.abc import Sequence

import numpy as np
import pyarrow

from pipelines.publishing import published
from tff_algos.core.structures import Array
from tff_algos.data import schema as schema_lib


class ClientTable:
  """Accumulator of statistics of a shard's clients, in record order."""

  def __init__(
    self, schema: schema_lib.Schema, clients: Sequence[published.Client]
  ) -> None:
    self._schema = schema
    self._clients = clients
    n, num_splits = len(clients), len(schema_lib.SPLITS)
    self._sources = np.zeros((n, num_splits, schema.num_sources), np.int64)
    self._labels = np.zeros((n, num_splits, schema.num_classes), np.int64)
    self._x = _Moments(n, int(np.prod(schema.x_shape)))
    self._y = _Moments(n, 1)

  def add(
    self, split: str, position: Array, examples: schema_lib.Examples
  ) -> None:
    """Adds examples of several clients.

    Args:
      split: Split of the examples.
      position: Position of each example's client in the shard, `[n]`.
      examples: n examples.
    """
    at = schema_lib.SPLITS.index(split)
    np.add.at(self._sources[:, at], (position, examples.source), 1)
    self._x.add(position, examples.x)
    if self._schema.num_classes:
      # With labels at several places every label counts.
      owners = position.reshape(-1, *[1] * (examples.y.ndim - 1))
      np.add.at(self._labels[:, at], (owners, examples.y), 1)
    else:
      self._y.add(position, examples.y)

  def to_arrow(self) -> pyarrow.Table:
    """Returns one row per client; `docs/dataset_cards.md` lists the columns."""
    columns = {
      'client_id': pyarrow.array(
        [client.client_id for client in self._clients], pyarrow.string()
      ),
      'group': pyarrow.array(
        [client.group for client in self._clients], pyarrow.string()
      ),
    }
    counts = pyarrow.list_(pyarrow.int64())
    for at, split in enumerate(schema_lib.SPLITS):
      columns[f'{split}_source_counts'] = pyarrow.array(
        self._sources[:, at].tolist(), counts
      )
      columns[f'{split}_label_counts'] = pyarrow.array(
        self._labels[:, at].tolist(), counts
      )
    columns |= self._x.to_columns('x')
    if not self._schema.num_classes:
      columns |= self._y.to_columns('y')
    return pyarrow.table(columns)


class _Moments:
  """Mean, standard deviation and range of all values of each client."""

  def __init__(self, num_clients: int, num_columns: int) -> None:
    self._num_columns = num_columns
    self._count = np.zeros(num_clients, np.int64)
    self._sum = np.zeros(num_clients)
    self._squares = np.zeros(num_clients)
    self._minimum = np.full(num_clients, np.inf)
    self._maximum = np.full(num_clients, -np.inf)

  def add(self, position: Array, values: Array) -> None:
    """Adds values `[n, ...]` of the clients at `position` `[n]`."""
    rows = values.reshape(len(position), self._num_columns).astype(np.float64)
    np.add.at(self._count, position, self._num_columns)
    np.add.at(self._sum, position, rows.sum(axis=1))
    np.add.at(self._squares, position, (rows**2).sum(axis=1))
    np.minimum.at(self._minimum, position, rows.min(axis=1))
    np.maximum.at(self._maximum, position, rows.max(axis=1))

  def to_columns(self, name: str) -> dict[str, pyarrow.Array]:
    """Returns the columns `<name>_mean` and so on; null without examples."""
    empty = self._count == 0
    count = np.maximum(self._count, 1)
    mean = self._sum / count
    variance = np.maximum(self._squares / count - mean**2, 0)
    columns = {
      'mean': mean,
      'std': np.sqrt(variance),
      'min': self._minimum,
      'max': self._maximum,
    }
    return {
      f'{name}_{what}': pyarrow.array(values, pyarrow.float64(), mask=empty)
      for what, values in columns.items()
    }
