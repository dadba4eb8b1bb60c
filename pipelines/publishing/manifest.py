"""Metadata of a dataset version: its name, manifest and client table."""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow
from pyarrow import parquet

from pipelines import options
from pipelines.examples import encoding
from pipelines.publishing import staging as staging_lib
from pipelines.sources import base
from pipelines.steps import planning, write
from tff_algos.core import config as config_lib
from tff_algos.core import errors, records, sealed_json
from tff_algos.data import layout, raw_features
from tff_algos.data import schema as schema_lib

# Hashed into every version's name. To be raised when the output for the same
# recipe and raw data changes.
CODE_VERSION = 7
# The same for the dead letters alone.
DEAD_LETTER_VERSION = 6


def describe_recipe(
  config: options.DatasetConfig,
  source: base.Source,
  fitted_from: str = '',
) -> dict[str, Any]:
  """Returns the inputs that determine a version's content, without paths.

  Args:
    config: Config of the dataset.
    source: Its source.
    fitted_from: Hash of what is taken over of the dataset that
      `config.fitted_from` names; '' without one.
  """
  recipe = config_lib.to_recipe(config)
  recipe['source']['options'] = dict(source.recipe())
  if fitted_from:
    recipe['fitted_from'] = fitted_from
  described = {
    'recipe': recipe,
    'sources': dict(source.checksums()),
    'schema_version': schema_lib.SCHEMA_VERSION,
    'code_version': CODE_VERSION,
  }
  if config.max_dead_letter_fraction:  # Else no version has any.
    described['dead_letter_version'] = DEAD_LETTER_VERSION
  return described


def name_version(described: Mapping[str, Any]) -> str:
  """Returns the name of a version: a hash of its recipe, 16 hex digits."""
  return config_lib.config_hash(described)


def gather_facts(
  staging: staging_lib.Staging, plan: planning.Plan
) -> dict[str, list[dict[str, Any]]]:
  """Returns the facts of the shard writers: kind -> facts by shard.

  Shared test examples are in no shard and are counted here.
  """
  facts = {
    kind: [json.loads(staging.read(path)) for path in staging.find(f'{kind}-')]
    for kind in (write.CLIENTS, layout.HELD_OUT)
  }
  if plan.shared_test is not None:
    shards = facts[write.CLIENTS]
    for number, shard in enumerate(shards):
      clients = planning.clients_of(number, len(plan.client_ids), len(shards))
      histogram = plan.shared_test[clients.start : clients.stop]
      shard['counts'][schema_lib.TEST] = histogram.sum(axis=1).tolist()
      shard['label_histogram'][schema_lib.TEST] = histogram.tolist()
  return facts


def check_same(published: Mapping[str, Any], built: Mapping[str, Any]) -> None:
  """Checks that a rebuilt version equals the published one.

  Raises:
    DataError: If they differ: a published version is immutable.
  """
  if published['checksum'] == built['checksum']:
    return
  different = [
    key
    for key in sorted({*published, *built} - {'checksum'})
    if published.get(key) != built.get(key)
  ]
  raise errors.DataError(
    f'version {published["version"]} came out different when it was built '
    f'again by force ({", ".join(different)}), and a published version never '
    'changes. Is the code another one? Then raise CODE_VERSION in '
    "pipelines/publishing/manifest.py, or remove the version's folder first."
  )


def write_clients(
  path: pathlib.Path,
  plan: planning.Plan,
  shards: Sequence[Mapping[str, Any]],
  fitted: encoding.Fitted | None = None,
) -> None:
  """Writes the client table: one row per client, in the plan's order."""
  num_clients, num_shards = len(plan.client_ids), len(shards)
  members = [
    planning.clients_of(shard, num_clients, num_shards)
    for shard in range(num_shards)
  ]
  mixtures = [None] * num_clients
  if plan.mixtures is not None:
    mixtures = plan.mixtures.tolist()
  columns = {
    'client_id': pyarrow.array(plan.client_ids, pyarrow.string()),
    'group': pyarrow.array(plan.groups, pyarrow.string()),
    'shard': pyarrow.array(
      [s for s, clients in enumerate(members) for _ in clients],
      pyarrow.int32(),
    ),
    'position': pyarrow.array(
      [p for clients in members for p in range(len(clients))], pyarrow.int32()
    ),
    'mixture': pyarrow.array(mixtures, pyarrow.list_(pyarrow.float64())),
  }
  columns |= _planted_columns(plan.planted)
  if fitted is not None and fitted.spec.by_client:
    kind = pyarrow.list_(pyarrow.float32())
    for name, values in (
      (raw_features.CLIENT_MEAN, fitted.client_mean),
      (raw_features.CLIENT_DEVIATION, fitted.client_deviation),
    ):
      columns[name] = pyarrow.array(values.tolist(), kind)
  for split in schema_lib.SPLITS:
    columns[f'num_{split}_examples'] = pyarrow.array(
      _joined(shards, 'counts', split), pyarrow.int64()
    )
    columns[f'{split}_label_histogram'] = pyarrow.array(
      _joined(shards, 'label_histogram', split), pyarrow.list_(pyarrow.int64())
    )
  parquet.write_table(pyarrow.table(columns), path)


def _planted_columns(planted: planning.Planted) -> dict[str, pyarrow.Array]:
  """Returns the columns of the ground truth; empty without any."""
  columns = {}
  if planted.clusters is not None:
    columns['cluster_id'] = pyarrow.array(
      planted.clusters.tolist(), pyarrow.int32()
    )
  if planted.label_mixtures is not None:
    columns['label_mixture'] = pyarrow.array(
      planted.label_mixtures.tolist(), pyarrow.list_(pyarrow.float64())
    )
  return columns


def build_manifest(
  described: Mapping[str, Any],
  schema: schema_lib.Schema,
  plan: planning.Plan,
  facts: Mapping[str, Sequence[Mapping[str, Any]]],
  *,
  folder: pathlib.Path,
  **more: Any,
) -> dict[str, Any]:
  """Returns the manifest of a version, after its other files are written.

  Args:
    described: Result of `describe_recipe`.
    schema: The dataset's schema.
    plan: Assignment of examples to clients.
    facts: Result of `gather_facts`.
    folder: Folder of the version.
    **more: Further entries.
  """
  shards = facts[write.CLIENTS]
  held_out = facts[layout.HELD_OUT]
  manifest = {
    **described,
    'version': name_version(described),
    'schema': schema.to_dict(),
    'num_shards': len(shards),
    'num_clients': {group: plan.groups.count(group) for group in _groups(plan)},
    'num_examples': {
      split: _count_by_group(plan, _joined(shards, 'counts', split))
      for split in schema_lib.SPLITS
    },
    'num_held_out': _joined(held_out, 'counts', layout.HELD_OUT),
    'label_histogram': {
      split: np.sum(
        _joined(shards, 'label_histogram', split), axis=0, dtype=np.int64
      ).tolist()
      for split in schema_lib.SPLITS
    },
    'held_out_label_histogram': _joined(
      held_out, 'label_histogram', layout.HELD_OUT
    ),
    'files': _list_files(folder, (*shards, *held_out)),
    **_planted_entries(plan),
    **more,
  }
  return sealed_json.seal(manifest)


def _planted_entries(plan: planning.Plan) -> dict[str, Any]:
  """Returns the entries of the ground truth; empty without any."""
  entries: dict[str, Any] = {}
  if plan.planted.facts:
    entries['planted'] = dict(plan.planted.facts)
  if plan.shared_test is not None:
    entries['shared_test'] = schema_lib.SHARED_BY_CLASS
  return entries


def _list_files(
  folder: pathlib.Path, shards: Sequence[Mapping[str, Any]]
) -> dict[str, Mapping[str, Any]]:
  """Returns size and SHA-256 of all files by name, from the shards' facts."""
  known = {name: entry for s in shards for name, entry in s['files'].items()}
  return {
    path.name: known.get(path.name) or records.describe_file(path)
    for path in folder.iterdir()
  }


def _groups(plan: planning.Plan) -> tuple[str, ...]:
  """Returns the groups of clients; unlabelled ones only if there are any."""
  if schema_lib.UNLABELLED in plan.groups:
    return (*schema_lib.GROUPS, schema_lib.UNLABELLED)
  return schema_lib.GROUPS


def _count_by_group(
  plan: planning.Plan, counts: Sequence[int]
) -> dict[str, int]:
  totals: dict[str, int] = dict.fromkeys(_groups(plan), 0)
  for group, count in zip(plan.groups, counts, strict=True):
    totals[group] += count
  return totals


def write_manifest(path: pathlib.Path, manifest: Mapping[str, Any]) -> None:
  """Writes a manifest, deterministically."""
  path.write_text(json.dumps(manifest, indent=2, sort_keys=True) + '\n')


def _joined(
  shards: Sequence[Mapping[str, Any]], fact: str, split: str
) -> list[Any]:
  return [value for shard in shards for value in shard[fact][split]]
