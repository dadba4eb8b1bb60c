"""Release of a gated candidate as the next version of an export path."""

import os
import pathlib

from absl import logging

from tff_algos.core import config as config_lib
from tff_algos.core import errors
from tff_algos.experiments import experiment, exporting
from tff_algos.experiments.production import gate_record, gating, lineage
from tff_algos.experiments.tracking import runs as tracking
from tff_algos.export import labels, releases
from tff_algos.training import checkpoint


def release(
  config: experiment.ExperimentConfig,
  folder: str | os.PathLike[str],
  export_dir: str | os.PathLike[str] | None = None,
  round_choice: int | str | None = None,
  keep_versions: int | None = None,
) -> releases.Release:
  """Publishes the files of the candidate that the gate has blessed.

  Nothing is published if they were released before.

  Args:
    config: The experiment.
    folder: Its workdir, with `gate.json` and `candidate/`.
    export_dir: Export path; `<folder>/export` by default.
    round_choice: Round that the gate must have blessed, as of
      `CheckpointManager.find`; None for any.
    keep_versions: Number of versions to keep; None for all.

  Returns:
    The release, which is not the current one if others came later.

  Raises:
    ExportError: If the gate was not asked, or its record is stale: of another
      round, config or champion, or of other files.
    NotApprovedError: If the gate refused the candidate.
  """
  target = exporting.export_path(folder, export_dir)
  if isinstance(round_choice, str):
    manager = checkpoint.reader(folder)
    round_choice = manager.find(round_choice)
  record = _read_record(config, folder, round_choice)
  gate_record.require_blessed(record)
  if gating.candidate_sha256(folder) != record.candidate:
    raise _stale(folder, 'the candidate was exported again since')
  with experiment.open_dataset(folder) as dataset:
    if dataset.version != record.dataset_version:
      raise _stale(folder, f'the dataset is now {dataset.version}')
    entry, facts = lineage.of_release(
      config, folder, target, dataset, record.round_num, gated=True
    )
  with releases.opened(target, keep_versions=keep_versions) as path:
    found = gating.find_release(record, target)
    if found is None:
      if record.thresholds != config_lib.to_dict(config.gate):
        raise _stale(folder, 'config.gate has other thresholds now')
      _check_champion(record, folder, target)
      candidate = gating.candidate_folder(folder)
      path.release(
        {model: candidate / model / '1' for model in releases.MODELS},
        entry,
        facts,
      )
      found = path.history[-1]
      _warn_of_canaries(target)
    if found.version != path.history[-1].version:
      logging.info(
        'The candidate was released as version %d; version %d is current. '
        'binaries.rollback makes an older one current again.',
        found.version,
        path.history[-1].version,
      )
    elif not lineage.has_release(folder, target, found.version):
      # Lineage is written last: a tracker that failed is asked again.
      bundles = [target / model / str(found.version) for model in found.bundles]
      tracking.register(config, folder, bundles)
  lineage.write(config, folder, target)
  return found


def _warn_of_canaries(target: pathlib.Path) -> None:
  """Warns of models whose requests do not go to the newest version."""
  try:
    found = labels.read(target)
  except errors.ExportError as error:  # It is released nevertheless.
    logging.warning('%s', error)
    return
  for model, one in found.items():
    if one.canary_share is not None:
      logging.warning(
        'Requests to %s that name no version are answered by the labelled '
        'ones, %s, until binaries.label changes that.',
        model,
        ', '.join(f'{name}={value}' for name, value in one.versions.items()),
      )


def _check_champion(
  record: gate_record.GateRecord,
  folder: str | os.PathLike[str],
  target: pathlib.Path,
) -> None:
  """Raises ExportError if another version is current than the gate found."""
  if record.ignored_champion is not None:
    if gating.current_version(target) != record.ignored_version:
      raise _stale(
        folder,
        f'it ignored version {record.ignored_version}, which is not the '
        'current one',
      )
  elif gating.champion_sha256(target) != record.champion:
    raise _stale(
      folder,
      f'it was compared with version {record.champion_version}, which is not '
      'the current one'
      if record.champion
      else 'it was compared with no champion, and now there is one',
    )


def _read_record(
  config: experiment.ExperimentConfig,
  folder: str | os.PathLike[str],
  round_num: int | None,
) -> gate_record.GateRecord:
  record = gate_record.read(folder)
  if record is None:
    raise errors.ExportError(
      f'{folder} has no {gate_record.FILE}: run binaries.gate first, or export '
      'without it: --nogate'
    )
  if round_num is not None and record.round_num != round_num:
    raise _stale(folder, f'it is of round {record.round_num}, not {round_num}')
  config_hash = experiment.unpublished_hash(config)
  if record.config_hash != config_hash:
    raise _stale(
      folder, f'it is of config {record.config_hash}, not {config_hash}'
    )
  return record


def _stale(folder: str | os.PathLike[str], why: str) -> errors.ExportError:
  return errors.ExportError(
    f'{os.path.join(folder, gate_record.FILE)} is stale: {why}. Run '
    'binaries.gate again.'
  )
