"""Input of a dataset card: manifest, client table and statistics."""

import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow
from pyarrow import compute

from tff_algos.data import dataset as dataset_lib
from tff_algos.data import raw_features, statistics
from tff_algos.data import schema as schema_lib

# Options that tell datasets of one kind of source apart.
_IDENTIFIES = (
  *('train_file', 'train_images', 'dataset', 'name', 'file', 'split'),
  *('train', 'path'),
)
# Records are shuffled, so the first ones are a random sample.
_MAX_SAMPLES = 500


class Facts(NamedTuple):
  """Facts of a version; N clients, S source distributions, C classes.

  Attributes:
    manifest: Its manifest.
    schema: Shape and meaning of an example.
    totals: See `statistics.Statistics`.
    statistics_sha256: SHA-256 of `statistics.json`.
    clients: Columns of `client_statistics.parquet`, as lists of N.
    client_ids: Ids, participating clients first.
    sizes: split -> number of examples, int64 `[N]`.
    labels: Training examples of each class, int64 `[N, C]`.
    sources: Training examples of each source distribution, int64 `[N, S]`.
    mixture: Planned shares, float64 `[N, S]`; None if there are none.
    clusters: Ground-truth cluster of each client, int32 `[N]`; None if there
      are none.
    samples: Some examples of each source distribution, held-out ones if there
      are any.
  """

  manifest: Mapping[str, Any]
  schema: schema_lib.Schema
  totals: Mapping[str, Mapping[str, Mapping[str, Any]]]
  statistics_sha256: str
  clients: Mapping[str, list[Any]]
  client_ids: tuple[str, ...]
  sizes: Mapping[str, np.ndarray]
  labels: np.ndarray
  sources: np.ndarray
  mixture: np.ndarray | None
  clusters: np.ndarray | None
  samples: tuple[schema_lib.Examples, ...]

  @property
  def title(self) -> str:
    """Returns the kind of the source, and which of its kind it is."""
    source = self.manifest['recipe']['source']
    which = [self._option(name) for name in _IDENTIFIES if self._option(name)]
    return ': '.join([source['name'], *map(str, which[:1])])

  @property
  def class_names(self) -> tuple[str, ...]:
    """Returns the names of the classes, their numbers where unnamed."""
    names = self.manifest.get('source_facts', {}).get('class_names')
    names = names or self._option('classes')
    return tuple(map(str, names or range(self.schema.num_classes)))

  @property
  def feature_names(self) -> tuple[str, ...]:
    """Returns the names of the features, their numbers where unnamed."""
    spec = self.manifest.get(raw_features.FEATURES, {'features': ()})
    names = self._option('feature_columns') or [
      column['name'] for column in spec['features']
    ]
    count = int(np.prod(self.schema.x_shape))
    # A column may be several features, such as one for each category.
    return tuple(map(str, names if len(names) == count else range(count)))

  def _option(self, name: str) -> Any:
    """Returns an option of the source, None if it has no such option."""
    return self.manifest['recipe']['source'].get('options', {}).get(name)


def read(folder: pathlib.Path) -> Facts:
  """Reads the facts of a version of a dataset.

  Args:
    folder: The version's folder.

  Raises:
    DataError: If the version or its statistics are missing or damaged.
  """
  with dataset_lib.FederatedDataset.open_folder(folder, verify=False) as opened:
    found = statistics.read(opened.path, opened.manifest)
    # Those to be scored have neither labels nor a planted truth.
    is_labelled = compute.field('group') != schema_lib.UNLABELLED
    table = found.clients.filter(is_labelled)
    samples = tuple(
      _samples(opened, source, table)
      for source in range(opened.schema.num_sources)
    )
  clients = table.to_pydict()
  return Facts(
    manifest=opened.manifest,
    schema=opened.schema,
    totals=found.totals,
    statistics_sha256=found.sha256,
    clients=clients,
    client_ids=tuple(clients['client_id']),
    sizes={
      split: np.concatenate(
        [opened.num_examples(split, group) for group in schema_lib.GROUPS]
      )
      for split in schema_lib.SPLITS
    },
    labels=_counts(clients, 'label', opened.schema.num_classes),
    sources=_counts(clients, 'source', opened.schema.num_sources),
    mixture=_joined(*map(opened.true_mixture, schema_lib.GROUPS)),
    clusters=_joined(*map(opened.true_clusters, schema_lib.GROUPS)),
    samples=samples,
  )


def _counts(
  clients: Mapping[str, list[Any]], what: str, width: int
) -> np.ndarray:
  rows = clients[f'{schema_lib.TRAIN}_{what}_counts']
  return np.array(rows, np.int64).reshape((len(rows), width))


def _joined(
  participating: np.ndarray | None, unseen: np.ndarray | None
) -> np.ndarray | None:
  """Returns a column of all clients; None if the dataset does not have it."""
  if participating is None or unseen is None:
    return None
  return np.concatenate([participating, unseen])


def _samples(
  dataset: dataset_lib.FederatedDataset, source: int, clients: pyarrow.Table
) -> schema_lib.Examples:
  """Returns held-out examples, or those of the client with most of them."""
  held_out = dataset.held_out(source)
  counts = clients[f'{schema_lib.TRAIN}_source_counts'].to_pylist()
  if held_out.num_examples or not counts:
    # Copied: a view would keep all examples in memory.
    return schema_lib.Examples(
      *(column[:_MAX_SAMPLES].copy() for column in held_out)
    )
  richest = max(range(len(counts)), key=lambda i: counts[i][source])
  client_id = clients['client_id'][richest].as_py()
  examples = dataset.examples(client_id, schema_lib.TRAIN)
  return schema_lib.take(examples, examples.source == source)
