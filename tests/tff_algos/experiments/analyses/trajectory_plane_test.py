"""The plane on which paths are drawn, against an eigendecomposition."""

import numpy as np
import pytest

from tff_algos.core import errors
from tff_algos.experiments.analyses import trajectory_plane


def _points(seed=0):
  """Nine models of 40 weights, mostly along two directions."""
  generator = np.random.default_rng(seed)
  axes = generator.normal(size=(2, 40))
  places = generator.normal(size=(9, 2)) * [5, 2]
  return 3 + places @ axes + 0.1 * generator.normal(size=(9, 40))


def test_directions_are_the_leading_eigenvectors_of_the_covariance():
  points = _points()
  plane = trajectory_plane.principal(points)
  centred = points - points.mean(axis=0)
  values, vectors = np.linalg.eigh(centred.T @ centred)
  for number in (0, 1):
    expected = vectors[:, -1 - number]
    cosine = plane.directions[number] @ expected
    np.testing.assert_allclose(abs(cosine), 1, atol=1e-9)
    # The sign is that of the last point.
    place = plane.coordinates(points)[-1, number]
    np.testing.assert_allclose(place, abs(centred[-1] @ expected), rtol=1e-6)
    share = values[-1 - number] / values.sum()
    np.testing.assert_allclose(plane.shares[number], share, rtol=1e-6)
  np.testing.assert_allclose(
    plane.directions @ plane.directions.T, np.eye(2), atol=1e-9
  )


def test_places_and_models_belong_to_each_other():
  plane = trajectory_plane.principal(_points())
  places = np.array([[0.0, 0.0], [1.5, -2.0]])
  models = plane.models(places)
  np.testing.assert_allclose(plane.coordinates(models), places, atol=1e-9)
  np.testing.assert_allclose(plane.distances(models), 0, atol=1e-9)
  normal = np.linalg.qr(
    np.column_stack([*plane.directions, np.arange(40.0)])
  ).Q[:, 2]
  lifted = models + 7 * normal
  np.testing.assert_allclose(plane.coordinates(lifted), places, atol=1e-9)
  np.testing.assert_allclose(plane.distances(lifted), 7)


def test_points_that_are_not_finite_span_no_plane():
  points = _points()
  points[1, 2] = np.nan
  with pytest.raises(errors.ConfigError, match='not finite span no plane'):
    trajectory_plane.principal(points)


@pytest.mark.parametrize('count', [1, 2, 5])
def test_points_on_a_line_span_no_plane(count):
  line = np.outer(np.arange(count), np.arange(10.0)) + 1
  with pytest.raises(
    errors.ConfigError, match=f'the {count} models lie on one'
  ):
    trajectory_plane.principal(line)
