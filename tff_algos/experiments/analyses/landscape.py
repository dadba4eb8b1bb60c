r"""Draws the paths of trainings on a plane through the loss.

  python -m binaries.landscape --runs=runs/plain,runs/decomposed \
    --workdir=runs/landscape

takes the first state and all checkpoints of each run, multiplies factors to kernels,
so that plain and decomposed networks lie in one space, and writes into --workdir

  landscape.png   contours of the loss on --num_examples training examples, and
                  the paths
  landscape.csv   the loss at each point of the plane: x, y, loss
  paths.csv       a row for each model: run, round, x, y, its own loss, that of the
                  plane's point below it, and its distance from there

(Chen and Qiu 2025, arXiv:2503.08652, Figure 3c; the paper gives no recipe). Let the
runs keep what is to be drawn, such as 25 rounds, with
--config.training.checkpoint_interval=1 --config.training.num_kept_checkpoints=25.
With --config.model.decomposition.atom_init=kernel a decomposed network starts where
the plain one does, as near as so many atoms can be.

--plane=principal has the two directions in which all models vary most; --plane=ends
goes through the first run's start and the ends of the first and the last run.
"""

import pathlib
from typing import Any

import numpy as np
from absl import flags

from binaries import bounds, command
from tff_algos.experiments import output
from tff_algos.experiments.analyses import trajectories, trajectory_plane
from tff_algos.reports.plotting import landscape_plot, style

PLANES = ('principal', 'ends')
# Of the paths' extent, on each side.
_MARGIN = 0.25


def draw(
  problem: trajectories.Problem, plane: str, num_points: int, folder: str
) -> list[dict[str, Any]]:
  """Writes the picture and the tables; returns the rows of paths.csv.

  Args:
    problem: The paths, and the loss.
    plane: One of `PLANES`.
    num_points: On each side of the grid, >= 2.
    folder: Is made.

  Raises:
    ConfigError: If all models lie on one line.
  """
  paths = problem.trajectories
  if plane == 'ends':
    ends = [paths[0].points[0], paths[0].points[-1], paths[-1].points[-1]]
    found = trajectory_plane.through(np.stack(ends))
  else:
    found = trajectory_plane.principal(
      np.concatenate([p.points for p in paths])
    )
  rows = [row for path in paths for row in _rows(path, found, problem.loss)]
  sides = [_side([row[axis] for row in rows], num_points) for axis in 'xy']
  places = np.stack(np.meshgrid(*sides), axis=-1)
  losses = np.array(
    [[problem.loss(found.models(place)) for place in line] for line in places]
  )
  workdir = pathlib.Path(folder)
  workdir.mkdir(parents=True, exist_ok=True)
  grid = [
    {'x': x, 'y': y, 'loss': loss}
    for (x, y), loss in zip(places.reshape(-1, 2), losses.flat, strict=True)
  ]
  output.write_table(workdir / 'landscape.csv', grid)
  output.write_table(workdir / 'paths.csv', rows)
  with style.applied():
    figure = landscape_plot.draw(
      landscape_plot.Surface(*sides, losses),
      [
        landscape_plot.Path(
          f'{p.label}, to round {p.rounds[-1]}', found.coordinates(p.points)
        )
        for p in paths
      ],
      'Loss on a plane through the models of the rounds',
      [f'direction {i + 1} ({s:.0%})' for i, s in enumerate(found.shares)],
    )
    (workdir / 'landscape.png').write_bytes(style.to_png(figure))
  return rows


def _rows(path, plane, loss):
  places = plane.coordinates(path.points)
  distances = plane.distances(path.points)
  return [
    {
      'run': path.label,
      'round': round_num,
      'x': place[0],
      'y': place[1],
      'loss': loss(point),
      'loss_on_plane': loss(plane.models(place)),
      'distance': distance,
    }
    for round_num, place, point, distance in zip(
      path.rounds, places, path.points, distances, strict=True
    )
  ]


def _side(values, num_points):
  low, high = min(values), max(values)
  margin = _MARGIN * (high - low)
  return np.linspace(low - margin, high + margin, num_points)


def _main() -> None:
  runs = flags.DEFINE_list('runs', None, 'Folders of trained runs.')
  workdir = flags.DEFINE_string('workdir', None, 'Where to write.')
  plane = flags.DEFINE_enum('plane', PLANES[0], PLANES, 'Which plane.')
  num_points = flags.DEFINE_integer(
    'num_points', 21, 'Of the grid, on each side.', lower_bound=2
  )
  num_examples = flags.DEFINE_integer(
    'num_examples', 1000, 'Of all training examples.', lower_bound=1
  )
  flags.mark_flags_as_required(['runs', 'workdir'])

  def main() -> None:
    problem = trajectories.read(runs.value, num_examples.value)
    rows = draw(problem, plane.value, num_points.value, workdir.value)
    for path in problem.trajectories:
      print(path.label)
      own = [row for row in rows if row['run'] == path.label]
      print(bounds.table(own, tuple(name for name in rows[0] if name != 'run')))

  command.run(main)


if __name__ == '__main__':
  _main()
