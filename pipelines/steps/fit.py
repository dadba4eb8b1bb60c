"""Beam step that fits a feature spec on training examples.

They are those of participating clients alone. Each block writes its statistics,
which are merged in the order of the blocks: the result does not depend on the
runner. Columns that are encoded by each client's statistics are measured at all
clients, each on its own training examples.
"""

import json
from collections.abc import Iterator
from typing import Any, cast

import numpy as np

from pipelines import options
from pipelines.engines import failures
from pipelines.examples import column_statistics, encoding, raw_columns
from pipelines.publishing import staging as staging_lib
from pipelines.steps import extract, handover, planning
from tff_algos.core import errors
from tff_algos.core.structures import Array
from tff_algos.data import dataset as dataset_lib
from tff_algos.data import schema as schema_lib
from tff_algos.features import spec as spec_lib

_TRAIN = schema_lib.SPLITS.index(schema_lib.TRAIN)


class MeasureBlock(extract.BlockFn):
  """DoFn: block -> its number; writes the statistics of its columns."""

  def __init__(
    self,
    config: options.DatasetConfig,
    staging: staging_lib.Staging,
    spec: spec_lib.FeatureSpec,
  ) -> None:
    super().__init__(config, staging)
    self._spec = spec

  def process(self, numbered: extract.NumberedBlock) -> Iterator[int]:
    """Measures one block."""
    number, block = numbered
    with failures.carried():
      sound, _ = self._clean(block)
      plan = handover.read_plan(self._staging, number)
      is_train = plan.roles == _TRAIN
      owned = is_train & (plan.owners != planning.NOBODY)
      participates = (owned & (plan.owners < plan.num_participating)).any(0)
      columns = cast(raw_columns.Columns, sound.x)
      statistics = column_statistics.create(self._spec)
      column_statistics.add(
        statistics, self._spec, raw_columns.select(columns, participates)
      )
      states = {
        'all': {name: one.state() for name, one in statistics.items()},
        'clients': self._measure_clients(columns, plan.owners, owned),
      }
      with self._staging.atomic_path(_path(self._staging, number)) as path:
        path.write_text(json.dumps(states))
    yield number

  def _measure_clients(
    self, columns: raw_columns.Columns, owners: Array, owned: Array
  ) -> dict[str, list[Any]]:
    """Returns client index -> states of the columns `spec.by_client`."""
    names = self._spec.by_client
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
  num_clients: int,
  given: spec_lib.FeatureSpec | None = None,
) -> encoding.Fitted:
  """Returns the fitted spec from the statistics of all blocks.

  Args:
    staging: Staging folder.
    spec: The spec, not fitted.
    num_blocks: Number of blocks.
    num_clients: Number of clients of the plan.
    given: A fitted spec of the same columns, whose values are taken over.

  Raises:
    DataError: If a column has no value at all.
  """
  statistics = column_statistics.create(spec)
  clients = [
    [column_statistics.Moments() for _ in spec.by_client]
    for _ in range(num_clients)
  ]
  for number in range(num_blocks):
    states = json.loads(_path(staging, number).read_text())
    for name, state in states['all'].items():
      statistics[name].merge(state)
    for client, of_columns in states['clients'].items():
      for one, state in zip(clients[int(client)], of_columns, strict=True):
        one.merge(state)
  if given is None:
    given = spec.fit(column_statistics.finish(statistics, spec))
  shape = (num_clients, len(spec.by_client))
  mean, deviation = np.empty(shape, np.float32), np.empty(shape, np.float32)
  for column, name in enumerate(spec.by_client):
    of_all = given.fitted[name]
    for client, moments in enumerate(clients):
      values = moments[column].fitted_or(of_all)
      mean[client, column] = values['mean']
      deviation[client, column] = np.sqrt(values['variance'])
  return encoding.Fitted(given, mean, deviation)


def read_given(
  folder: str, spec: spec_lib.FeatureSpec | None
) -> spec_lib.FeatureSpec | None:
  """Returns the fitted spec of an earlier dataset; None if '' is named.

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
    given = dataset.feature_spec
  if spec is None:
    raise errors.ConfigError(
      f'dataset.fitted_from is {folder!r}, and the source has no features to '
      'be fitted; leave it out'
    )
  difference = spec.difference(given.unfitted())
  if difference is not None:
    raise errors.ConfigError(
      f'dataset.fitted_from={folder!r} has other features: {difference}. Take '
      'the same features (source.options.classes sets the classes, which some '
      'sources find in the raw data), or leave it out'
    )
  return spec.fit(given.fitted)


def _path(staging: staging_lib.Staging, number: int) -> Any:
  return staging.work / f'columns-{number:05d}.json'
