"""Evaluation of a checkpoint of an experiment."""

import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

from tff_algos.core import config as config_lib
from tff_algos.core import durable, records, sealed_json
from tff_algos.evaluation import evaluation_tables, evaluator, round_time
from tff_algos.experiments import experiment, runtime_cache, session, tables
from tff_algos.experiments.tracking import runs as tracking
from tff_algos.reports.run import page
from tff_algos.training import checkpoint, metrics_log

_FOLDER = 'evaluation'
_SUMMARY = 'summary.json'


def evaluate(
  config: experiment.ExperimentConfig,
  folder: str | os.PathLike[str],
  round_choice: int | str = checkpoint.LAST,
  kept: runtime_cache.KeptRuntime | None = None,
) -> None:
  """Evaluates one checkpoint and writes `<folder>/evaluation`.

  Args:
    config: The experiment.
    folder: Its workdir.
    round_choice: As of `CheckpointManager.find`.
    kept: As of `session.open_session`.

  Raises:
    UserError: If there is no such checkpoint, or it is of another config.
  """
  with session.open_session(config, folder, kept=kept) as opened:
    chosen, server_state = opened.restore(round_choice)
    last = opened.checkpoints.find()
    entries = opened.checkpoints.checked_records(last)
    found = opened.evaluator.evaluate(server_state)
    centers = evaluation_tables.center_rows(
      found.metrics, opened.dataset.source_names, opened.algorithm
    )
    rows_of_file: dict[str, Iterable[Mapping[str, Any]]] = {
      'clients.csv': found.clients,
      'centers.csv': centers,
    }
    planted = opened.evaluator.planted
    if planted is not None and found.memberships is not None:
      rows_of_file['association.csv'] = evaluation_tables.association_rows(
        found.memberships, planted
      )
    best = metrics_log.best_round(
      folder, opened.evaluator.selection_metric, entries, last
    )
    content = _summary(opened, chosen, found, centers, best)
    account = opened.algorithm.account
    if account is not None:
      content['last'] |= account.metrics(server_state)
  evaluation = pathlib.Path(folder, _FOLDER)
  with records.rewriting(
    evaluation.parent,
    _FOLDER,
    (*rows_of_file, _SUMMARY),
    others=entries,
    run_hash=config_lib.config_hash(opened.checkpoints.run_identity),
  ):
    durable.check_file_place(evaluation / _SUMMARY)
    # Last, so that an evaluation that is interrupted has none.
    (evaluation / _SUMMARY).unlink(missing_ok=True)
    for name, rows in rows_of_file.items():
      tables.write_table(evaluation / name, rows)
    sealed_json.write(evaluation / _SUMMARY, content)
  with tracking.opened(config, folder) as tracker:
    if tracker is not None:
      tracker.summarize(found.metrics)


def write_report(
  config: experiment.ExperimentConfig,
  folder: str | os.PathLike[str],
  clock: round_time.Clock = round_time.Clock(),
) -> pathlib.Path:
  """Writes the report of an evaluated run, and sends its pictures.

  Args:
    config: The experiment.
    folder: Its workdir.
    clock: As of `page.write_report`.

  Returns:
    The index page.

  Raises:
    UserError: If a file is missing or damaged, or the tracker fails.
  """
  index = page.write_report(folder, clock)
  with tracking.opened(config, folder) as tracker:
    if tracker is not None:
      tracker.add_pictures(sorted(index.parent.glob('*.png')))
  return index


def _summary(
  opened: session.Session,
  chosen: int,
  found: evaluator.Evaluation,
  centers: evaluation_tables.Rows,
  best: Mapping[str, float],
) -> dict[str, Any]:
  """Returns the content of evaluation/summary.json."""
  model = opened.algorithm.cluster_model
  planted = opened.evaluator.planted
  return {
    'last': {'round': chosen, **found.metrics},
    'best_by_validation': best,
    'majority_class': opened.evaluator.majority_class(),
    'source_names': list(opened.dataset.source_names),
    'planted_names': list(planted.names) if planted else None,
    'num_clusters': opened.algorithm.num_clusters,
    'matched_sources': evaluation_tables.matched_sources(
      centers,
      model.score_name,
      found.memberships,
      planted,
      higher_is_better=model.higher_is_better,
    ),
    'dataset_version': opened.dataset.version,
  }
