r"""Runs and compares a grid of experiments over seeds, values and configs.

  python -m binaries.sweep --config=configs/fed_soft/synthetic.py:random \
    --workdir=runs/theta_spread --num_seeds=5 \
    --grid=algorithm.proximal_weight=0.01,0.1,1

The grid is the product of its axes: each --grid is one, and the config files
(or `:variant`s of the same one) of --also are another. Seed k sets config.seed
and, unless --fixed_dataset, config.dataset.seed. Every run has its own folder;
finished runs are skipped, so the same command resumes an interrupted sweep. A
run that fails with a user error is reported at the end, after all others.
Writes sweep.json, sweep.csv, sweep_summary.csv and report/index.html, and
prints means and standard deviations: docs/sweeps.md.
"""

from absl import flags
from ml_collections import config_flags

from binaries import command, comparison_flags


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
  read_options = comparison_flags.define()

  def main() -> None:
    from tff_algos.experiments import config_file
    from tff_algos.experiments.sweeps import comparison, grid
    from tff_algos.experiments.sweeps import runs as sweep_runs

    flag = flags.FLAGS['config']
    files = config_file.bases(
      config.value.to_dict(),
      config_flags.get_config_filename(flag),
      also.value,
      config_flags.get_override_values(flag),
    )
    runs = grid.expand(
      files,
      axes.value,
      num_seeds.value,
      fixed_dataset=fixed_dataset.value,
    )
    options = read_options()
    comparison.check(runs, options.question)
    plan = sweep_runs.sweep(runs, workdir.value)
    if not all(run.error for run in plan.runs):
      print(comparison.compare(workdir.value, options))
    sweep_runs.check_all_ran(plan)

  command.run(main)


if __name__ == '__main__':
  _main()
