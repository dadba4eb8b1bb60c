"""Export of the trained models of an experiment as SavedModel bundles."""

import os
import pathlib
from typing import Any

import numpy as np

from tff_algos.core import errors
from tff_algos.data import dataset as dataset_lib
from tff_algos.data import schema
from tff_algos.experiments import experiment, runtime_cache, session
from tff_algos.experiments.production import lineage
from tff_algos.experiments.tracking import runs as tracking
from tff_algos.export import (
  client_states,
  cluster_models,
  manifest,
  personalized_models,
  raw_signatures,
  releases,
  tflite_models,
)
from tff_algos.training import checkpoint

_NUM_SAMPLES = 8


def export_path(
  folder: str | os.PathLike[str],
  export_dir: str | os.PathLike[str] | None,
) -> pathlib.Path:
  """Returns the export path of a workdir: its own, unless one is named."""
  return pathlib.Path(export_dir or pathlib.Path(folder, 'export'))


def export(
  config: experiment.ExperimentConfig,
  folder: str | os.PathLike[str],
  round_choice: int | str = checkpoint.LAST,
  client_id: str | None = None,
  export_dir: str | os.PathLike[str] | None = None,
  keep_versions: int | None = None,
  kept: runtime_cache.KeptRuntime | None = None,
) -> list[pathlib.Path]:
  """Exports one checkpoint as the next version, without a gate.

  Args:
    config: The experiment.
    folder: Its workdir.
    round_choice: As of `CheckpointManager.find`.
    client_id: Exports the model of this client alone, with versions of its own.
    export_dir: Export path; `<folder>/export` by default.
    keep_versions: Number of versions to keep; None for all.
    kept: As of `session.open_session`.

  Returns:
    The folders of the bundles.

  Raises:
    UserError: If there is no such checkpoint or client, or a bundle cannot be
      written or does not read back.
  """
  target = export_path(folder, export_dir)
  with session.open_session(config, folder, kept=kept) as opened:
    chosen, server_state = opened.restore(round_choice)
    if client_id is not None:
      return [_export_client(opened, target, chosen, server_state, client_id)]
    entry, facts = lineage.of_release(
      config, folder, target, opened.dataset, chosen, gated=False
    )
    with (
      releases.opened(target, keep_versions=keep_versions) as path,
      path.unreleased() as hidden,
    ):
      bundles = write_bundles(opened, chosen, server_state, hidden)
      published = path.release(bundles, entry, facts)
  tracking.register(config, folder, list(published.values()))
  return list(published.values())


def export_tflite(
  config: experiment.ExperimentConfig,
  folder: str | os.PathLike[str],
  output: str | os.PathLike[str],
  round_choice: int | str = checkpoint.LAST,
) -> pathlib.Path:
  """Exports one checkpoint as TFLite files, without a gate.

  Args:
    config: The experiment.
    folder: Its workdir.
    output: Folder of all versions of these files.
    round_choice: As of `CheckpointManager.find`.

  Returns:
    The folder of the files, `<output>/<version>`.

  Raises:
    UserError: If there is no such checkpoint, or a model cannot be converted or
      written.
  """
  with session.open_session(config, folder) as opened:
    chosen, server_state = opened.restore(round_choice)
    ids = opened.source.population.client_ids
    return tflite_models.export_tflite_models(
      output,
      opened.algorithm,
      server_state,
      ids,
      opened.store.load,
      choose_samples(opened.dataset),
      _provenance(opened, chosen),
    )


def write_bundles(
  opened: session.Session,
  round_num: int,
  server_state: Any,
  output: pathlib.Path,
) -> dict[str, pathlib.Path]:
  """Writes the bundles of a restored checkpoint under a folder.

  The same checkpoint gives the same bytes.

  Args:
    opened: Session, whose store holds the client states.
    round_num: Round of the checkpoint.
    server_state: Its server state.
    output: Folder of the models; each gets its next version there.

  Returns:
    Model -> folder of its bundle, for all `releases.MODELS`.

  Raises:
    NonFiniteError: If weights or predictions are NaN or infinite.
    ExportError: If a bundle cannot be written or does not read back.
  """
  ids = opened.source.population.client_ids
  samples = choose_samples(opened.dataset)
  provenance = _provenance(opened, round_num)
  clusters, personalized = (output / model for model in releases.MODELS)
  return {
    clusters.name: cluster_models.export_cluster_models(
      clusters,
      opened.algorithm,
      server_state,
      samples,
      provenance,
      _features(opened, ()),
    ),
    personalized.name: personalized_models.export_personalized_models(
      personalized,
      opened.algorithm,
      server_state,
      ids,
      opened.store.load,
      samples,
      provenance,
      _features(opened, ids),
    ),
  }


def choose_samples(dataset: dataset_lib.FederatedDataset) -> np.ndarray:
  """Returns features of a few examples to test a bundle with.

  Held-out examples, or training examples of a client if none are held out.
  """
  held_out = dataset.held_out(0)
  if held_out.num_examples:
    return held_out.x[:_NUM_SAMPLES]
  largest = int(np.argmax(dataset.num_examples(schema.TRAIN)))
  client_id = dataset.client_ids[largest]
  return dataset.examples(client_id, schema.TRAIN).x[:_NUM_SAMPLES]


def _provenance(opened: session.Session, round_num: int) -> manifest.Provenance:
  return manifest.Provenance(
    experiment.config_hash(opened.config), round_num, opened.dataset.version
  )


def _features(
  opened: session.Session, client_ids: tuple[str, ...]
) -> raw_signatures.Features:
  """Returns the raw data of a bundle that serves these clients by id."""
  statistics = opened.dataset.client_statistics(client_ids) or (None, None)
  return raw_signatures.Features(opened.dataset.feature_spec, *statistics)


def _export_client(opened, target, round_num, server_state, client_id):
  ids = opened.source.population.client_ids
  if client_id not in ids:
    raise errors.ExportError(
      f'unknown client id {client_id!r}; the data set has {len(ids)} '
      f'{schema.PARTICIPATING} clients, such as {ids[0]!r}'
    )
  index = ids.index(client_id)
  return personalized_models.export_client_model(
    target / personalized_models.client_name(client_id),
    opened.algorithm,
    server_state,
    client_id=client_id,
    client_index=index,
    client_state=client_states.state_of(opened.store.load, index),
    sample_inputs=choose_samples(opened.dataset),
    provenance=_provenance(opened, round_num),
    features=_features(opened, (client_id,)),
  )
