"""Training trajectories on a plane of the loss landscape.

After Figure 3c of Chen and Qiu (2025), arXiv:2503.08652, which gives no recipe.
"""

import pathlib
from typing import Any

import numpy as np

from tff_algos.core import durable
from tff_algos.experiments import tables
from tff_algos.experiments.analyses import trajectories, trajectory_plane
from tff_algos.reports.plotting import landscape_plot, style

# Margin on each side, as a share of the trajectories' extent.
_MARGIN = 0.25


def draw(
  problem: trajectories.Problem, num_points: int, folder: str
) -> list[dict[str, Any]]:
  """Writes the picture and the tables; returns the rows of paths.csv.

  Args:
    problem: Trajectories and loss.
    num_points: Grid points on each side, >= 2.
    folder: Output folder; created if missing.

  Raises:
    ConfigError: If all models lie on one line, or one is not finite.
  """
  paths = problem.trajectories
  found = trajectory_plane.principal(np.concatenate([p.points for p in paths]))
  rows = [row for path in paths for row in _rows(path, found, problem.loss)]
  sides = [_side([row[axis] for row in rows], num_points) for axis in 'xy']
  places = np.stack(np.meshgrid(*sides), axis=-1)
  losses = np.array(
    [[problem.loss(found.models(place)) for place in line] for line in places]
  )
  workdir = pathlib.Path(folder)
  grid = [
    {'x': x, 'y': y, 'loss': loss}
    for (x, y), loss in zip(places.reshape(-1, 2), losses.flat, strict=True)
  ]
  tables.write_table(workdir / 'landscape.csv', grid)
  tables.write_table(workdir / 'paths.csv', rows)
  with style.applied():
    figure = landscape_plot.draw(
      landscape_plot.Surface(sides[0], sides[1], losses),
      [
        landscape_plot.Path(
          f'{p.label}, to round {p.rounds[-1]}', found.coordinates(p.points)
        )
        for p in paths
      ],
      'Loss on a plane through the models of the rounds',
      [f'direction {i + 1} ({s:.0%})' for i, s in enumerate(found.shares)],
    )
    png = style.to_png(figure)
  with durable.replacing(workdir / 'landscape.png', 'wb') as file:
    file.write(png)
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
