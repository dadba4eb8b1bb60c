"""Two-dimensional planes in weight space for training trajectories (PCA).

Li, Xu, Taylor, Studer and Goldstein (2018), arXiv:1712.09913, section 7, plot
one training trajectory over its two principal directions. Chen and Qiu (2025),
arXiv:2503.08652, Figure 3c, show two trajectories and give no recipe: here the
principal directions are those of the points of all trajectories together.
"""

from typing import NamedTuple

import numpy as np

from tff_algos.core import errors

# A second direction shorter than this share of the first is treated as zero.
_LEAST_SHARE = 1e-6


class Plane(NamedTuple):
  """A plane in a space of n weights.

  Attributes:
    origin: Point with coordinates (0, 0), float64 `[n]`.
    directions: Orthonormal, float64 `[2, n]`.
    shares: Share of the points' squared distances from the origin along each
      direction, in [0, 1], float64 `[2]`.
  """

  origin: np.ndarray
  directions: np.ndarray
  shares: np.ndarray

  def coordinates(self, points: np.ndarray) -> np.ndarray:
    """Returns the coordinates of orthogonal projections onto the plane.

    Args:
      points: `[num_points, n]`.

    Returns:
      float64 `[num_points, 2]`.
    """
    return (np.asarray(points, np.float64) - self.origin) @ self.directions.T

  def models(self, places: np.ndarray) -> np.ndarray:
    """Returns models `[num_places, n]` at coordinates `[num_places, 2]`."""
    return self.origin + np.asarray(places) @ self.directions

  def distances(self, points: np.ndarray) -> np.ndarray:
    """Returns distances of models from the plane, float64 `[num_points]`."""
    apart = points - self.models(self.coordinates(points))
    return np.linalg.norm(apart, axis=1)


def principal(points: np.ndarray) -> Plane:
  """Returns the plane through the mean along the two principal directions.

  Computed from the Gram matrix, small for few points: v = X^T u / s.

  Args:
    points: `[num_points, n]`; far fewer points than weights.

  Raises:
    ConfigError: If all lie on one line, or one is not finite.
  """
  rows = np.asarray(points, np.float64)
  origin = rows.mean(axis=0)
  apart = rows - origin
  if not np.isfinite(apart).all():
    raise errors.ConfigError(
      'models that are not finite span no plane; leave out the runs that have '
      'diverged'
    )
  left, squares, _ = np.linalg.svd(apart @ apart.T, hermitian=True)
  lengths = np.sqrt(squares[:2])
  if len(rows) < 2 or lengths[1] <= _LEAST_SHARE * lengths[0]:
    raise errors.ConfigError(
      f'the {len(rows)} models lie on one line, which spans no plane; keep '
      'more checkpoints (config.training.checkpoint_interval, '
      'num_kept_checkpoints) or name another run'
    )
  directions = (apart.T @ left[:, :2] / lengths).T
  # Signs are fixed, so that they do not depend on the library: the last point
  # has positive coordinates.
  signs = np.where(directions @ apart[-1] < 0, -1.0, 1.0)
  directions = directions * signs[:, None]
  along = np.sum((apart @ directions.T) ** 2, axis=0)
  return Plane(origin, directions, along / np.sum(apart**2))
