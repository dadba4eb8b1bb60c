r"""Runs one night of production: dataset, drift, training, gate, release.

  python -m binaries.nightly --config=configs/fed_soft/digits.py \
    --workdir=runs/production --as_of=2026-11-20

builds the date's dataset, measures its drift from that of the run whose models
are current, continues that run, evaluates, gates and releases the result under
runs/production/export (docs/production.md). What is done already is not done
again.

stdout is one line of JSON. Exits with 0 (released, no new data, or a backfill),
1 (bad input), 3 (not approved: drift or gate; the served models stay) or 75
(infrastructure: retry).
"""

import json

from absl import flags

from binaries import command, mirrored_flags

# As of experiments.production.nightly, whose imports take seconds.
_STEPS = ('dataset', 'drift', 'train', 'gate', 'release')


def _main() -> None:
  config, workdir = command.define_experiment_flags()
  as_of = flags.DEFINE_string(
    'as_of', None, 'Date (ISO 8601) of the night.', required=True
  )
  until = flags.DEFINE_enum('until', 'release', _STEPS, 'The last step to do.')
  round_choice = command.define_round_flag('release')
  beam_options = command.define_beam_options_flag()
  keep_versions = flags.DEFINE_integer(
    'keep_versions',
    None,
    'Number of dataset versions, and of exported ones, to keep, at least 2. '
    'Default: all.',
  )

  def main() -> None:
    from tff_algos.experiments import experiment
    from tff_algos.experiments.production import nightly
    from tff_algos.training import checkpoint

    result = nightly.run(
      experiment.parse(config.value),
      workdir.value,
      as_of.value,
      nightly.Options(
        until.value,
        checkpoint.parse_choice(round_choice.value),
        beam_options.value,
        keep_versions.value,
      ),
    )
    mirrored_flags.publish()  # What is told below is there for others.
    print(json.dumps(result), flush=True)

  command.run(main, prints_failures=True)


if __name__ == '__main__':
  _main()
