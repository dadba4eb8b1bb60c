r"""Runs an experiment for several seeds, values and configs, and compares.

  python -m binaries.sweep --config=configs/fed_soft/synthetic.py:random \
    --workdir=runs/theta_spread --num_seeds=5 \
    --grid=algorithm.proximal_weight=0.01,0.1,1

Each --grid is an axis, --also adds config files (or `:variant`s of the same
one) as another, and all are multiplied. Seed k sets config.seed and, unless
--fixed_dataset, config.dataset.seed. Every run has a folder of its own; what is
finished is not run again, so a sweep that was ended goes on when it is started
again. A run that is refused is reported at the end, and the others go on.
Writes sweep.json, sweep.csv, sweep_summary.csv and report/index.html, and
prints means and deviations: docs/sweeps.md.
"""

import os
import pathlib
from collections.abc import Mapping
from typing import Any

from absl import flags, logging
from ml_collections import config_flags

from binaries import command, compare, comparison, sweep_run
from tff_algos.core import errors
from tff_algos.experiments import (
  config_file,
  config_values,
  output,
  runtime_cache,
)
from tff_algos.experiments.sweeps import grid
from tff_algos.reports.sweep import plan as plan_lib


def sweep(runs: grid.Grid, folder: str | os.PathLike[str]) -> plan_lib.Plan:
  """Makes the runs that are not finished yet.

  Args:
    runs: What to run.
    folder: Where each has its folder.

  Returns:
    The plan, with the errors of the runs that were refused; it lies in
    `sweep.json`, too.

  Raises:
    InfrastructureError: If the disk or the machine fails; the same command
      goes on there.
  """
  workdir = pathlib.Path(folder)
  workdir.mkdir(parents=True, exist_ok=True)
  _write(runs.plan, workdir)
  planned = list(runs.plan.runs)
  with runtime_cache.KeptRuntime() as kept:
    for index, config in enumerate(runs.configs):
      run = planned[index]
      logging.info('Run %d of %d: %s', index + 1, len(planned), run.folder)
      try:
        sweep_run.make(config, workdir / run.folder, workdir / 'datasets', kept)
      except errors.InfrastructureError:
        raise
      except errors.UserError as error:
        logging.warning('%s is refused: %s', run.folder, error)
        planned[index] = run._replace(error=str(error))
  plan = runs.plan._replace(runs=tuple(planned))
  _write(plan, workdir)
  return plan


def bases(
  values: Mapping[str, Any],
  spelled: str,
  also: list[str],
  overrides: Mapping[str, Any],
) -> dict[str, Mapping[str, Any]]:
  """Returns label -> nested values of each config file.

  Args:
    values: Of `--config`, with its overrides.
    spelled: The value of `--config`.
    also: Those of `--also`.
    overrides: Dotted key -> value; the other files get them, too.

  Raises:
    ConfigError: If a file cannot be read or has no section for an override.
  """
  path = spelled.partition(':')[0]
  others = [path + one if one.startswith(':') else one for one in also]
  found = [values]
  for other in others:
    config = config_file.load(other).to_dict()
    for key, value in overrides.items():
      config_values.assign(config, key, value, f'{other}: --config')
    found.append(config)
  return config_file.labelled([spelled, *others], found)


def check_all_ran(plan: plan_lib.Plan) -> None:
  """Raises UserError if a run was refused; names the first."""
  failed = [run for run in plan.runs if run.error]
  if failed:
    raise errors.UserError(
      f'{len(failed)} of {len(plan.runs)} runs were refused, and the others '
      f'are finished. The first, {failed[0].folder}: {failed[0].error}'
    )


def _write(plan: plan_lib.Plan, workdir: pathlib.Path) -> None:
  output.write_json(workdir / plan_lib.FILE, plan_lib.to_dict(plan))


def _main() -> None:
  config, workdir = command.define_experiment_flags()
  num_seeds = flags.DEFINE_integer(
    'num_seeds', 5, 'How many seeds, from 0.', lower_bound=1
  )
  options = flags.DEFINE_multi_string(
    'grid', [], 'KEY=VALUE,VALUE,...: an axis; may be given several times.'
  )
  also = flags.DEFINE_list(
    'also', '', 'Further config files, or :variants of that of --config.'
  )
  fixed_dataset = flags.DEFINE_bool(
    'fixed_dataset', False, 'Leave config.dataset.seed alone.'
  )
  arguments = comparison.define_flags()

  def main() -> None:
    flag = flags.FLAGS['config']
    files = bases(
      config.value.to_dict(),
      config_flags.get_config_filename(flag),
      also.value,
      config_flags.get_override_values(flag),
    )
    runs = grid.expand(
      files,
      options.value,
      num_seeds.value,
      fixed_dataset=fixed_dataset.value,
    )
    comparison.check(runs, arguments()[2])
    plan = sweep(runs, workdir.value)
    if not all(run.error for run in plan.runs):
      print(compare.compare(workdir.value, *arguments()))
    check_all_ran(plan)

  command.run(main)


if __name__ == '__main__':
  _main()
