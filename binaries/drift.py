r"""Measures how far the data of a run drifted from those of its parent run.

  python -m binaries.drift --config=configs/ifca/fortnight.py \
    --workdir=runs/ifca_fortnight/runs/2026-11-02 \
    --continue_from=runs/ifca_fortnight/runs/2026-11-01

compares the dataset of --workdir with the one that the parent was trained on
(clients, labels, features), and both under the parent's cluster models of
config.continuation.round.
Prints the measures and writes into --workdir
  drift.json         the measures and thresholds; also on the report's page
  drift_clients.csv  one row a client
  drift_reference/   statistics of its dataset, for the next run
Without --continue_from the parent is that of config.continuation; without any
only the latter are written. The exit code is 3 if a measure exceeds its
threshold of config.drift.
"""

from absl import flags, logging

from binaries import command


def _main() -> None:
  config, workdir = command.define_experiment_flags()
  parent = flags.DEFINE_string(
    'continue_from',
    '',
    'Workdir of the parent run, trained (config.continuation).',
  )

  def main() -> None:
    from tff_algos.evaluation import drift
    from tff_algos.experiments import experiment
    from tff_algos.experiments.production import drifting

    report = drifting.measure(
      experiment.parse(config.value), workdir.value, parent.value
    )
    if report:
      print(drifting.summarize(report), flush=True)
      drifting.require_accepted(report, workdir.value)
      logging.info('Report: %s/%s', workdir.value, drift.REPORT)
    else:
      logging.info('No parent: wrote the reference of the next run.')

  command.run(main)


if __name__ == '__main__':
  _main()
