r"""Runs and compares a grid of experiments over seeds, values and configs.

  python -m binaries.sweep --config=configs/fed_soft/synthetic.py:random \
    --workdir=runs/proximal_weight --num_seeds=5 \
    --grid=algorithm.proximal_weight=0.01,0.1,1

The grid is the product of its axes: each --grid is one, and the config files
(or `:variant`s of the same one) of --also are another. Seed k sets config.seed
and, unless --fixed_dataset, config.dataset.seed. Every run has its own folder;
finished runs are skipped, so the same command resumes an interrupted sweep. A
run that fails with a user error is reported at the end, after all others.
--parallel=N executes N runs at a time, each in a process of its own, and --dask
executes them on a Dask cluster, with the same results. --search=optuna searches
the --ranges of a JSON file for the best validation score in place of a grid.
Writes sweep.json, sweep.csv, sweep_summary.csv and report/index.html, and
prints means and standard deviations: docs/sweeps.md.
"""

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import flags
from ml_collections import config_flags

from binaries import command, comparison_flags


def _define_engine_flags() -> Callable[[int], Any]:
  """Defines the flags of runs side by side; returns their reader.

  The reader takes the least number of runs at a time, and returns the context
  of the engine; of None for runs in this process.
  """
  num_parallel = flags.DEFINE_integer(
    'parallel',
    0,
    'Number of runs at a time, each in a process of its own; they share the '
    'cores. 0: one after the other in this process; of a search, each in one '
    'of its own.',
    lower_bound=0,
  )
  dask = flags.DEFINE_string(
    'dask',
    '',
    'HOST:PORT of a Dask scheduler, whose workers execute the runs; they must '
    'see --workdir.',
  )

  def read(least: int):
    from tff_algos.core import errors
    from tff_algos.experiments.sweeps import dask_workers, side_by_side

    if dask.value and num_parallel.value:
      raise errors.ConfigError(
        f'--parallel={num_parallel.value} and --dask={dask.value} exclude each '
        'other: the threads of the Dask workers limit the runs at a time'
      )
    if dask.value and not re.fullmatch(r'(tcp://)?[^:/]+:\d+', dask.value):
      raise errors.ConfigError(
        f'--dask={dask.value} must be HOST:PORT, such as 10.0.0.7:8786'
      )
    if dask.value:
      return dask_workers.DaskWorkers(dask.value)
    count = max(least, num_parallel.value)
    return contextlib.nullcontext(
      side_by_side.LocalProcesses(count) if count else None
    )

  return read


def _define_search_flags() -> Callable[..., Any]:
  """Defines the flags of a search; returns the reader of its options."""
  search_by = flags.DEFINE_enum(
    'search',
    '',
    ['', 'optuna'],
    'Search the --ranges for the best validation score, in place of a grid.',
  )
  path = flags.DEFINE_string(
    'ranges', '', 'JSON file of a search: config keys and their ranges.'
  )
  num_trials = flags.DEFINE_integer(
    'num_trials',
    50,
    'Number of trials of a search, with those of earlier calls; each has a run '
    'for each seed.',
    lower_bound=1,
  )

  def read(
    base: Mapping[str, Any],
    axes: Sequence[str],
    num_seeds: int,
    fixed_dataset: bool,
  ):
    """Returns the options, checked; None for a grid."""
    from tff_algos.core import errors
    from tff_algos.experiments.sweeps import ranges, search

    if bool(search_by.value) != bool(path.value):
      raise errors.ConfigError(
        '--search=optuna and --ranges=FILE need each other; docs/sweeps.md has '
        'an example of the file'
      )
    if not search_by.value:
      if num_trials.present:
        raise errors.ConfigError(
          f'--num_trials={num_trials.value} is the number of trials of a '
          'search: give --search=optuna and --ranges=FILE, or leave it out'
        )
      return None
    if axes:
      raise errors.ConfigError(
        '--search has no axes: write what --grid or --also would vary into '
        f'{path.value}'
      )
    options = search.Options(
      base,
      ranges.read(path.value, base),
      num_trials.value,
      num_seeds,
      fixed_dataset,
      flags.FLAGS.plugins,
    )
    search.check(options)
    return options

  return read


def _main() -> None:
  config, workdir = command.define_experiment_flags()
  num_seeds = flags.DEFINE_integer(
    'num_seeds', 5, 'Number of seeds: 0, 1, ...', lower_bound=1
  )
  axes = flags.DEFINE_multi_string(
    'grid', [], 'KEY=VALUE,VALUE,...: an axis of the grid; may be repeated.'
  )
  also = flags.DEFINE_list(
    'also', '', 'Further config files, or :variants of the file of --config.'
  )
  fixed_dataset = flags.DEFINE_bool(
    'fixed_dataset', False, 'Do not vary config.dataset.seed.'
  )
  open_engine = _define_engine_flags()
  read_search = _define_search_flags()
  read_options = comparison_flags.define()

  def main() -> None:
    from tff_algos.core import errors
    from tff_algos.experiments import config_file
    from tff_algos.experiments.sweeps import comparison, grid, side_by_side
    from tff_algos.experiments.sweeps import runs as sweep_runs
    from tff_algos.experiments.sweeps import search as search_lib

    flag = flags.FLAGS['config']
    overrides = config_flags.get_override_values(flag)
    for key in overrides:
      grid.check_no_seed(
        f'--config.{key}', key, fixed_dataset=fixed_dataset.value
      )
    files = config_file.bases(
      config.value.to_dict(),
      config_flags.get_config_filename(flag),
      also.value,
      overrides,
    )
    options = read_options()
    if flags.FLAGS.search:
      comparison.check_search(options)
    search = read_search(
      next(iter(files.values())),
      [*axes.value, *also.value],
      num_seeds.value,
      fixed_dataset.value,
    )
    if search is not None:
      with open_engine(1) as engine:
        plan = search_lib.search(search, workdir.value, engine)
    else:
      runs = grid.expand(
        files,
        axes.value,
        num_seeds.value,
        fixed_dataset=fixed_dataset.value,
      )
      comparison.check(runs, options.question)
      with open_engine(0) as engine:
        if engine is None:
          plan = sweep_runs.sweep(runs, workdir.value)
        else:
          plan = side_by_side.sweep(
            runs, workdir.value, engine, flags.FLAGS.plugins
          )
    try:
      if not all(run.error for run in plan.runs):
        print(comparison.compare(workdir.value, options))
    except errors.UserError:
      sweep_runs.check_all_ran(plan)  # A refused run is told first.
      raise
    sweep_runs.check_all_ran(plan)

  command.run(main)


if __name__ == '__main__':
  _main()
