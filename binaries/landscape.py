r"""Draws the paths of trainings on a plane through the loss.

  python -m binaries.landscape --runs=runs/plain,runs/decomposed \
    --workdir=runs/landscape

takes the first state and all checkpoints of each run, multiplies factors to
kernels, so that plain and decomposed networks lie in one space, and writes into
--workdir

  landscape.png   contours of the loss on --num_examples training examples, and
                  the paths
  landscape.csv   the loss at each point of the plane: x, y, loss
  paths.csv       a row for each model: run, round, x, y, its own loss, that of
                  the plane's point below it, and its distance from there

(Chen and Qiu 2025, arXiv:2503.08652, Figure 3c; the paper gives no recipe). Let
the runs keep what is to be drawn, such as 25 rounds, with
--config.training.checkpoint_interval=1
--config.training.num_kept_checkpoints=25. With
--config.model.decomposition.atom_init=kernel a decomposed network starts where
the plain one does, as near as so many atoms can be.

--plane=principal has the two directions in which all models vary most;
--plane=ends goes through the first run's start and the ends of the first and
the last run.
"""

from absl import flags

from binaries import command
from tff_algos.experiments import output
from tff_algos.experiments.analyses import landscape, trajectories


def _main() -> None:
  runs = flags.DEFINE_list('runs', None, 'Folders of trained runs.')
  workdir = flags.DEFINE_string('workdir', None, 'Where to write.')
  plane = flags.DEFINE_enum(
    'plane', landscape.PLANES[0], landscape.PLANES, 'Which plane.'
  )
  num_points = flags.DEFINE_integer(
    'num_points', 21, 'Of the grid, on each side.', lower_bound=2
  )
  num_examples = flags.DEFINE_integer(
    'num_examples', 1000, 'Of all training examples.', lower_bound=1
  )
  flags.mark_flags_as_required(['runs', 'workdir'])

  def main() -> None:
    problem = trajectories.read(runs.value, num_examples.value)
    rows = landscape.draw(problem, plane.value, num_points.value, workdir.value)
    for path in problem.trajectories:
      print(path.label)
      own = [row for row in rows if row['run'] == path.label]
      columns = [name for name in rows[0] if name != 'run']
      print(output.table_text(own, columns))

  command.run(main)


if __name__ == '__main__':
  _main()
