r"""Runs an experiment end to end, from raw data to a served prediction.

  python -m binaries.run --config=configs/fed_soft/digits.py \
    --workdir=runs/digits

runs preprocess, train, evaluate and export in turn, and then tests serving: it
starts binaries.serve on free loopback ports, asks it over HTTP, and stops it.
Called again, it resumes each step, and exports one more version.
"""

from binaries import command, mirrored_flags


def _main() -> None:
  config, workdir = command.define_experiment_flags()

  def main() -> None:
    from tff_algos.experiments import end_to_end, experiment

    text = end_to_end.run(
      experiment.parse(config.value), workdir.value, mirrored_flags.publish
    )
    print(text, flush=True)

  command.run(main)


if __name__ == '__main__':
  _main()
