"""Paths over a loss whose every value is known."""

import numpy as np

from tests.testing import csv_files
from tff_algos.experiments.analyses import landscape, trajectories

_CENTER = np.linspace(-1, 1, 20)


def _loss(point):
  """A bowl around `_CENTER` that is twice as steep in the first weights."""
  steepness = np.where(np.arange(20) < 10, 2.0, 1.0)
  return float(1 + np.sum(steepness * (point - _CENTER) ** 2))


def _problem():
  """Two descents of six steps, from different starts."""
  generator = np.random.default_rng(0)
  paths = []
  for label in ('plain', 'factors'):
    point = generator.normal(size=20)
    points = [point]
    for _ in range(6):
      noise = 0.05 * generator.normal(size=20)
      points.append(points[-1] + 0.3 * (_CENTER - points[-1]) + noise)
    paths.append(
      trajectories.Trajectory(label, tuple(range(7)), np.stack(points))
    )
  return trajectories.Problem(paths, _loss)


def _read(path):
  return [
    {
      name: value if name == 'run' else float(value)
      for name, value in row.items()
    }
    for row in csv_files.read(path)
  ]


def test_the_grid_has_the_losses_of_the_plane(tmp_path):
  (tmp_path / 'earlier.png').write_text('earlier')
  (tmp_path / 'landscape.png').hardlink_to(tmp_path / 'earlier.png')
  problem = _problem()
  landscape.draw(problem, 4, tmp_path)
  points = np.concatenate([one.points for one in problem.trajectories])
  middle = points.mean(axis=0)
  vectors = np.linalg.eigh((points - middle).T @ (points - middle))[1]
  axes = vectors[:, [-1, -2]] * np.sign(
    (points[-1] - middle) @ vectors[:, [-1, -2]]
  )
  paths = _read(tmp_path / 'paths.csv')
  assert [row['run'] for row in paths] == ['plain'] * 7 + ['factors'] * 7
  for row, point in zip(paths, points, strict=True):
    place = (point - middle) @ axes
    np.testing.assert_allclose([row['x'], row['y']], place, atol=1e-9)
    below = middle + axes @ place
    np.testing.assert_allclose(row['loss'], _loss(point))
    np.testing.assert_allclose(row['loss_on_plane'], _loss(below))
    np.testing.assert_allclose(
      row['distance'], np.linalg.norm(point - below), atol=1e-9
    )
  grid = _read(tmp_path / 'landscape.csv')
  assert len(grid) == 16
  for row in grid:
    expected = _loss(middle + axes @ [row['x'], row['y']])
    np.testing.assert_allclose(row['loss'], expected)
  # All models are inside, a quarter of their extent from the rim.
  for axis in 'xy':
    inside = [row[axis] for row in paths]
    extent = max(inside) - min(inside)
    rim = min(row[axis] for row in grid), max(row[axis] for row in grid)
    np.testing.assert_allclose(min(inside) - rim[0], extent / 4)
    np.testing.assert_allclose(rim[1] - max(inside), extent / 4)
  assert (tmp_path / 'landscape.png').read_bytes().startswith(b'\x89PNG')
  # The picture is replaced, not written in place.
  assert (tmp_path / 'earlier.png').read_text() == 'earlier'


def test_one_run_has_a_plane(tmp_path):
  (path, _) = _problem().trajectories
  problem = trajectories.Problem([path], _loss)
  assert len(landscape.draw(problem, 2, tmp_path)) == 7
