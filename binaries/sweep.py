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

from absl import flags
from ml_collections import config_flags

from binaries import command, comparison_flags
from tff_algos.experiments import config_file
from tff_algos.experiments.sweeps import comparison, grid
from tff_algos.experiments.sweeps import runs as sweep_runs


def _main() -> None:
  config, workdir = command.define_experiment_flags()
  num_seeds = flags.DEFINE_integer(
    'num_seeds', 5, 'How many seeds, from 0.', lower_bound=1
  )
  axes = flags.DEFINE_multi_string(
    'grid', [], 'KEY=VALUE,VALUE,...: an axis; may be given several times.'
  )
  also = flags.DEFINE_list(
    'also', '', 'Further config files, or :variants of that of --config.'
  )
  fixed_dataset = flags.DEFINE_bool(
    'fixed_dataset', False, 'Leave config.dataset.seed alone.'
  )
  read_options = comparison_flags.define()

  def main() -> None:
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
