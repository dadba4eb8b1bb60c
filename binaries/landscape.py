r"""Draws training trajectories over a two-dimensional loss landscape.

  python -m binaries.landscape --runs=runs/plain,runs/decomposed \
    --workdir=runs/landscape

reads the initial state and all checkpoints of each run, multiplies factorized
kernels out, so that plain and decomposed networks share one weight space, takes
the plane of the first two principal directions of all models, and writes to
--workdir

  landscape.png   contours of the loss on --num_examples training examples, and
                  the trajectories
  landscape.csv   the loss on a grid of the plane: x, y, loss
  paths.csv       one row for each model: run, round, x, y, its loss, the loss
                  at its projection onto the plane, and its distance from it

(Chen and Qiu 2025, arXiv:2503.08652, Figure 3c; the paper gives no recipe). The
runs must keep the checkpoints to be drawn, such as 25 rounds, with
--config.training.checkpoint_interval=1
--config.training.num_kept_checkpoints=25. With
--config.model.decomposition.atom_init=kernel a decomposed network starts from
the best approximation of the plain one with its number of atoms.
"""

from absl import flags

from binaries import command


def _main() -> None:
  command.define_plugins_flag()
  runs = flags.DEFINE_list('runs', None, 'Folders of trained runs.')
  workdir = flags.DEFINE_string('workdir', None, 'Output folder.')
  num_points = flags.DEFINE_integer(
    'num_points', 21, 'Grid points on each side.', lower_bound=2
  )
  num_examples = flags.DEFINE_integer(
    'num_examples', 1000, 'Sampled training examples.', lower_bound=1
  )
  flags.mark_flags_as_required(['runs', 'workdir'])

  def main() -> None:
    from tff_algos.experiments import tables
    from tff_algos.experiments.analyses import landscape, trajectories

    problem = trajectories.read(runs.value, num_examples.value)
    rows = landscape.draw(problem, num_points.value, workdir.value)
    for path in problem.trajectories:
      print(path.label)
      own = [row for row in rows if row['run'] == path.label]
      columns = [name for name in rows[0] if name != 'run']
      print(tables.table_text(own, columns))

  command.run(main)


if __name__ == '__main__':
  _main()
