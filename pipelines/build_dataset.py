"""The pipeline: raw data and a config become a published federated dataset.

  blocks --survey--> keys of all sound examples         (Beam, no shuffle)
  keys, config --plan--> who gets which example         (here, in memory)
  blocks, plan --extract, group by shard--> files       (Beam, one shuffle)
  files --manifest, rename, CURRENT--> published

Whole blocks are shuffled, never single examples, and everything random is a
hash of content and seed. So the bytes do not depend on the engine, on the
number of workers or on their order.
"""

import json
import pathlib
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from absl import logging

from pipelines import (
  distributions,
  extract,
  options,
  planning,
  runner,
  splits,
  write,
)
from pipelines import manifest as manifest_lib
from pipelines import staging as staging_lib
from tff_algos.core import errors
from tff_algos.data import integrity, layout
from tff_algos.data import schema as schema_lib

DEAD_LETTERS = 'dead_letters-00000-of-00001.jsonl'


class BuildResult(NamedTuple):
  """What a build made.

  Attributes:
    path: Folder of the dataset, for `FederatedDataset.open`.
    version: Name of the published version.
    manifest: Its manifest; `manifest['counters']` says what became of the raw
      examples.
    reused: Whether the version was there already, whole, so that nothing had
      to be done.
  """

  path: pathlib.Path
  version: str
  manifest: dict[str, Any]
  reused: bool


def build(
  config: options.DatasetConfig,
  output_dir: str | pathlib.Path,
  pipeline_options: Sequence[str] = (),
) -> BuildResult:
  """Builds and publishes a federated dataset.

  On any failure, also Ctrl-C, the version published before stays current and
  nothing else stays behind.

  Args:
    config: What to build.
    output_dir: The dataset's folder; every worker must see it and the raw
      data under the same paths.
    pipeline_options: Beam's own flags, such as `['--direct_num_workers=2']`.

  Raises:
    ConfigError: If parts of the config do not go together.
    DataError: If raw data is missing, or too much of it is malformed.
    PartitionError: If the partition needs more examples than there are.
    WorkdirBusyError: If another run is building in the same folder.
  """
  dataset = pathlib.Path(output_dir).resolve()
  source = extract.create_source(config)
  dists = distributions.build_distributions(
    config.distributions, source, config.seed
  )
  schema = schema_lib.Schema(
    **source.features()._asdict(),
    source_names=tuple(distribution.name for distribution in dists),
  )
  described = manifest_lib.describe_recipe(config, source)
  version = manifest_lib.name_version(described)
  with staging_lib.open_staging(dataset) as staging:
    manifest = _read_published(dataset, version)
    if manifest is not None:
      staging_lib.set_current(staging, dataset, version)
      return BuildResult(dataset, version, manifest, reused=True)
    blocks = list(enumerate(source.blocks()))
    _survey(config, staging, blocks, pipeline_options)
    survey, counters = _read_survey(config, staging, blocks)
    plan = planning.make_plan(
      survey,
      config,
      schema.source_names,
      has_test_split=source.has_test_split(),
    )
    counters |= _count_roles(plan)
    _write_shards(config, staging, blocks, plan, schema, pipeline_options)
    facts = manifest_lib.gather_facts(staging.work)
    manifest_lib.write_clients(
      staging.version / layout.CLIENTS, plan, facts[write.CLIENTS]
    )
    manifest = manifest_lib.build_manifest(
      described,
      schema,
      plan,
      facts,
      staging.version,
      counters=counters,
      source_facts=dict(source.facts()),
    )
    manifest_lib.write_manifest(staging.version / layout.MANIFEST, manifest)
    staging_lib.publish(staging, dataset, version)
  return BuildResult(dataset, version, manifest, reused=False)


def summarize(result: BuildResult) -> str:
  """Returns a few lines that say what was built and where it lies."""
  manifest = result.manifest
  clients, examples = manifest['num_clients'], manifest['num_examples']
  counts = ', '.join(
    f'{sum(examples[split].values())} {split}' for split in schema_lib.SPLITS
  )
  counters = manifest['counters']
  return '\n'.join(
    (
      f'federated dataset {result.version} at {result.path}'
      + (' (was there already)' if result.reused else ''),
      f'  clients: {clients[schema_lib.PARTICIPATING]} participating, '
      f'{clients[schema_lib.UNSEEN]} unseen',
      f'  examples of clients: {counts}',
      '  held-out examples of each source distribution: '
      + ', '.join(
        f'{count} {name}'
        for name, count in zip(
          manifest['schema']['source_names'],
          manifest['num_held_out'],
          strict=True,
        )
      ),
      f'  raw examples: {counters["raw_examples"]} read, '
      f'{counters["dead_letters"]} malformed',
    )
  )


def _read_published(
  dataset: pathlib.Path, version: str
) -> dict[str, Any] | None:
  """Returns the manifest of a version that is there already and whole."""
  folder = layout.version_folder(dataset, version)
  if not folder.is_dir():
    return None
  try:
    manifest = integrity.read_manifest(folder)
    integrity.check_files(folder, manifest, verify=True)
  except errors.DataError as error:
    logging.warning('Building version %s again: %s', version, error)
    return None
  return manifest


def _survey(
  config: options.DatasetConfig,
  staging: staging_lib.Staging,
  blocks: list[extract.NumberedBlock],
  pipeline_options: Sequence[str],
) -> None:
  with runner.run_pipeline(pipeline_options) as pipeline:
    _ = (
      pipeline
      | 'Blocks' >> beam.Create(blocks)
      | 'SpreadBlocks' >> beam.Reshuffle()
      | 'Survey' >> beam.ParDo(extract.SurveyBlock(config, staging))
    )


def _read_survey(
  config: options.DatasetConfig,
  staging: staging_lib.Staging,
  blocks: list[extract.NumberedBlock],
) -> tuple[planning.Survey, dict[str, int]]:
  """Returns the survey and counters; publishes the dead letters.

  Also notes in each block's plan file where the block starts, so that
  `_write_shards` can cut the plan.
  """
  columns = []
  letters: list[str] = []
  for number, _ in blocks:
    with np.load(staging.work / f'survey-{number:05d}') as survey:
      columns.append([survey[name] for name in planning.Survey._fields])
    letters += (staging.work / f'dead-{number:05d}').read_text().splitlines()
  survey = planning.Survey(
    *(np.concatenate(column) for column in zip(*columns, strict=True))
  )
  num_sound, num_dead = len(survey.key), len(letters)
  _check_dead_letters(letters, num_sound + num_dead, config)
  (staging.version / DEAD_LETTERS).write_text(
    ''.join(letter + '\n' for letter in letters)
  )
  return survey, {
    'raw_examples': num_sound + num_dead,
    'dead_letters': num_dead,
  }


def _check_dead_letters(
  letters: list[str], num_raw: int, config: options.DatasetConfig
) -> None:
  """Raises DataError if too many examples are malformed, or all of them."""
  limit = config.max_dead_letter_fraction
  if len(letters) <= limit * num_raw and len(letters) < num_raw:
    return
  decoded = [json.loads(letter) for letter in letters]
  reasons = Counter(letter['reason'] for letter in decoded).most_common(3)
  first = decoded[0] if decoded else {'part': '-', 'position': '-'}
  raise errors.DataError(
    f'{len(letters)} of {num_raw} raw examples are malformed, allowed is a '
    f'fraction of {limit:g}. Most frequent: '
    + '; '.join(f'{reason} ({count})' for reason, count in reasons)
    + f'. The first is number {first["position"]} of {first["part"]!r}. Mend '
    'the raw data, or raise max_dead_letter_fraction to leave them out.'
  )


def _count_roles(plan: planning.Plan) -> dict[str, int]:
  return {
    'held_out_raw_examples': int(np.sum(plan.roles == splits.HELD_OUT)),
    'left_out_copies_of_test_examples': int(
      np.sum(plan.roles == splits.UNUSED)
    ),
    'used_by_clients': int(np.sum(plan.owners != planning.NOBODY)),
  }


def _write_shards(
  config: options.DatasetConfig,
  staging: staging_lib.Staging,
  blocks: list[extract.NumberedBlock],
  plan: planning.Plan,
  schema: schema_lib.Schema,
  pipeline_options: Sequence[str],
) -> None:
  start = 0
  for number, _ in blocks:
    with np.load(staging.work / f'survey-{number:05d}') as survey:
      stop = start + len(survey['key'])
    with open(staging.work / f'plan-{number:05d}', 'wb') as file:
      np.savez(
        file,
        roles=plan.roles[start:stop],
        owners=plan.owners[:, start:stop],
        start=start,
        num_clients=len(plan.client_ids),
      )
    start = stop
  writer = write.ShardWriter(
    staging, schema, len(plan.client_ids), config.num_shards, config.seed
  )
  with runner.run_pipeline(pipeline_options) as pipeline:
    _ = (
      pipeline
      | 'Blocks' >> beam.Create(blocks)
      | 'SpreadBlocks' >> beam.Reshuffle()
      | 'Extract' >> beam.ParDo(extract.ExtractPieces(config, staging))
      | 'WriteShards' >> write.WriteShards(writer)
    )
