"""Output of batch inference: Parquet tables by shard and their manifest."""

import hashlib
import json
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow
from absl import logging
from pyarrow import parquet

from pipelines.engines import failures
from pipelines.publishing import staging as staging_lib
from pipelines.scoring import bundles, model_choice
from tff_algos.core import checks, errors, records, sealed_json
from tff_algos.core import config as config_lib
from tff_algos.core.structures import Array
from tff_algos.data import schema as schema_lib

# Readers of a folder of Parquet files ignore names that begin with _.
MANIFEST = '_predictions.json'
# Hashed into every version's name. To be raised when the output changes.
CODE_VERSION = 2


class ScoredClient(NamedTuple):
  """The scored examples of one client.

  Attributes:
    position: Index of its record in the shard.
    client_id: Client id.
    group: `'participating'`, `'unseen'` or `'unlabelled'`.
    model: See `model_choice.Choice`.
    cluster_id: The cluster that answered; -1 if it was a personalized model.
    chosen_by: See `model_choice.Choice`.
    label: True labels, `[n]`.
    prediction: Predicted classes or numbers, `[n]`.
    probability: The model's own probability of its prediction, `[n]`; None
      for regression.
  """

  position: int
  client_id: str
  group: str
  model: str
  cluster_id: int
  chosen_by: str
  label: Array
  prediction: Array
  probability: Array | None


class WriteShard(beam.DoFn):
  """DoFn: (shard, scored clients and Nones) -> shard, after writing it."""

  def __init__(
    self, staging: staging_lib.Staging, num_shards: int, num_classes: int
  ) -> None:
    self._staging = staging
    self._num_shards = num_shards
    self._num_classes = num_classes

  def process(
    self, keyed: tuple[int, Iterable[ScoredClient | None]]
  ) -> Iterator[int]:
    """Writes one shard's predictions and the facts about them."""
    with failures.carried():
      shard, scored = keyed
      clients = sorted(
        (client for client in scored if client is not None),
        key=lambda client: client.position,
      )
      table = to_table(clients, self._num_classes)
      name = f'predictions-{shard:05d}-of-{self._num_shards:05d}.parquet'
      with self._staging.handing_over(self._staging.version / name) as path:
        parquet.write_table(table, path)
        described = records.describe_file(path)
      facts = {'files': {name: described}, **_count_all(clients, table)}
      with self._staging.handing_over(
        self._staging.part('facts', shard)
      ) as path:
        path.write_text(json.dumps(facts))
      yield shard


def to_table(
  clients: Sequence[ScoredClient], num_classes: int
) -> pyarrow.Table:
  """Returns one row per example; `docs/batch_inference.md` lists columns."""
  sizes = [len(client.label) for client in clients]
  number = pyarrow.int32() if num_classes else pyarrow.float32()
  label = _joined([client.label for client in clients])
  prediction = _joined([client.prediction for client in clients])
  no_label = ~schema_lib.has_label(label)
  texts = {
    name: pyarrow.array(
      np.repeat(
        np.array([getattr(client, name) for client in clients], object), sizes
      ),
      pyarrow.string(),
    )
    for name in ('client_id', 'group', 'model', 'chosen_by')
  }
  cluster_id = np.repeat(
    np.array([client.cluster_id for client in clients], np.int32), sizes
  )
  columns = {
    'client_id': texts['client_id'],
    'group': texts['group'],
    'position': pyarrow.array(
      _joined([np.arange(size) for size in sizes]), pyarrow.int32()
    ),
    'prediction': pyarrow.array(prediction, number),
    'label': pyarrow.array(label, number, mask=no_label),
  }
  if num_classes:
    probability = _joined(
      [checks.check_given('probability', c.probability) for c in clients]
    )
    columns['probability'] = pyarrow.array(probability, pyarrow.float32())
    columns['correct'] = pyarrow.array(
      # The class of NaN probabilities is 0, which no model has predicted.
      (prediction == label) & np.isfinite(probability),
      pyarrow.bool_(),
      mask=no_label,
    )
  columns |= {
    'model': texts['model'],
    'cluster_id': pyarrow.array(
      cluster_id, pyarrow.int32(), mask=cluster_id < 0
    ),
    'chosen_by': texts['chosen_by'],
  }
  return pyarrow.table(columns)


def _joined(arrays: Sequence[Array]) -> Array:
  return np.concatenate(arrays) if arrays else np.zeros(0)


def _count_all(
  clients: Sequence[ScoredClient], table: pyarrow.Table
) -> dict[str, Any]:
  counts = {'clients': len(clients), 'examples': len(table)}
  for client in clients:
    name = f'clients_by_{client.chosen_by}'
    counts[name] = counts.get(name, 0) + 1
  table = table.filter(table['label'].is_valid())
  if len(table) < counts['examples']:
    counts['unlabelled_examples'] = counts['examples'] - len(table)
  facts: dict[str, Any] = {'counts': counts}
  if 'correct' in table.column_names:
    facts['correct'] = int(np.sum(table['correct'].to_numpy()))
  else:
    error = np.subtract(
      table['prediction'].to_numpy(), table['label'].to_numpy(), dtype=float
    )
    facts['squared_error'] = float(np.sum(error**2))
  return facts


def describe(
  source: Mapping[str, Any],
  found: Sequence[bundles.Bundle],
  config: model_choice.ScoringConfig,
  assignments: Mapping[str, int],
) -> dict[str, Any]:
  """Returns the inputs that determine the predictions, without paths."""
  spelled = json.dumps(assignments, sort_keys=True)
  return {
    'code_version': CODE_VERSION,
    'dataset': {
      'version': source['version'],
      'checksum': source['checksum'],
    },
    'models': {
      bundle.model: {
        'version': bundle.version,
        'round_num': bundle.manifest['round_num'],
        'config_hash': bundle.manifest['config_hash'],
        'bundle_sha256': bundle.sha256,
      }
      for bundle in found
    },
    'config': config_lib.to_dict(config),
    'num_assignments': len(assignments),
    'assignments_sha256': hashlib.sha256(spelled.encode()).hexdigest(),
  }


def write_manifest(
  staging: staging_lib.Staging, described: Mapping[str, Any], version: str
) -> dict[str, Any]:
  """Writes and returns the manifest of a version of predictions."""
  facts = [json.loads(staging.read(path)) for path in staging.find('facts-')]
  names = sorted({name for fact in facts for name in fact['counts']})
  counts = {
    name: sum(fact['counts'].get(name, 0) for fact in facts) for name in names
  }
  manifest: dict[str, Any] = {
    **described,
    'version': version,
    'counts': counts,
    'files': {
      name: entry for fact in facts for name, entry in fact['files'].items()
    },
  }
  n = counts['examples'] - counts.get('unlabelled_examples', 0)
  if n and 'correct' in facts[0]:
    manifest['accuracy'] = sum(fact['correct'] for fact in facts) / n
  elif n:
    squared = sum(fact['squared_error'] for fact in facts)
    manifest['mean_squared_error'] = squared / n
  sealed_json.write(staging.version / MANIFEST, manifest)
  return manifest


def read_published(folder: pathlib.Path) -> dict[str, Any] | None:
  """Returns the manifest of predictions that exist and are complete."""
  if not folder.is_dir():
    return None
  try:
    manifest = sealed_json.read(folder / MANIFEST, 'It is written anew.')
    problem = records.first_problem(folder, manifest['files'])
    if problem is None:
      return manifest
  except errors.DataError as error:
    problem = error
  except (KeyError, TypeError, AttributeError) as error:
    problem = f'{folder / MANIFEST} is of another format: {error!r}'
  logging.warning('Scoring %s again: %s', folder, problem)
  return None
