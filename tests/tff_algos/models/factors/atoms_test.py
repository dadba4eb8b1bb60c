"""Tests of initial factors: their variance, and Fourier-Bessel functions."""

import numpy as np
import pytest
from scipy import special

from tff_algos.core import errors
from tff_algos.models.factors import atoms
from tff_algos.numerics import filters


@pytest.mark.parametrize(
  ('initialize', 'expected'),
  [
    (atoms.normal, 2 / (20 * 25)),
    (atoms.fourier_bessel, 2 / (20 * 25)),
    (atoms.uniform, 1 / (36 * 20)),
  ],
)
def test_kernels_have_the_documented_variance(initialize, expected):
  """Of 20,000 entries, over 200 draws of the atoms.

  The variance of a draw's mean square depends on 25 * 9 entries of the atoms
  mostly: relative standard deviation about sqrt(2 / 225) = 0.1 a draw, 0.007
  over the draws. 5 % is seven of them: false alarms below 1e-10.
  """
  squares = []
  for i in range(200):
    kernel = filters.build_kernel(initialize((1, i), (5, 5, 20, 5), 9)).numpy()
    squares.append(np.mean(kernel.astype(float) ** 2))
  np.testing.assert_allclose(np.mean(squares), expected, rtol=0.05)


@pytest.mark.parametrize(
  'initialize', [atoms.normal, atoms.uniform, atoms.fourier_bessel]
)
def test_same_seed_same_factors(initialize):
  def make(*seed):
    return initialize(seed, (5, 5, 2, 3), 4)

  factors = make(1, 2)
  assert factors.atoms.shape == (5, 5, 4)
  assert factors.coefficients.shape == (4, 2, 3)
  np.testing.assert_equal(
    [leaf.numpy() for leaf in factors], [leaf.numpy() for leaf in make(1, 2)]
  )
  assert not np.isclose(factors.coefficients, make(1, 3).coefficients).any()


def test_bessel_agrees_with_scipy():
  x = np.linspace(0, 60, 50)
  for order in (0, 1, 5, 15):
    np.testing.assert_allclose(
      atoms.bessel(order, x), special.jv(order, x), atol=1e-12
    )


@pytest.mark.parametrize(('side', 'count'), [(1, 1), (3, 9), (5, 21)])
def test_basis_is_orthonormal_and_spans_the_disc(side, count):
  """Of 5 x 5 pixels the four in the corners lie outside."""
  basis = atoms.fourier_bessel_basis(side)
  assert basis.shape == (count, side, side)
  flat = basis.reshape(count, -1)
  np.testing.assert_allclose(flat @ flat.T, np.eye(count), atol=1e-8)
  # The smoothest one is a hill; then two slopes, at right angles.
  assert (basis[0][side // 2] > 0).all()


def test_first_functions_are_hill_and_slopes():
  """J_0 at its first root, J_1 with cosine and sine."""
  basis = atoms.fourier_bessel_basis(5)
  middle = (np.arange(5) - 2) / 2.5
  radius = np.hypot(middle[:, None], middle)
  hill = np.where(
    radius <= 1, special.jv(0, special.jn_zeros(0, 1) * radius), 0
  )
  np.testing.assert_allclose(basis[0], hill / np.linalg.norm(hill), atol=1e-8)
  slope = np.where(
    radius <= 1, special.jv(1, special.jn_zeros(1, 1) * radius), 0
  )
  slope = slope * np.divide(middle, radius, where=radius > 0, out=0 * radius)
  np.testing.assert_allclose(basis[1], slope / np.linalg.norm(slope), atol=1e-8)
  np.testing.assert_allclose(basis[2], basis[1].T, atol=1e-8)


@pytest.mark.parametrize(
  ('shape', 'num_atoms', 'has'), [((3, 3, 1, 1), 12, 9), ((3, 5, 1, 1), 1, 0)]
)
def test_more_functions_than_pixels_are_refused(shape, num_atoms, has):
  text = f'has {has} atoms of 3 x [35] pixels, but num_atoms is {num_atoms}'
  with pytest.raises(errors.ConfigError, match=text):
    atoms.fourier_bessel((1, 2), shape, num_atoms)
