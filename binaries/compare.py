r"""Compares finished runs in tables and an HTML report.

  python -m binaries.compare --workdir=runs/proximal_weight

writes the report of a sweep again, also while the sweep is running.

  python -m binaries.compare --workdir=runs/compared \
    --runs='runs/fed_soft/seed_*,runs/ifca/seed_*'

compares runs that were started separately: sibling folders seed_0, seed_1, ...
are seeds of one cell, any other folder is a cell of its own.
"""

from absl import flags

from binaries import command, comparison_flags


def _main() -> None:
  workdir = flags.DEFINE_string(
    'workdir', None, 'Folder of the sweep, or of the comparison.'
  )
  runs = flags.DEFINE_list(
    'runs', '', 'Folders of runs, or glob patterns; default: those of a sweep.'
  )
  read_options = comparison_flags.define()
  flags.mark_flag_as_required('workdir')

  def main() -> None:
    from tff_algos.experiments.sweeps import comparison

    options, plan = read_options(), None
    if runs.value:
      plan = comparison.plan_of_folders(runs.value, workdir.value)
    print(comparison.compare(workdir.value, options, plan))

  command.run(main)


if __name__ == '__main__':
  _main()
