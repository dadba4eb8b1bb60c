r"""Evaluates a trained experiment and draws its report.

  python -m binaries.evaluate --config=configs/fed_soft/digits.py \
    --workdir=runs/digits

evaluates the latest checkpoint (or that of --round) on held-out examples and
writes report/index.html and, in evaluation/,
  summary.json     the last round and the best one by validation; the best
                   cluster model of each source
  clients.csv      scores, membership and true mixture of each client
  centers.csv      score and loss of every cluster model on every source
  association.csv  clusters of the clients of each planted source, if there are
"""

import pathlib
from typing import Any

from absl import flags, logging

from binaries import command, comparison
from tff_algos.evaluation import evaluation_tables, evaluator, round_time
from tff_algos.experiments import experiment, output, runtime_cache, session
from tff_algos.reports.run import membership_history, page, summary
from tff_algos.training import metrics_log


def evaluate(
  config: experiment.ExperimentConfig,
  folder: str,
  round_num: int | None = None,
  kept: runtime_cache.KeptRuntime | None = None,
  clock: round_time.Clock = round_time.Clock(),
) -> pathlib.Path:
  """Evaluates one checkpoint; returns the report's index page.

  Args:
    config: The experiment.
    folder: Its workdir.
    round_num: Of the checkpoint; None for the latest.
    kept: As of `session.open_session`.
    clock: Of the report's pictures of time.

  Raises:
    UserError: If there is no such checkpoint, or it is of another config.
  """
  with session.open_session(config, folder, kept=kept) as opened:
    chosen, server_state = opened.restore(round_num)
    found = opened.evaluator.evaluate(server_state)
    tables = {
      'clients.csv': found.clients,
      'centers.csv': evaluation_tables.center_rows(
        found.metrics, opened.dataset.source_names, opened.algorithm
      ),
    }
    planted = opened.evaluator.planted
    if planted is not None and found.memberships is not None:
      tables['association.csv'] = evaluation_tables.association_rows(
        found.memberships, planted
      )
    content = _summary(opened, chosen, found, tables['centers.csv'])
  evaluation = pathlib.Path(folder, 'evaluation')
  evaluation.mkdir(exist_ok=True)
  output.write_json(evaluation / 'summary.json', content)
  for name, rows in tables.items():
    output.write_table(evaluation / name, rows)
  return page.write_report(folder, clock)


def _summary(
  opened: session.Session,
  chosen: int,
  found: evaluator.Evaluation,
  centers: evaluation_tables.Rows,
) -> dict[str, Any]:
  """Returns the content of evaluation/summary.json."""
  higher_is_better = opened.evaluator.higher_is_better
  planted = opened.evaluator.planted
  history = membership_history.read(opened.workdir, chosen)
  score_name = opened.algorithm.cluster_model.score_name
  return {
    'last': {'round': chosen, **found.metrics},
    'best_by_validation': metrics_log.best_round(
      opened.workdir,
      opened.evaluator.selection_metric,
      higher_is_better=higher_is_better,
    ),
    'majority_class': opened.evaluator.majority_class(),
    'source_names': list(opened.dataset.source_names),
    'planted_names': list(planted.names) if planted else None,
    'num_clusters': opened.algorithm.num_clusters,
    'best_clusters': evaluation_tables.best_clusters(
      centers, score_name, higher_is_better=higher_is_better
    ),
    'matched_sources': evaluation_tables.matched_sources(
      centers,
      score_name,
      found.memberships,
      planted,
      higher_is_better=higher_is_better,
    ),
    'settled_round': history.settled_round if history else None,
    'dataset_version': opened.dataset.version,
  }


def _main() -> None:
  config, workdir = command.define_experiment_flags()
  round_num = flags.DEFINE_integer(
    'round', None, 'Round to evaluate; default: the latest checkpoint.'
  )
  clock = comparison.define_clock_flag()

  def main() -> None:
    index = evaluate(
      experiment.parse(config.value),
      workdir.value,
      round_num.value,
      clock=round_time.read_clock(clock.value),
    )
    print(summary.console_summary(workdir.value))
    logging.info('Report: %s', index)

  command.run(main)


if __name__ == '__main__':
  _main()
