r"""Lists the names that a config may use, and describes their options.

  python -m binaries.describe

lists all algorithms, models, sources and partitions, and the sections that
every experiment has.

  python -m binaries.describe --algorithm=fed_soft
  python -m binaries.describe --source=csv --partition=natural

print all options of what they name: key, meaning, type and default value. Every
key is a flag of the programs with --config. --plugins adds the names of
plug-ins; those of installed packages are always listed.
"""

from absl import flags

from binaries import command

_KINDS = ('algorithm', 'model', 'source', 'partition', 'section')


def _main() -> None:
  command.define_plugins_flag()
  chosen = {
    kind: flags.DEFINE_string(kind, None, f'Name of the {kind} to describe.')
    for kind in _KINDS
  }

  def main() -> None:
    from tff_algos.experiments import config_reference

    texts = [
      config_reference.describe(kind, flag.value)
      for kind, flag in chosen.items()
      if flag.value is not None
    ]
    print('\n\n'.join(texts or [config_reference.list_names()]))

  command.run(main)


if __name__ == '__main__':
  _main()
