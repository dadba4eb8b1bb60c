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

import pathlib

from absl import logging

from binaries import command
from tff_algos.algorithms import registry as algorithms
from tff_algos.algorithms.cmfl.audit import audit_log, verification
from tff_algos.core import errors
from tff_algos.experiments import experiment, output


def audit(
  config: experiment.ExperimentConfig, folder: str
) -> list[verification.Verdict]:
  """Writes evaluation/audit.csv; returns the verdicts, a round each.

  Raises:
    UserError: If the algorithm keeps no log, or there is none.
  """
  algorithm = config.algorithm.name
  if algorithm != 'cmfl':
    raise errors.ConfigError(
      'binaries.audit verifies what committees of cmfl decided, but '
      f'config.algorithm.name is {algorithm!r}; take a config such as '
      'configs/cmfl/digits.py'
    )
  options = config.algorithm.options
  periods = algorithms.periods_of(config.algorithm, config.lr_schedule)
  rules = verification.Rules(
    options.upload,
    lambda round_num: periods[config.lr_schedule.period(round_num)].rate(
      round_num
    ),
    options.committee.distance,
    options.committee.selection,
    options.committee.election_center,
  )
  verdicts = verification.verify(folder, rules)
  rows = [
    {
      'round': verdict.round_num,
      'has_uploads': verdict.has_uploads,
      'faults': '; '.join(verdict.faults),
    }
    for verdict in verdicts
  ]
  evaluation = pathlib.Path(folder, 'evaluation')
  evaluation.mkdir(exist_ok=True)
  output.write_table(evaluation / 'audit.csv', rows)
  return verdicts


def summarize(verdicts: list[verification.Verdict], last_hash: str) -> str:
  """Returns how many rounds verify.

  Raises:
    DataError: If one does not; names the rounds and what is wrong.
  """
  wrong = [verdict for verdict in verdicts if verdict.faults]
  if wrong:
    lines = (f'round {one.round_num}: {"; ".join(one.faults)}' for one in wrong)
    raise errors.DataError(
      f'{len(wrong)} of {len(verdicts)} rounds do not verify:\n'
      + '\n'.join(lines)
    )
  num_whole = sum(verdict.has_uploads for verdict in verdicts)
  return (
    f'All {len(verdicts)} rounds verify, {num_whole} of them from the uploads '
    f'on. The last line has the SHA-256 {last_hash}.'
  )


def _main() -> None:
  config, workdir = command.define_experiment_flags()

  def main() -> None:
    verdicts = audit(experiment.parse(config.value), workdir.value)
    entries = audit_log.read(workdir.value)
    last_hash = entries[-1][1] if entries else '(no line)'
    print(summarize(verdicts, last_hash))
    logging.info('A row a round: %s/evaluation/audit.csv', workdir.value)

  command.run(main)


if __name__ == '__main__':
  _main()
