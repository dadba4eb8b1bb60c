r"""Evaluates a trained experiment and writes its report.

  python -m binaries.evaluate --config=configs/fed_soft/digits.py \
    --workdir=runs/digits

evaluates the latest checkpoint (or that of --round) on held-out examples and
writes report/index.html and, in evaluation/,
  summary.json     metrics of the last round and of the best one by validation;
                   the best cluster model of each source distribution
  clients.csv      scores, membership and true mixture of each client
  centers.csv      score and loss of every cluster model on every source
  association.csv  clients by planted source and cluster, if sources are planted
"""

from absl import logging

from binaries import command, comparison_flags


def _main() -> None:
  config, workdir = command.define_experiment_flags()
  round_choice = command.define_round_flag('evaluate')
  clock = comparison_flags.define_clock_flag()

  def main() -> None:
    from tff_algos.evaluation import round_time
    from tff_algos.experiments import evaluating, experiment
    from tff_algos.reports.run import summary
    from tff_algos.training import checkpoint

    read_clock = round_time.read_clock(clock.value)
    parsed = experiment.parse(config.value)
    evaluating.evaluate(
      parsed,
      workdir.value,
      checkpoint.parse_choice(round_choice.value),
    )
    index = evaluating.write_report(parsed, workdir.value, read_clock)
    print(summary.console_summary(workdir.value))
    logging.info('Report: %s', index)

  command.run(main)


if __name__ == '__main__':
  _main()
