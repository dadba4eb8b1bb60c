"""Beam pipeline that scores a federated dataset with exported models.

  shards --choose a model for each client--> requests
  requests --RunInference--> answers, grouped by shard --> Parquet files
  files --_predictions.json, rename, CURRENT--> published

Each client is scored separately, so the output does not depend on the runner or
the number of workers.
"""

import pathlib
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.ml.inference import base

from pipelines.engines import failures, runner
from pipelines.publishing import manifest as manifest_lib
from pipelines.publishing import published
from pipelines.publishing import staging as staging_lib
from pipelines.scoring import bundles as bundles_lib
from pipelines.scoring import model_choice, predictions
from tff_algos.core import errors
from tff_algos.data import dataset as dataset_lib
from tff_algos.data import layout
from tff_algos.data import schema as schema_lib


class ScoreResult(NamedTuple):
  """Result of batch inference.

  Attributes:
    folder: Folder of the published predictions.
    manifest: Their `_predictions.json`.
    reused: Whether complete predictions existed already.
  """

  folder: pathlib.Path
  manifest: dict[str, Any]
  reused: bool


def score(
  dataset: str | pathlib.Path,
  export: pathlib.Path,
  output_dir: pathlib.Path,
  config: model_choice.ScoringConfig,
  *,
  assignments: Mapping[str, int] | None = None,
  pipeline_options: Sequence[str] = (),
) -> ScoreResult:
  """Scores a dataset and publishes the predictions.

  On any failure, including Ctrl-C, the predictions published before stay
  current and no other files are left behind.

  Args:
    dataset: Folder of the dataset, or its address.
    export: Folder of the exported models.
    output_dir: Output folder, not that of the dataset. Every worker must see
      all three folders under the same paths, unless they hand over files in a
      store (see `runner.find_handover`), and the dataset is at an address.
    config: Split, clients and model selection.
    assignments: Clusters assigned to some clients, see `model_choice`.
    pipeline_options: Beam's pipeline options.

  Raises:
    ConfigError: If the settings contradict each other, an example has several
      labels, or workers cannot read the dataset.
    DataError: If the dataset is missing or damaged, no client has an example to
      score, or one of them has no model.
    ExportError: If the models are missing, damaged or do not fit the examples.
    InfrastructureError: If the Beam runner lost clients.
    WorkdirBusyError: If another run is writing to the same folder.
  """
  runner.check_flags(pipeline_options)
  output_dir = output_dir.resolve()
  assignments = assignments or {}
  if output_dir == pathlib.Path(dataset).resolve():
    raise errors.ConfigError(
      f'predictions cannot be published into the dataset itself, {dataset}; '
      'choose another output folder'
    )
  handover = runner.find_handover(pipeline_options)
  with dataset_lib.FederatedDataset.open(dataset) as opened:
    if handover is not None and opened.address is None:
      raise errors.ConfigError(
        f'workers that hand over files at {handover} do not see {dataset}; '
        'give the address of the dataset (--dataset=s3://bucket/run), or leave '
        '--temp_location out if they see all folders'
      )
    if opened.schema.y_shape:
      raise errors.ConfigError(
        f'an example of {dataset} has a label at each of '
        f'{opened.schema.y_shape[0]} places, and predictions have one an '
        'example; request them of a model server'
      )
    found = bundles_lib.find(
      export.resolve(), config, assignments, opened.schema, opened.feature_spec
    )
    num_clients = _check_choices(
      opened,
      config,
      bundles_lib.client_ids(found),
      assignments,
    )
    scorer = Scorer(
      published.Reader.of(opened),
      tuple(found),
      config,
      assignments,
      num_clients,
    )
    described = predictions.describe(
      opened.manifest, found, config, assignments
    )
    return _publish(scorer, output_dir, described, handover, pipeline_options)


def _publish(
  scorer: 'Scorer',
  output_dir: pathlib.Path,
  described: Mapping[str, Any],
  handover: str | None,
  pipeline_options: Sequence[str],
) -> ScoreResult:
  """Scores and publishes, unless the predictions exist already."""
  version = manifest_lib.name_version(described)
  folder = layout.version_folder(output_dir, version)
  pointer = output_dir / layout.CURRENT
  with staging_lib.open_staging(output_dir, handover) as staging:
    manifest = predictions.read_published(folder)
    if manifest is not None:
      staging_lib.write_pointer(staging, pointer, version)
      return ScoreResult(folder, manifest, reused=True)
    found = tuple(
      bundle._replace(folder=staging.share(bundle.folder, bundle.model))
      for bundle in scorer.found
    )
    try:
      _run(scorer._replace(found=found), staging, pipeline_options)
    finally:
      bundles_lib.forget_loaded()
    staging.gather()
    manifest = predictions.write_manifest(staging, described, version)
    if manifest['counts']['clients'] != scorer.num_clients:
      raise errors.InfrastructureError(
        f'the engine lost clients: {manifest["counts"]["clients"]} of '
        f'{scorer.num_clients} came back scored. Nothing was published; try '
        'again, or with other beam_options.'
      )
    staging_lib.publish(staging, output_dir, version)
    staging_lib.write_pointer(staging, pointer, version)
  return ScoreResult(folder, manifest, reused=False)


def summarize(result: ScoreResult) -> str:
  """Returns a summary: path, examples, models and score."""
  counts = result.manifest['counts']
  clients = ', '.join(
    f'{count} by {name.removeprefix("clients_by_")}'
    for name, count in counts.items()
    if name.startswith('clients_by_') and count
  )
  lines = [
    f'predictions at {result.folder}'
    + (' (were there already)' if result.reused else ''),
    f'  examples: {counts["examples"]} of {counts["clients"]} clients',
    f'  models chosen: {clients}',
  ]
  if 'accuracy' in result.manifest:
    lines.append(f'  accuracy: {result.manifest["accuracy"]:.4f}')
  elif 'mean_squared_error' in result.manifest:
    mse = result.manifest['mean_squared_error']
    lines.append(f'  mean squared error: {mse:.4g}')
  return '\n'.join(lines)


def _check_choices(
  dataset: dataset_lib.FederatedDataset,
  config: model_choice.ScoringConfig,
  known: frozenset[str],
  assignments: Mapping[str, int],
) -> int:
  """Returns the number of clients to score.

  Raises:
    DataError: If one of them has no model, or there is none.
  """
  num_clients = 0
  ids = {
    schema_lib.PARTICIPATING: dataset.client_ids,
    schema_lib.UNSEEN: dataset.unseen_client_ids,
    schema_lib.UNLABELLED: dataset.unlabelled_client_ids,
  }
  for group, client_ids in ids.items():
    if config.group not in (group, model_choice.ALL_CLIENTS):
      continue
    for client_id, n, num_labelled in zip(
      client_ids,
      dataset.num_examples(config.split, group),
      dataset.num_examples(config.pick_split, group),
      strict=True,
    ):
      if not n:
        continue
      num_clients += 1
      choice = model_choice.choose(client_id, config, known, assignments)
      if choice.cluster_id == model_choice.TO_BE_PICKED and not num_labelled:
        raise errors.DataError(
          f'client {client_id[:100]!r} has no {config.pick_split} examples to '
          'pick a cluster by; choose another pick_split, assign it a cluster, '
          "or use otherwise='cluster_<id>'."
        )
  if not num_clients:
    raise errors.DataError(
      f'no client of group={config.group!r} has examples of split='
      f'{config.split!r} to score; choose another group or split'
    )
  return num_clients


class Scorer(NamedTuple):
  """Parameters of the pipeline's steps.

  Attributes:
    reader: Reader of the dataset.
    found: Exported bundles.
    config: Split, clients and model selection.
    assignments: Clusters assigned to some clients.
    num_clients: Number of clients to score.
  """

  reader: published.Reader
  found: tuple[bundles_lib.Bundle, ...]
  config: model_choice.ScoringConfig
  assignments: Mapping[str, int]
  num_clients: int


class ReadClients(beam.DoFn):
  """DoFn: shard number -> [((shard, client), request to a model)]."""

  def __init__(self, scorer: Scorer, staging: staging_lib.Staging) -> None:
    self._scorer = scorer
    self._staging = staging

  def setup(self) -> None:
    """Reads which clients have a model; many, and so not sent to workers."""
    with failures.carried():
      self._known = bundles_lib.client_ids(
        self._scorer.found, self._staging.read
      )

  def process(
    self, shard: int
  ) -> Iterator[list[tuple[tuple[int, published.Client], bundles_lib.Request]]]:
    """Yields a batch of one for each non-empty client of the shard."""
    with failures.carried():
      config, dataset = self._scorer.config, self._scorer.reader.dataset
      for client in self._scorer.reader.clients(shard):
        if config.group not in (client.group, model_choice.ALL_CLIENTS):
          continue
        examples = dataset.examples(client.client_id, config.split)
        if not examples.num_examples:
          continue
        choice = model_choice.choose(
          client.client_id, config, self._known, self._scorer.assignments
        )
        request = bundles_lib.Request(
          client.client_id, choice, examples.x, examples.y
        )
        if choice.cluster_id == model_choice.TO_BE_PICKED:
          labelled = dataset.examples(client.client_id, config.pick_split)
          request = request._replace(pick_x=labelled.x, pick_y=labelled.y)
        yield [((shard, client), request)]


def _collect(
  keyed: tuple[tuple[int, published.Client], base.PredictionResult],
) -> tuple[int, predictions.ScoredClient]:
  """Returns the shard and the predictions of a model's outputs."""
  (shard, client), result = keyed
  request = typing.cast(bundles_lib.Request, result.example)
  answer = typing.cast(bundles_lib.Answer, result.inference)
  choice = request.choice
  probability = None
  if 'class_id' in answer.outputs:
    prediction = answer.outputs['class_id']
    rows = np.arange(len(prediction))
    probability = answer.outputs['probabilities'][rows, prediction]
  else:
    prediction = answer.outputs['prediction']
  return shard, predictions.ScoredClient(
    client.position,
    client.client_id,
    client.group,
    choice.model,
    answer.cluster_id,
    choice.chosen_by,
    request.y,
    prediction,
    probability,
  )


def _run(
  scorer: Scorer,
  staging: staging_lib.Staging,
  pipeline_options: Sequence[str],
) -> None:
  handler = base.KeyedModelHandler(
    bundles_lib.BundleHandler(scorer.found, scorer.config.max_rows, staging)
  ).with_no_batching()
  num_shards = scorer.reader.dataset.manifest['num_shards']
  num_classes = scorer.reader.dataset.schema.num_classes
  with runner.run_pipeline(pipeline_options) as pipeline:
    shards = pipeline | 'Shards' >> runner.spread(range(num_shards))
    # Shards without examples to score are written as well.
    all_shards = shards | 'Mark' >> beam.Map(_mark)
    scored = (
      shards
      | 'ReadClients' >> beam.ParDo(ReadClients(scorer, staging))
      | 'RunInference' >> base.RunInference(handler)
      | 'CollectAnswers' >> beam.Map(_collect)
    )
    _ = (
      (all_shards, scored)
      | beam.Flatten()
      | 'GroupByShard' >> beam.GroupByKey()
      | 'WriteShard'
      >> beam.ParDo(predictions.WriteShard(staging, num_shards, num_classes))
    )


def _mark(shard: int) -> tuple[int, None]:
  return shard, None
