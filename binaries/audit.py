r"""Verifies the audit log of a run with client committees (CMFL).

  python -m binaries.audit --config=configs/cmfl/digits.py \
    --workdir=runs/cmfl_digits

reads <workdir>/audit, which training with config.algorithm.audit writes, and
recomputes each round of the log in NumPy: the hash chain of its lines, the
clients to be averaged and elected by the recorded distances, and the outcome of
the vote; with uploads kept (audit=uploads) also all digests, the distances and
the aggregate. It needs neither the dataset nor a checkpoint, writes
evaluation/audit.csv, and fails with the number of any round that does not
verify.

It prints the hash of the last line. A copy of this hash kept elsewhere reveals
a log that was rewritten as a whole.
"""

from absl import logging

from binaries import command


def _main() -> None:
  config, workdir = command.define_experiment_flags()

  def main() -> None:
    from tff_algos.experiments import auditing, experiment

    verdicts = auditing.verify(experiment.parse(config.value), workdir.value)
    print(auditing.summarize(verdicts))
    logging.info('One row per round: %s/evaluation/audit.csv', workdir.value)

  command.run(main)


if __name__ == '__main__':
  _main()
