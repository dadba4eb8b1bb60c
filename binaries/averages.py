r"""Draws trajectories of averaged models on a loss surface.

  python -m binaries.averages --workdir=runs/averages

reproduces Figure 3a of Chen and Qiu (2025), arXiv:2503.08652: linear models of
two weights on two Gaussian classes, trained independently by SGD, and the
trajectories of averages of 5 and of 25 of them (five clients without and with
latent clients). Nothing here is federated. Written to --workdir: averages.png,
the first trajectory of each size; averages.csv, its `models`, `step`, `x`, `y`
and `loss`; and averages_variance.csv, the variance over --num_paths averages of
each size and the mean loss at each step.
"""

from absl import flags

from binaries import command


def _main() -> None:
  workdir = flags.DEFINE_string('workdir', None, 'Output folder.')
  seed = flags.DEFINE_integer('seed', 0, 'Random seed.', lower_bound=0)
  num_paths = flags.DEFINE_integer(
    'num_paths', 1000, 'Number of averages of each size.', lower_bound=2
  )
  flags.mark_flag_as_required('workdir')

  def main() -> None:
    from tff_algos.experiments import tables
    from tff_algos.experiments.analyses import averages

    rows = averages.draw(num_paths.value, seed.value, workdir.value)
    print(tables.table_text(rows[::10], tuple(rows[0])))

  command.run(main)


if __name__ == '__main__':
  _main()
