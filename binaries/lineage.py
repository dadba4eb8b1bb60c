"""Prints the lineage of a served version, back to raw files.

  python -m binaries.lineage --export_dir=runs/production/export --version=7

prints the version, the one it rolled back to if it is a rollback, the gate's
verdict, the run and its dataset with the checksums of the raw files, and all
runs that the training went on from.
"""

from absl import flags

from binaries import command


def _main() -> None:
  export_dir = flags.DEFINE_string(
    'export_dir', None, 'Export path.', required=True
  )
  version = flags.DEFINE_integer(
    'version', None, 'Version; default: the current one.'
  )

  def main() -> None:
    from tff_algos.experiments.production import lineage

    steps = lineage.chain(export_dir.value, version.value)
    print(lineage.chain_text(steps), flush=True)

  command.run(main)


if __name__ == '__main__':
  _main()
