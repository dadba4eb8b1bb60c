"""Beam pipeline that builds and publishes a federated dataset from raw data.

  blocks --survey--> keys of all valid examples         (Beam, no shuffle)
  keys, config --plan--> client of each example         (here, in memory)
  blocks, plan --fit--> encoding of raw columns         (Beam, if one is fitted)
  blocks, plan --extract, group by shard--> files       (Beam, one shuffle)
  files --manifest, rename, CURRENT--> published

Whole blocks are shuffled, never single examples, and all randomness is a hash
of content and seed. So the output is deterministic: it does not depend on the
runner, the number of workers or their order.
"""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from absl import logging

from pipelines import options
from pipelines.engines import runner
from pipelines.examples import cleaning, distributions, encoding, splits
from pipelines.partitions import plan as partition_plan
from pipelines.publishing import dead_letters, versions
from pipelines.publishing import manifest as manifest_lib
from pipelines.publishing import staging as staging_lib
from pipelines.sources import base
from pipelines.steps import (
  extract,
  fit,
  handover,
  planning,
  raw_copies,
  write,
)
from tff_algos.core import errors
from tff_algos.core.structures import Array
from tff_algos.data import integrity, layout, raw_features
from tff_algos.data import schema as schema_lib
from tff_algos.features import spec as spec_lib


class BuildResult(NamedTuple):
  """Result of a build.

  Attributes:
    path: Folder of the dataset, for `FederatedDataset.open`.
    version: Name of the published version.
    manifest: Its manifest; `manifest['counters']` counts raw and malformed
      examples.
    reused: Whether a complete version existed already, so that nothing was
      built.
    is_current: Whether readers open this version by default (without a date).
    removed: Names of the old versions removed by retention.
  """

  path: pathlib.Path
  version: str
  manifest: dict[str, Any]
  reused: bool
  is_current: bool = True
  removed: tuple[str, ...] = ()


def build(
  config: options.DatasetConfig,
  output_dir: str | pathlib.Path,
  pipeline_options: Sequence[str] = (),
  publication: versions.Publication = versions.Publication(),
) -> BuildResult:
  """Builds and publishes a federated dataset.

  On any failure, including Ctrl-C, the version published before stays current
  and no files are left behind but the dead letters of a refused build.

  Args:
    config: Config of the dataset; raw data may be at an address.
    output_dir: Folder of the dataset. Every worker must see it and the raw
      data under the same paths, unless they hand over files in a store (see
      `runner.find_handover`) and the raw data are at an address.
    pipeline_options: Beam's pipeline options, such as
      `['--direct_num_workers=2']`.
    publication: Date, rebuild and retention of versions.

  Raises:
    ConfigError: If parts of the config are incompatible.
    DataError: If raw data is missing, or too much of it is malformed; or if a
      forced rebuild differs from the existing version.
    PartitionError: If the partition needs more examples than there are.
    InfrastructureError: If the disk is full or read-only, the runner failed, or
      raw files changed meanwhile.
    WorkdirBusyError: If another run is building in the same folder.
  """
  runner.check_flags(pipeline_options)
  dataset = pathlib.Path(output_dir).resolve()
  with raw_copies.held(config) as (local, copies):
    return _build(local, dataset, copies, pipeline_options, publication)


def _build(
  config: options.DatasetConfig,
  dataset: pathlib.Path,
  copies: raw_copies.Copies,
  pipeline_options: Sequence[str],
  publication: versions.Publication,
) -> BuildResult:
  """Builds a dataset whose raw data are on this machine."""
  source = extract.create_source(config)
  schema = _schema_before_fit(config, source)
  spec = _spec_before_fit(config, source)
  split_by = config.splits.split_by
  if source.parts_groups() and split_by in (options.CONTENT, options.CLIENT):
    raise errors.ConfigError(
      f'config.dataset.splits.split_by is {split_by!r}: it would divide the '
      f'words of a text of {config.source.name!r}, and leave out beginnings '
      "that test texts have, too. Set it to 'group', or split by time"
    )
  given = fit.read_given(config.fitted_from, spec)
  partition_plan.check_config(
    config,
    num_sources=schema.num_sources,
    num_classes=schema.num_classes,
    has_test_split=source.has_test_split(),
    y_shape=schema.y_shape,
  )
  fitted_from = given.digest() if given is not None else ''
  described = manifest_lib.describe_recipe(config, source, fitted_from)
  version = manifest_lib.name_version(described)
  address = runner.find_handover(pipeline_options)
  if address is None:  # Workers see the raw data, too.
    copies = ()
  with staging_lib.open_staging(dataset, address) as staging:
    published = _read_published(dataset, version)
    reused = published is not None and not publication.force
    if published is not None and reused:
      manifest = published
    else:
      with dead_letters.kept_if_refused(staging, dataset, version):
        try:
          manifest = _stage_version(
            config,
            staging,
            source,
            schema,
            spec,
            described=described,
            given=given,
            copies=copies,
            pipeline_options=pipeline_options,
          )
        except Exception:
          # What changes between two passes can break the second in any way.
          _check_raw_files(config, described['sources'])
          raise
      if published is None:
        staging_lib.publish(staging, dataset, version)
      else:
        manifest_lib.check_same(published, manifest)
    is_current = versions.announce(staging, dataset, version, publication.as_of)
    removed = ()
    if publication.keep_versions is not None:
      removed = versions.remove_old(
        staging,
        dataset,
        version,
        publication.keep_versions,
        publication.needed,
      )
  return BuildResult(dataset, version, manifest, reused, is_current, removed)


def preview(
  config: options.DatasetConfig,
) -> tuple[schema_lib.Schema, spec_lib.FeatureSpec]:
  """Returns schema and feature spec of a dataset that is not built.

  Raises:
    DataError: If the source needs raw data to know them, or they are learned
      from examples (vocabularies, quantiles).
  """
  source = extract.create_source(config)
  schema = _schema_before_fit(config, source)
  spec = _spec_before_fit(config, source)
  if spec is None:
    recipe = {'source': {'options': source.recipe()}}
    manifest = {
      'schema': schema.to_dict(),
      'recipe': recipe,
      'source_facts': source.facts(),
    }
    return schema, raw_features.of_manifest(manifest)
  if spec.output() is None or spec.features[0].encoding == spec_lib.IDS:
    raise errors.DataError(
      f'source {config.source.name!r}: how many inputs its features '
      f'{", ".join(one.name for one in spec.features)} become is learned from '
      'the examples; build the dataset with binaries.preprocess'
    )
  nothing = np.zeros((0, 0), np.float32)
  return encoding.Fitted(spec, nothing, nothing).stored_as(schema), spec


def _schema_before_fit(
  config: options.DatasetConfig, source: base.Source
) -> schema_lib.Schema:
  """Returns the schema; that of raw columns has no shape before the fit."""
  dists = distributions.build_distributions(
    config.distributions, source, config.seed
  )
  features = _standardize(source.features(), config)._asdict()
  del features['x_range']  # Checked here; the stored schema does not have it.
  return schema_lib.Schema(
    **features,
    source_names=tuple(distribution.name for distribution in dists),
  )


def _spec_before_fit(
  config: options.DatasetConfig, source: base.Source
) -> spec_lib.FeatureSpec | None:
  """Returns the feature spec, with standardized pixels of an image."""
  spec = source.feature_spec()
  if spec is None or spec.features[0].type != spec_lib.IMAGE:
    return spec
  pixels = _standardize(source.features(), config)
  return dataclasses.replace(spec, scale=pixels.x_scale, offset=pixels.x_offset)


def _standardize(
  features: base.Features, config: options.DatasetConfig
) -> base.Features:
  mean, std = config.pixel_mean, config.pixel_std
  if (mean, std) == (0, 1):
    return features
  if features.x_dtype != 'uint8':
    raise errors.ConfigError(
      f'dataset.pixel_mean={mean!r} and pixel_std={std!r} are for sources of '
      f'8-bit images; {config.source.name!r} has {features.x_dtype} features. '
      'Leave both out'
    )
  return features._replace(
    x_scale=features.x_scale / std, x_offset=(features.x_offset - mean) / std
  )


def _stage_version(
  config: options.DatasetConfig,
  staging: staging_lib.Staging,
  source: base.Source,
  schema: schema_lib.Schema,
  spec: spec_lib.FeatureSpec | None,
  *,
  described: Mapping[str, Any],
  given: fit.Given | None,
  copies: raw_copies.Copies,
  pipeline_options: Sequence[str],
) -> dict[str, Any]:
  """Writes all files of a version; returns its manifest."""
  blocks = source.blocks()
  _run(
    blocks,
    'Survey',
    extract.SurveyBlock(config, staging, copies),
    pipeline_options,
  )
  surveys, letters = handover.read_surveys(staging, len(blocks))
  counters = {
    'raw_examples': sum(len(one.key) for one in surveys) + len(letters),
    'dead_letters': len(letters),
  }
  dead_letters.write(staging, letters)
  cleaning.check_dead_letters(
    letters, counters['raw_examples'], config.max_dead_letter_fraction
  )
  survey = planning.join_surveys(surveys)
  if schema.num_classes and not config.keep_unlabelled:
    _check_classes(survey.y, spec.classes if spec is not None else ())
  plan = partition_plan.make_plan(
    survey,
    config,
    schema.source_names,
    num_classes=schema.num_classes,
    has_test_split=source.has_test_split(),
  )
  handover.write_plan(staging, plan, [len(s.key) for s in surveys])
  fitted = None
  if spec is not None:
    measured = blocks if fit.is_measured(spec, given) else ()
    if measured:
      _run(
        measured,
        'Measure',
        fit.MeasureBlock(config, staging, copies),
        pipeline_options,
      )
    fitted = fit.merge(staging, spec, len(measured), plan.client_ids, given)
    handover.write_fitted(staging, fitted)
    schema = fitted.stored_as(schema)
  writer = write.ShardWriter(
    staging, schema, len(plan.client_ids), config.num_shards, config.seed
  )
  _run(
    blocks,
    'Extract',
    extract.ExtractPieces(config, staging, copies),
    pipeline_options,
    write.WriteShard(writer, len(blocks)),
  )
  _check_raw_files(config, described['sources'])
  staging.gather()
  facts = manifest_lib.gather_facts(staging, plan)
  _check_shards(facts, config.num_shards, schema.num_sources)
  manifest_lib.write_clients(
    staging.version / layout.CLIENTS, plan, facts[write.CLIENTS], fitted
  )
  manifest = manifest_lib.build_manifest(
    described,
    schema,
    plan,
    facts,
    folder=staging.version,
    counters=counters | _count_roles(plan, config),
    source_facts=dict(source.facts()),
    **({raw_features.FEATURES: fitted.spec.to_dict()} if fitted else {}),
  )
  manifest_lib.write_manifest(staging.version / layout.MANIFEST, manifest)
  return manifest


def summarize(result: BuildResult) -> str:
  """Returns a summary of a build: version, path, clients, examples."""
  manifest = result.manifest
  clients, examples = manifest['num_clients'], manifest['num_examples']
  counts = ', '.join(
    f'{sum(examples[split].values())} {split}' for split in schema_lib.SPLITS
  )
  counters = manifest['counters']
  unlabelled = clients.get(schema_lib.UNLABELLED)
  copies = counters['left_out_copies_of_test_examples']
  return '\n'.join(
    (
      f'federated dataset {result.version} at {result.path}'
      + (' (was there already)' if result.reused else '')
      + ('' if result.is_current else ' (not current: see --as_of)'),
      f'  clients: {clients[schema_lib.PARTICIPATING]} participating, '
      f'{clients[schema_lib.UNSEEN]} unseen'
      + (f', {unlabelled} without labels' if unlabelled else ''),
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
      f'{counters["dead_letters"]} malformed'
      + (f', {copies} left out as copies of test examples' if copies else ''),
      *_summarize_left_out(manifest),
    )
  )


def _summarize_left_out(manifest: Mapping[str, Any]) -> list[str]:
  """Returns a line on clients that did not pass the filters, if any."""
  planted = manifest.get('planted', {})
  if 'num_clients_left_out' not in planted:
    return []
  return [
    f'  left out by partition.options: {planted["num_clients_left_out"]} '
    f'clients with {planted["num_examples_left_out"]} examples'
  ]


def _read_published(
  dataset: pathlib.Path, version: str
) -> dict[str, Any] | None:
  """Returns the manifest of a version that exists already and is complete."""
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


def _run(
  blocks: Sequence[base.Block],
  name: str,
  step: extract.BlockFn,
  pipeline_options: Sequence[str],
  then: write.WriteShard | None = None,
) -> None:
  """Runs a step on all blocks, and another on what it yields by shard."""
  with runner.run_pipeline(pipeline_options) as pipeline:
    found = (
      pipeline
      | 'Blocks' >> runner.spread(enumerate(blocks))
      | name >> beam.ParDo(step)
    )
    if then is not None:
      _ = (
        found
        | 'GroupByShard' >> beam.GroupByKey()
        | 'WriteShard' >> beam.ParDo(then)
      )


def _check_classes(labels: Array, names: Sequence[str]) -> None:
  """Raises DataError if all examples are of one class."""
  if labels.size and (labels == labels.flat[0]).all():
    label = int(labels.flat[0])
    name = names[label] if names else label
    raise errors.DataError(
      f'all {len(labels)} examples are of one class, {name!r}: there is '
      'nothing to tell apart. Is it the right label column, and does the data '
      'have all classes?'
    )


def _check_raw_files(
  config: options.DatasetConfig, before: Mapping[str, str]
) -> None:
  """Raises InfrastructureError if raw files changed during the build.

  Every step reads them anew: rows that move from one block to another would
  go to other clients than the plan says.

  Args:
    config: The dataset's config.
    before: Checksums that the version is named by.
  """
  try:
    # A new source, as one may keep the files that it has listed.
    after = extract.create_source(config).checksums()
  except errors.DataError as error:
    raise errors.InfrastructureError(
      f'raw files changed during the build: {error}. Nothing was published; '
      'run this again when all of them are there.'
    ) from error
  changed = [
    name
    for name in sorted({*before, *after})
    if before.get(name) != after.get(name)
  ]
  if changed:
    raise errors.InfrastructureError(
      f'raw files changed during the build: {", ".join(changed)}. Nothing was '
      'published; run this again when all of them are there.'
    )


def _check_shards(
  facts: Mapping[str, Sequence[Any]], num_shards: int, num_sources: int
) -> None:
  """Raises InfrastructureError if the runner has lost a whole file."""
  written = (len(facts[write.CLIENTS]), len(facts[layout.HELD_OUT]))
  if written != (num_shards, num_sources):
    raise errors.InfrastructureError(
      f'the engine wrote {written[0]} of {num_shards} shards of clients and '
      f'{written[1]} of {num_sources} of held-out examples. Run this again, '
      'and on another engine if it happens again.'
    )


def _count_roles(
  plan: planning.Plan, config: options.DatasetConfig
) -> dict[str, int]:
  counts = {
    'held_out_raw_examples': int(np.sum(plan.roles == splits.HELD_OUT)),
    'left_out_copies_of_test_examples': int(
      np.sum(plan.roles == splits.UNUSED)
    ),
    'used_by_clients': int(np.sum(plan.owners != planning.NOBODY)),
  }
  if config.splits.is_by_time:
    counts['left_out_by_time_gap'] = int(np.sum(plan.roles == splits.IN_GAP))
  if config.keep_unlabelled:
    counts['left_out_without_label'] = int(
      np.sum(plan.roles == splits.NO_LABEL)
    )
  return counts
