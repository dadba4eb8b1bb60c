"""Gate between a trained run and its release: candidate against champion.

The candidate is a round of the run, exported to `<workdir>/candidate`; the
champion is the current version of the export path. Both are scored from their
bundles on the run's dataset. A group of clients refuses the candidate if the
hypothesis that its fall is at most its threshold is rejected: if the one-sided
lower confidence bound of the fall, by a paired bootstrap over clients, is above
the threshold. The level is divided by the number of groups that can refuse
(Bonferroni), so that all of them together refuse a candidate without such a
fall with a probability of about 1 - confidence.
"""

import dataclasses
import functools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from absl import logging

from pipelines.scoring import bundles
from tff_algos.core import config as config_lib
from tff_algos.core import errors, seeds
from tff_algos.core import model as model_lib
from tff_algos.core.structures import Array
from tff_algos.data import dataset as dataset_lib
from tff_algos.data import schema
from tff_algos.evaluation import paired_falls, summaries
from tff_algos.experiments import experiment, exporting, session
from tff_algos.experiments.production import (
  gate_config,
  gate_record,
  gate_scores,
)
from tff_algos.export import manifest, plain_prediction, releases
from tff_algos.training import checkpoint

_PLAIN_SECONDS = 600
# Signals by which others end a process; a bundle may be the reason of the rest.
_KILLS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

PASSED, REFUSED, TOO_SMALL = 'passed', 'refused', 'too small'
_FINITE = 'finite weights and predictions'
_FINITE_SCORES = 'finite scores'
_SIGNATURES = 'signatures of the champion'
_PLAIN = 'loads in plain TensorFlow'
_IN_TIME = 'predicts in time'


class _Units(NamedTuple):
  """Paired scores of a group.

  Attributes:
    name: Name of the group.
    champion: Score of each unit, `[num_units]`.
    candidate: The same of the candidate.
    threshold: Largest tolerated fall.
    statistic: Statistic that is compared.
  """

  name: str
  champion: Array
  candidate: Array
  threshold: float
  statistic: paired_falls.Statistic = paired_falls.mean


def candidate_folder(folder: str | os.PathLike[str]) -> pathlib.Path:
  """Returns the folder of a run's candidate."""
  return pathlib.Path(folder, 'candidate')


def gate(
  config: experiment.ExperimentConfig,
  folder: str | os.PathLike[str],
  export_dir: str | os.PathLike[str] | None = None,
  round_choice: int | str = checkpoint.LAST,
) -> gate_record.GateRecord:
  """Compares a round with the exported models, and writes `gate.json`.

  A record that still holds is returned as it is: of the same round, config,
  dataset and candidate, and of a candidate that was released since, or of the
  same thresholds and the current champion.

  Args:
    config: The experiment; its section `gate` has the thresholds.
    folder: Its workdir.
    export_dir: Export path; `<folder>/export` by default.
    round_choice: As of `CheckpointManager.find`.

  Returns:
    The record, blessed or not.

  Raises:
    UserError: If there is no such checkpoint, a bundle cannot be written, or
      the champion cannot be loaded.
  """
  target = exporting.export_path(folder, export_dir)
  releases.repair(target)
  with session.open_session(config, folder) as opened:
    chosen, server_state = opened.restore(round_choice)
    record = gate_record.GateRecord(
      blessed=False,
      reasons=(),
      round_num=chosen,
      config_hash=experiment.unpublished_hash(config),
      dataset_version=opened.dataset.version,
      candidate={},
      champion={},
      score=opened.algorithm.cluster_model.score_name,
      thresholds=config_lib.to_dict(config.gate),
    )
    kept = gate_record.read(folder)
    if kept is not None and _still_holds(kept, record, folder, target):
      return kept
    pathlib.Path(folder, gate_record.FILE).unlink(missing_ok=True)
    candidate = candidate_folder(folder)
    if candidate.exists():
      shutil.rmtree(candidate)
    try:
      exporting.write_bundles(opened, chosen, server_state, candidate)
    except errors.NonFiniteError as error:
      record = dataclasses.replace(
        record,
        reasons=(str(error),),
        champion=champion_sha256(target),
        champion_version=current_version(target),
        checks={_FINITE: False},
      )
    else:
      record = _compare(record, opened, candidate, target)
  gate_record.write(folder, record)
  return record


def is_released(
  config: experiment.ExperimentConfig,
  folder: str | os.PathLike[str],
  export_dir: str | os.PathLike[str],
  round_choice: int | str = checkpoint.LAST,
) -> bool:
  """Returns whether a round was blessed by the gate, and released.

  Args:
    config: The experiment.
    folder: Its workdir.
    export_dir: Export path.
    round_choice: As of `CheckpointManager.find`.
  """
  kept = gate_record.read(folder)
  if kept is None:
    return False
  manager = checkpoint.reader(folder)
  with experiment.open_dataset(folder) as dataset:
    subject = (
      manager.find(round_choice),
      experiment.unpublished_hash(config),
      dataset.version,
    )
  return (
    kept.subject == subject
    and _has_candidate(kept, folder)
    and find_release(kept, export_dir) is not None
  )


def _has_candidate(
  kept: gate_record.GateRecord, folder: str | os.PathLike[str]
) -> bool:
  """Returns whether the bundles that a record is about are there, and whole."""
  try:
    return candidate_sha256(folder) == kept.candidate
  except errors.ExportError:
    return False


def find_release(
  record: gate_record.GateRecord, export_dir: str | os.PathLike[str]
) -> releases.Release | None:
  """Returns the release of a blessed candidate, if it was released."""
  for release in releases.read_history(export_dir):
    # A rollback, which has the same bundles, comes after it.
    if record.blessed and release.bundles == record.candidate:
      return release
  return None


def candidate_sha256(folder: str | os.PathLike[str]) -> dict[str, str]:
  """Returns model -> SHA-256 of the candidate's `bundle.json`.

  Raises:
    ExportError: If there is no candidate, or its files have changed.
  """
  found = {}
  for model in releases.MODELS:
    bundle = candidate_folder(folder) / model / '1'
    manifest.verify_files(bundle)
    found[model] = manifest.bundle_sha256(bundle)
  return found


def champion_sha256(
  export_dir: str | os.PathLike[str],
) -> dict[str, str]:
  """Returns model -> SHA-256 of the current version's `bundle.json`.

  Raises:
    ExportError: If one has none.
  """
  current = releases.current_bundles(export_dir)
  return {
    model: manifest.bundle_sha256(bundle) for model, bundle in current.items()
  }


def current_version(export_dir: str | os.PathLike[str]) -> int | None:
  """Returns the newest version of an export path; None without any."""
  current = releases.current_bundles(export_dir).values()
  return max((int(bundle.name) for bundle in current), default=None)


def _still_holds(
  kept: gate_record.GateRecord,
  asked: gate_record.GateRecord,
  folder: str | os.PathLike[str],
  target: pathlib.Path,
) -> bool:
  """Returns whether a record answers what is asked."""
  if kept.subject != asked.subject:
    return False
  if kept.candidate and not _has_candidate(kept, folder):
    return False
  try:
    if find_release(kept, target) is not None:
      return True
    # The machine may be the reason: it was busy, or TensorFlow is broken there.
    is_lasting = all(kept.checks.get(one, True) for one in (_IN_TIME, _PLAIN))
    is_same = kept.thresholds == asked.thresholds
    return is_lasting and is_same and champion_sha256(target) == kept.champion
  except errors.ExportError:
    return False  # To be compared again, with an error of its own.


def _compare(
  record: gate_record.GateRecord,
  opened: session.Session,
  folder: pathlib.Path,
  target: pathlib.Path,
) -> gate_record.GateRecord:
  """Returns the record of a candidate that is exported."""
  config, dataset = opened.config.gate, opened.dataset
  candidate = gate_scores.load(_find(folder, dataset))
  champion, ignored = _load_champion(target, config, dataset)
  checks, reasons = _check_plainly(candidate.found, dataset, config)
  groups: list[gate_record.Group] = []
  num_left_out = 0
  if champion is not None:
    differing = _signature_differences(candidate, champion)
    checks[_SIGNATURES] = not differing
    if differing:
      reasons.append(f'the signatures differ: {"; ".join(differing)}')
    model = opened.algorithm.cluster_model
    scores = gate_scores.score_clients(champion, candidate, dataset, model)
    num_clients = len(dataset.client_ids) + len(dataset.unseen_client_ids)
    num_left_out = num_clients - len(scores)
    units = [
      *_client_groups(config, scores, dataset, candidate.num_clusters, model),
      *_held_out_groups(config, champion, candidate, dataset, model),
    ]
    diverged = [u.name for u in units if not np.isfinite(u.candidate).all()]
    checks[_FINITE_SCORES] = not diverged
    if diverged:
      reasons.append(f'scores are NaN or infinite in: {", ".join(diverged)}')
    groups = _judge(
      [_finite(one) for one in units],
      opened.config,
      record.round_num,
      higher_is_better=model.higher_is_better,
    )
    reasons += [_reason(record.score, g) for g in groups if g.result == REFUSED]
  served = champion.found if champion is not None else ()
  return dataclasses.replace(
    record,
    blessed=not reasons,
    reasons=tuple(reasons),
    candidate={one.folder.parent.name: one.sha256 for one in candidate.found},
    champion={one.folder.parent.name: one.sha256 for one in served},
    champion_version=max((one.version for one in served), default=None),
    ignored_champion=ignored,
    ignored_version=current_version(target) if ignored is not None else None,
    checks=checks,
    groups=tuple(groups),
    num_left_out=num_left_out,
  )


def _find(
  folder: pathlib.Path, dataset: dataset_lib.FederatedDataset
) -> list[bundles.Bundle]:
  return bundles.find(
    folder, gate_scores.SCORING, {}, dataset.schema, dataset.feature_spec
  )


def _load_champion(
  target: pathlib.Path,
  config: gate_config.GateConfig,
  dataset: dataset_lib.FederatedDataset,
) -> tuple[gate_scores.Exported | None, str | None]:
  """Returns the champion, if any, or why it is ignored."""
  if not releases.current_bundles(target):
    return None, None
  try:
    return gate_scores.load(_find(target, dataset)), None
  except Exception as error:  # Any broken file can raise anything in TF.
    text = str(error).strip().partition('\n')[0]
    # Errors of the file system are the contexts of those that name the file.
    if any(map(plain_prediction.is_of_machine, (error, error.__context__))):
      raise errors.InfrastructureError(
        f'the current version in {target} cannot be loaded for lack of memory, '
        f'or by an error of the disk: {text or type(error).__name__}; try again'
      ) from error
    if config.ignore_broken_champion:
      return None, text
    raise errors.ExportError(
      f'the current version in {target} cannot be compared with: {text} Make '
      'an older version current with binaries.rollback, or gate without a '
      'champion: --config.gate.ignore_broken_champion=true'
    ) from error


def _check_plainly(
  found: Sequence[bundles.Bundle],
  dataset: dataset_lib.FederatedDataset,
  config: gate_config.GateConfig,
) -> tuple[dict[str, bool], list[str]]:
  """Loads bundles and predicts in a process with TensorFlow alone."""
  with tempfile.TemporaryDirectory() as temporary:
    arguments = []
    for bundle in found:
      inputs = pathlib.Path(temporary, f'{bundle.model}.npz')
      np.savez(inputs, **_inputs(bundle, dataset, config.batch_size))
      arguments += [os.fspath(bundle.folder), os.fspath(inputs)]
    try:
      asked = subprocess.run(
        # Without the script's folder; the environment may lead to TensorFlow.
        [sys.executable, '-P', plain_prediction.__file__, *arguments],
        env={**os.environ, 'CUDA_VISIBLE_DEVICES': '-1'},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=_PLAIN_SECONDS,
      )
    except subprocess.TimeoutExpired:
      raise errors.InfrastructureError(
        'a process with TensorFlow alone has not loaded and asked the bundles '
        f'within {_PLAIN_SECONDS} seconds; try again when the machine has less '
        'to do'
      ) from None
  if -asked.returncode in _KILLS:
    name = signal.Signals(-asked.returncode).name
    raise errors.InfrastructureError(
      f'the process that loads the bundles with TensorFlow alone ended by '
      f'{name}, perhaps for lack of memory; try again'
    )
  words = asked.stderr.strip().splitlines() or ['no error text']
  if asked.returncode == os.EX_TEMPFAIL:
    raise errors.InfrastructureError(
      'the process that loads the bundles with TensorFlow alone ended for lack '
      'of memory or of TensorFlow, or by an error of the disk: '
      f'{words[-1]}; try again'
    )
  checks = {_PLAIN: asked.returncode == 0}
  if asked.returncode:
    return checks, [
      f'a bundle does not load in a process with TensorFlow alone: {words[-1]}'
    ]
  reasons = []
  answers = json.loads(asked.stdout)
  checks[_FINITE] = all(
    answer['finite_weights'] and answer['finite_outputs'] for answer in answers
  )
  if not checks[_FINITE]:
    reasons.append('weights or predictions are NaN or infinite')
  seconds = max(answer['seconds'] for answer in answers)
  checks[_IN_TIME] = seconds <= config.max_batch_seconds
  if not checks[_IN_TIME]:
    # The time itself would make the record differ from call to call.
    logging.warning('A batch took %.3g seconds.', seconds)
    reasons.append(
      f'a batch of {config.batch_size} examples takes longer than '
      f'{config.max_batch_seconds:g} seconds'
    )
  return checks, reasons


def _inputs(
  bundle: bundles.Bundle,
  dataset: dataset_lib.FederatedDataset,
  batch_size: int,
) -> dict[str, Array]:
  """Returns a batch of inputs of `serving_default`."""
  samples = exporting.choose_samples(dataset)
  x = np.resize(samples, (batch_size, *samples.shape[1:]))
  ids = sorted(bundles.client_ids([bundle]))
  if ids:
    return {'x': x, 'client_id': np.resize(np.array(ids), batch_size)}
  return {'x': x, 'cluster_id': np.zeros(batch_size, np.int32)}


def _signature_differences(
  candidate: gate_scores.Exported, champion: gate_scores.Exported
) -> list[str]:
  """Returns how signatures of the champion differ; it may have fewer."""
  before = champion.loaded.signatures()
  now = {
    model: {name: one for name, one in found.items() if name in before[model]}
    for model, found in candidate.loaded.signatures().items()
  }
  return config_lib.differences(now, before, 'now')


def _client_groups(
  config: gate_config.GateConfig,
  scores: Sequence[gate_scores.Scores],
  dataset: dataset_lib.FederatedDataset,
  num_clusters: int,
  model: model_lib.Model,
) -> Iterator[_Units]:
  """Yields the groups of clients, also those that have no unit."""
  participating = [one for one in scores if one.group == schema.PARTICIPATING]
  unseen = [one for one in scores if one.group == schema.UNSEEN]
  newcomers = [one for one in participating if not one.is_known]
  yield _units('overall', participating, config.max_fall)
  yield _units('unseen', unseen, config.max_unseen_fall)
  yield _units('newcomers', newcomers, config.max_newcomers_fall)
  yield _units(
    'worst decile', participating, config.max_worst_decile_fall
  )._replace(
    statistic=functools.partial(
      summaries.worst_decile, higher_is_better=model.higher_is_better
    )
  )
  if num_clusters > 1:
    for cluster_id in range(num_clusters):
      members = [one for one in scores if one.cluster_id == cluster_id]
      yield _units(f'cluster {cluster_id}', members, config.max_cluster_fall)
  if dataset.schema.num_sources > 1:
    for source, name in enumerate(dataset.source_names):
      yield _units(f'source {name}', scores, config.max_source_fall, source)
  for planted in sorted({one.planted for one in scores} - {-1}):
    members = [one for one in scores if one.planted == planted]
    name = f'planted cluster {planted}'
    yield _units(name, members, config.max_source_fall)


def _units(
  name: str,
  scores: Sequence[gate_scores.Scores],
  threshold: float,
  source: int | None = None,
) -> _Units:
  pairs = [pair for one in scores if (pair := one.means(source)) is not None]
  champion, candidate = np.reshape(pairs, (-1, 2)).T
  return _Units(name, champion, candidate, threshold)


def _held_out_groups(
  config: gate_config.GateConfig,
  champion: gate_scores.Exported,
  candidate: gate_scores.Exported,
  dataset: dataset_lib.FederatedDataset,
  model: model_lib.Model,
) -> Iterator[_Units]:
  """Yields the best cluster models of both on the examples of each source."""
  for source, name in enumerate(dataset.source_names):
    examples = dataset.held_out(source)
    if not examples.num_examples:
      continue
    before, after = (
      gate_scores.best_cluster_scores(exported, examples, model)
      for exported in (champion, candidate)
    )
    yield _Units(f'held out {name}', before, after, config.max_held_out_fall)


def _finite(units: _Units) -> _Units:
  """Returns the units that both models have a finite score of.

  Bounds of a fall have no meaning for the others: those of the candidate refuse
  it, and those of the champion alone have nothing to fall from.
  """
  kept = np.isfinite(units.champion) & np.isfinite(units.candidate)
  return units._replace(
    champion=units.champion[kept], candidate=units.candidate[kept]
  )


def _judge(
  units: Sequence[_Units],
  config: experiment.ExperimentConfig,
  round_num: int,
  *,
  higher_is_better: bool,
) -> list[gate_record.Group]:
  """Returns the results of all groups that have units."""
  units = [one for one in units if len(one.champion)]
  min_units = config.gate.min_units
  num_judged = sum(len(one.champion) >= min_units for one in units)
  if units and not num_judged:
    logging.warning(
      'The gate cannot refuse by a comparison: no group has '
      'config.gate.min_units=%d units, the largest has %d. Lower it, or take '
      'more clients',
      min_units,
      max(len(one.champion) for one in units),
    )
  groups = []
  for one in units:
    num_units = len(one.champion)
    found = paired_falls.estimate(
      one.champion,
      one.candidate,
      seeds.numpy_generator(config.seed, f'gate {one.name}', round_num),
      higher_is_better=higher_is_better,
      tail=(1 - config.gate.confidence) / max(1, num_judged),
      num_resamples=config.gate.num_resamples,
      statistic=one.statistic,
    )
    result = REFUSED if found.low > one.threshold else PASSED
    if num_units < min_units:
      result = TOO_SMALL
    groups.append(
      gate_record.Group(
        one.name,
        num_units,
        found.before,
        found.after,
        found.fall,
        found.low,
        found.high,
        one.threshold,
        result,
      )
    )
  return groups


def _reason(score: str, group: gate_record.Group) -> str:
  return (
    f'{group.name}: {score} {group.candidate:.4g}, of the champion '
    f'{group.champion:.4g}: a fall of {group.fall:.4g}, with confidence more '
    f'than {group.low:.4g}, where {group.threshold:g} is tolerated'
  )
