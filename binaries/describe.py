r"""Lists the names that a config may use, their options, and the round.

  python -m binaries.describe

lists all algorithms, models, sources and partitions, and the sections that
every experiment has.

  python -m binaries.describe --algorithm=fed_soft
  python -m binaries.describe --source=csv --partition=natural

print all options of what they name: key, meaning, type and default value. Every
key is a flag of the programs with --config.

  python -m binaries.describe --config=configs/fed_soft/digits.py

prints the round of an experiment: its phases, their clients, each stage with
its TFF type, and the bytes to and from a client. Where shapes or clients are
known from the data alone, --workdir names the folder with the built dataset.
docs/rounds.md has the round of each algorithm. --plugins adds the names of
plug-ins; those of installed packages are always listed.
"""

from absl import flags

from binaries import command
from tff_algos.core import errors

_KINDS = ('algorithm', 'model', 'source', 'partition', 'section')


def _main() -> None:
  config, workdir = command.define_experiment_flags(required=False)
  chosen = {
    kind: flags.DEFINE_string(kind, None, f'Name of the {kind} to describe.')
    for kind in _KINDS
  }

  def main() -> None:
    from tff_algos.experiments import (
      config_reference,
      experiment,
      round_description,
    )

    if workdir.value is not None and config.value is None:
      raise errors.ConfigError(
        f'--workdir={workdir.value} has the dataset of an experiment, whose '
        'round --config describes: give --config, or leave --workdir out'
      )
    texts = [
      config_reference.describe(kind, flag.value)
      for kind, flag in chosen.items()
      if flag.value is not None
    ]
    if config.value is not None:
      parsed = experiment.parse(config.value)
      texts.append(round_description.describe(parsed, workdir.value))
    print('\n\n'.join(texts or [config_reference.list_names()]))

  command.run(main)


if __name__ == '__main__':
  _main()
