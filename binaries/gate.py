r"""Compares a trained round with the exported models before its release.

  python -m binaries.gate --config=configs/fed_soft/digits.py \
    --workdir=runs/digits

exports the latest checkpoint (or that of --round) to candidate/, scores it and
the current version of the export path on the run's dataset, prints the
comparison and writes gate.json, which binaries.export demands. The thresholds
are the config's section gate. Exits with 3 if the candidate is refused.
"""

from absl import flags

from binaries import command


def _main() -> None:
  config, workdir = command.define_experiment_flags()
  round_choice = command.define_round_flag('compare')
  export_dir = flags.DEFINE_string(
    'export_dir', None, 'Export path; default: <workdir>/export.'
  )

  def main() -> None:
    from tff_algos.experiments import experiment
    from tff_algos.experiments.production import gate_record, gating
    from tff_algos.training import checkpoint

    record = gating.gate(
      experiment.parse(config.value),
      workdir.value,
      export_dir.value,
      checkpoint.parse_choice(round_choice.value),
    )
    print(gate_record.as_text(record), flush=True)
    gate_record.require_blessed(record)

  command.run(main)


if __name__ == '__main__':
  _main()
