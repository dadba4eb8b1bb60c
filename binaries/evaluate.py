r"""Evaluates a trained experiment and draws its report.

  python -m binaries.evaluate --config=configs/fed_soft/digits.py \
    --workdir=runs/digits

evaluates the latest checkpoint (or that of --round) on held-out examples and
writes evaluation/summary.json, evaluation/clients.csv and report/index.html.
The summary has the last round and the best one by validation.
"""

import pathlib

from absl import flags, logging

from binaries import command, experiment, output, session
from tff_algos.reports import page, summary
from tff_algos.runtimes import metrics_log


def evaluate(
  config: experiment.ExperimentConfig, folder: str, round_num: int | None = None
) -> pathlib.Path:
  """Evaluates one checkpoint; returns the report's index page.

  Raises:
    UserError: If there is no such checkpoint, or it is of another config.
  """
  with session.open_session(config, folder) as opened:
    chosen, server_state = opened.restore(round_num)
    found = opened.evaluator.evaluate(server_state)
    best = metrics_log.best_round(
      folder,
      opened.evaluator.selection_metric,
      higher_is_better=opened.evaluator.higher_is_better,
    )
    content = {
      'last': {'round': chosen, **found.metrics},
      'best_by_validation': best,
      'majority_class': opened.evaluator.majority_class(),
      'source_names': list(opened.dataset.source_names),
      'num_clusters': opened.algorithm.num_clusters,
      'dataset_version': opened.dataset.version,
    }
  evaluation = pathlib.Path(folder, 'evaluation')
  evaluation.mkdir(exist_ok=True)
  output.write_json(evaluation / 'summary.json', content)
  output.write_table(evaluation / 'clients.csv', found.clients)
  return page.write_report(folder)


def _main() -> None:
  config, workdir = command.define_experiment_flags()
  round_num = flags.DEFINE_integer(
    'round', None, 'Round to evaluate; default: the latest checkpoint.'
  )

  def main() -> None:
    index = evaluate(
      experiment.parse(config.value), workdir.value, round_num.value
    )
    print(summary.console_summary(workdir.value))
    logging.info('Report: %s', index)

  command.run(main)


if __name__ == '__main__':
  _main()
