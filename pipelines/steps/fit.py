"""Beam step that fits a feature spec on training examples.

They are those of participating clients alone. Each block writes its statistics,
which are merged in the order of the blocks: the result does not depend on the
runner. Columns that are encoded by each client's statistics are measured at all
clients, each on its own training examples; what an earlier dataset has measured
is taken over, as models are trained with it.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from pipelines.engines import failures
from pipelines.examples import column_statistics, encoding, raw_columns, splits
from pipelines.publishing import staging as staging_lib
from pipelines.steps import extract, handover, planning
from tff_algos.core import errors
from tff_algos.core.structures import Array
from tff_algos.data import dataset as dataset_lib
from tff_algos.features import spec as spec_lib


class Given(NamedTuple):
  """What an earlier dataset was encoded by.

  Attributes:
    spec: Its fitted spec.
    clients: Client id -> mean and deviation of the columns `spec.by_client`,
      float32 `[columns]`, of the clients that have their own.
  """

  spec: spec_lib.FeatureSpec
  clients: Mapping[str, tuple[Array, Array]]

  def digest(self) -> str:
    """Returns a hash of all that examples are encoded by, 16 hex digits."""
    if not self.clients:
      return self.spec.digest()
    digest = hashlib.sha256(self.spec.digest().encode())
    for client_id, rows in sorted(self.clients.items()):
      digest.update(json.dumps(client_id).encode())
      digest.update(b''.join(row.tobytes() for row in rows))
    return digest.hexdigest()[:16]


def is_measured(spec: spec_lib.FeatureSpec, given: Given | None) -> bool:
  """Returns whether any column is, beside what is taken over."""
  if given is not None:
    return bool(spec.by_client)
  return bool(column_statistics.create(spec))


class MeasureBlock(extract.BlockFn):
  """DoFn: block -> its number; writes the statistics of its columns."""

  def process(self, numbered: extract.NumberedBlock) -> Iterator[int]:
    """Measures one block."""
    number, block = numbered
    with failures.carried():
      sound, _ = self._clean(block)
      plan = handover.read_plan(self._staging, number)
      is_train = plan.roles == splits.TRAIN
      owned = is_train & (plan.owners != planning.NOBODY)
      participates = (owned & (plan.owners < plan.num_participating)).any(0)
      columns = cast(raw_columns.Columns, sound.x)
      spec = cast(spec_lib.FeatureSpec, self._source.feature_spec())
      statistics = {}
      if not self._config.fitted_from:
        statistics = column_statistics.create(spec)
        column_statistics.add(
          statistics, spec, raw_columns.select(columns, participates)
        )
      states = {
        'all': {name: one.state() for name, one in statistics.items()},
        'clients': _measure_clients(
          spec.by_client, columns, plan.owners, owned
        ),
      }
      with self._staging.handing_over(
        self._staging.part('columns', number)
      ) as path:
        path.write_text(json.dumps(states))
    yield number


def _measure_clients(
  names: Sequence[str],
  columns: raw_columns.Columns,
  owners: Array,
  owned: Array,
) -> dict[str, list[Any]]:
  """Returns client index -> states of the columns of these names."""
  states = {}
  for client in np.unique(owners[owned]) if names else ():
    rows = (owned & (owners == client)).any(0)
    moments = [column_statistics.Moments() for _ in names]
    for name, one in zip(names, moments, strict=True):
      values = columns[name][rows]
      one.add(values[~np.isnan(values)])
    states[str(client)] = [one.state() for one in moments]
  return states


def merge(
  staging: staging_lib.Staging,
  spec: spec_lib.FeatureSpec,
  num_blocks: int,
  client_ids: Sequence[str],
  given: Given | None = None,
) -> encoding.Fitted:
  """Returns the fitted spec from the statistics of all blocks.

  Args:
    staging: Staging folder.
    spec: The spec, not fitted.
    num_blocks: Number of measured blocks.
    client_ids: Clients of the plan.
    given: What is taken over of an earlier dataset.

  Raises:
    DataError: If a column has no value at all.
  """
  statistics = column_statistics.create(spec)
  clients = [
    [column_statistics.Moments() for _ in spec.by_client] for _ in client_ids
  ]
  for content in staging_lib.in_threads(
    lambda number: staging.read(staging.part('columns', number)),
    range(num_blocks),
  ):
    states = json.loads(content)
    for name, state in states['all'].items():
      statistics[name].merge(state)
    for client, of_columns in states['clients'].items():
      for one, state in zip(clients[int(client)], of_columns, strict=True):
        one.merge(state)
  if given is None:
    fitted = spec.fit(column_statistics.finish(statistics, spec))
    given = Given(fitted, {})
  shape = (len(client_ids), len(spec.by_client))
  mean, deviation = np.empty(shape, np.float32), np.empty(shape, np.float32)
  for column, name in enumerate(spec.by_client):
    of_all = given.spec.fitted[name]
    for client, moments in enumerate(clients):
      values = moments[column].fitted_or(of_all)
      mean[client, column] = values['mean']
      deviation[client, column] = np.sqrt(values['variance'])
  for client, client_id in enumerate(client_ids):
    if client_id in given.clients:
      mean[client], deviation[client] = given.clients[client_id]
  return encoding.Fitted(given.spec, mean, deviation)


def read_given(folder: str, spec: spec_lib.FeatureSpec | None) -> Given | None:
  """Returns what to take over of an earlier dataset; None if '' is named.

  Args:
    folder: Folder of the dataset or of one version of it.
    spec: The features of the dataset to build.

  Raises:
    DataError: If there is no such dataset.
    ConfigError: If its features are not those of `spec`.
  """
  if not folder:
    return None
  with dataset_lib.FederatedDataset.open(folder, verify=False) as dataset:
    earlier = dataset.feature_spec
    clients = _measured_clients(dataset)
  if spec is None:
    raise errors.ConfigError(
      f'dataset.fitted_from is {folder!r}, and the source has no features to '
      'be fitted; leave it out'
    )
  difference = spec.difference(earlier.unfitted())
  if difference is not None:
    raise errors.ConfigError(
      f'dataset.fitted_from={folder!r} has other features: {difference}. Take '
      'the same features (source.options.classes sets the classes, which some '
      'sources find in the raw data), or leave it out'
    )
  return Given(spec.fit(earlier.fitted), clients)


def _measured_clients(
  dataset: dataset_lib.FederatedDataset,
) -> dict[str, tuple[Array, Array]]:
  """Returns the statistics of the clients that have their own."""
  ids = (
    *dataset.client_ids,
    *dataset.unseen_client_ids,
    *dataset.unlabelled_client_ids,
  )
  statistics = dataset.client_statistics(ids)
  if statistics is None:
    return {}
  of_all = encoding.statistics_of_all(dataset.feature_spec)
  return {
    client_id: (mean, deviation)
    for client_id, mean, deviation in zip(ids, *statistics, strict=True)
    if not np.array_equal((mean, deviation), of_all)
  }
