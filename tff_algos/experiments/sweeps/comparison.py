r"""Compares runs: tables and a page, from what is there.

  python -m binaries.compare --workdir=runs/theta_spread

draws the page of a sweep again, also while it is still running.

  python -m binaries.compare --workdir=runs/compared \
    --runs='runs/fed_soft/seed_*,runs/ifca/seed_*'

compares runs that were made one by one: those that lie side by side as seed_0,
seed_1, ... are seeds of one cell, any other folder is a cell of its own.
"""

import glob
import os
import pathlib
import re

from absl import flags, logging

from binaries import command, comparison
from tff_algos.core import errors
from tff_algos.evaluation import round_time
from tff_algos.experiments import output
from tff_algos.reports.sweep import choice as choice_lib
from tff_algos.reports.sweep import plan as plan_lib
from tff_algos.reports.sweep import sweep as sweep_lib
from tff_algos.reports.sweep import sweep_page, sweep_table, worst_attack
from tff_algos.reports.sweep import target as target_lib

_SEED = re.compile(r'seed_(\d+)')


def compare(
  workdir: str | os.PathLike[str],
  prefixes: list[str],
  least_ari: float,
  question: choice_lib.Question | None = None,
  target: target_lib.Target | None = None,
  clock: round_time.Clock = round_time.Clock(),
) -> str:
  """Writes `sweep.csv`, `sweep_summary.csv` and the page of a sweep.

  Args:
    workdir: Holds `sweep.json`.
    prefixes: Starts of the names of the metrics to print; none for the shown ones.
    least_ari: Adjusted Rand index from which on clusters count as found.
    question: What to choose among the cells; None for nothing.
    target: A score whose cost is to be told; None for none.
    clock: Of the picture of time.

  Returns:
    Means and deviations, what is chosen, and what each cell is worth under its
    worst attack, as text.

  Raises:
    DataError: If no run is finished, a file is damaged, or the runs do not
      differ by what is to be chosen.
  """
  sweep = sweep_lib.read(workdir, target, clock)
  chosen = [] if question is None else choice_lib.sentences(sweep, question)
  folder = sweep.workdir
  output.write_table(
    folder / 'sweep.csv', sweep_table.run_rows(sweep, least_ari)
  )
  output.write_table(
    folder / 'sweep_summary.csv',
    sweep_table.cell_rows(sweep, least_ari),
  )
  index = sweep_page.write_report(sweep, least_ari, chosen)
  logging.info('Report: %s', index)
  told = [*chosen, *worst_attack.sentences(sweep)]
  return '\n'.join([sweep_table.console(sweep, prefixes, least_ari), *told])


def plan_of_folders(
  patterns: list[str], workdir: str | os.PathLike[str]
) -> plan_lib.Plan:
  """Returns the plan of runs that were made one by one.

  Args:
    patterns: Of their folders, as a shell matches them.
    workdir: Where the plan is to lie.

  Raises:
    DataError: If a pattern matches no folder.
  """
  folders: list[pathlib.Path] = []
  for pattern in patterns:
    found = [
      pathlib.Path(path)
      for path in sorted(glob.glob(pattern))
      if os.path.isdir(path)
    ]
    if not found:
      raise errors.DataError(f'--runs={pattern} matches no folder')
    folders += found
  cells = [_cell(folder) for folder in folders]
  # What all paths begin with tells nothing.
  parents = [cell.absolute().parent for cell in cells]
  start = os.path.commonpath(parents)
  labels = [os.path.relpath(cell, start) for cell in cells]
  runs = tuple(
    plan_lib.PlannedRun(
      os.path.relpath(folder, workdir), (label,), _seed(folder)
    )
    for folder, label in zip(folders, labels, strict=True)
  )
  axis = plan_lib.Axis('folder', '', tuple(dict.fromkeys(labels)))
  return plan_lib.Plan('Runs compared', (axis,), runs)


def _cell(folder: pathlib.Path) -> pathlib.Path:
  """Returns the folder that names the cell of a run."""
  return folder.parent if _SEED.fullmatch(folder.name) else folder


def _seed(folder: pathlib.Path) -> int:
  seed = _SEED.fullmatch(folder.name)
  return int(seed[1]) if seed else 0


def _main() -> None:
  workdir = flags.DEFINE_string(
    'workdir', None, 'Folder of the sweep, or of the comparison.'
  )
  runs = flags.DEFINE_list(
    'runs', '', 'Folders of runs, or patterns of them; default: a sweep.'
  )
  arguments = comparison.define_flags()
  flags.mark_flag_as_required('workdir')

  def main() -> None:
    if runs.value:
      plan = plan_of_folders(runs.value, workdir.value)
      folder = pathlib.Path(workdir.value)
      folder.mkdir(parents=True, exist_ok=True)
      output.write_json(folder / plan_lib.FILE, plan_lib.to_dict(plan))
    print(compare(workdir.value, *arguments()))

  command.run(main)


if __name__ == '__main__':
  _main()
