r"""Verifies the audit log of a training whose clients form committees.

  python -m binaries.audit --config=configs/cmfl/digits.py \
    --workdir=runs/cmfl_digits

reads <workdir>/audit, which a training with config.algorithm.audit writes, and
recomputes in NumPy what the log records of every round: the hashes that chain
its lines, who was to be averaged and elected by the recorded distances, and
what the vote decided; where uploads were kept (audit=uploads) also all digests,
the distances, and the aggregate. It needs neither the dataset nor a checkpoint,
writes evaluation/audit.csv, and fails if a round does not verify, naming it.

It prints the hash of the last line. Who keeps that elsewhere can tell whether
the whole log was written anew.
"""

from absl import logging

from binaries import command
from tff_algos.algorithms.cmfl.audit import audit_log
from tff_algos.experiments import auditing, experiment


def _main() -> None:
  config, workdir = command.define_experiment_flags()

  def main() -> None:
    verdicts = auditing.verify(experiment.parse(config.value), workdir.value)
    entries = audit_log.read(workdir.value)
    last_hash = entries[-1][1] if entries else '(no line)'
    print(auditing.summarize(verdicts, last_hash))
    logging.info('A row a round: %s/evaluation/audit.csv', workdir.value)

  command.run(main)


if __name__ == '__main__':
  _main()
