r"""Draws averages of few and of many models on a loss surface.

  python -m binaries.averages --workdir=runs/averages

is Figure 3a of Chen and Qiu (2025), arXiv:2503.08652: linear models of two
weights on two Gaussian classes, trained apart by SGD; the paths of the averages
of 5 and of 25 of them, which is what five clients have with latent ones.
Nothing of it is federated. Into --workdir go averages.png, with the first path
of each; averages.csv, `models`, `step`, `x`, `y` and `loss` of these; and
averages_variance.csv, at each step the variance over --num_paths averages of
each size, and the mean loss.
"""

from absl import flags

from binaries import command
from tff_algos.experiments import output
from tff_algos.experiments.analyses import averages


def _main() -> None:
  workdir = flags.DEFINE_string('workdir', None, 'Where to write.')
  seed = flags.DEFINE_integer('seed', 0, 'Of all draws.', lower_bound=0)
  num_paths = flags.DEFINE_integer(
    'num_paths', 1000, 'Averages of each size.', lower_bound=2
  )
  flags.mark_flag_as_required('workdir')

  def main() -> None:
    rows = averages.draw(num_paths.value, seed.value, workdir.value)
    print(output.table_text(rows[::10], tuple(rows[0])))

  command.run(main)


if __name__ == '__main__':
  _main()
