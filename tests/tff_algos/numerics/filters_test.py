"""Tests of kernels in factors against NumPy."""

import numpy as np
import pytest

from tests.testing import draws
from tff_algos.core import errors
from tff_algos.numerics import filters


def test_kernel_is_the_mixture_of_the_atoms():
  factors = filters.FilterFactors(
    draws.normal(5, 4, 3), draws.normal(3, 2, 6, seed=1)
  )
  expected = np.einsum('uvq,qio->uvio', *factors)
  np.testing.assert_allclose(
    filters.build_kernel(factors), expected, rtol=1e-5, atol=1e-6
  )


@pytest.mark.parametrize('num_atoms', [1, 3, 6, 9, 12])
def test_factors_are_as_near_as_eckart_and_young_allow(num_atoms):
  """The error is the root of the squared singular values that are left out."""
  kernel = draws.normal(3, 3, 4, 5)
  factors = filters.factor_kernel(kernel, num_atoms)
  assert factors.atoms.shape == (3, 3, num_atoms)
  assert factors.coefficients.shape == (num_atoms, 4, 5)
  sizes = np.linalg.svd(kernel.reshape(9, 20).astype(float), compute_uv=False)
  left_out = np.sqrt(np.sum(sizes[num_atoms:] ** 2))
  rebuilt = filters.build_kernel(factors)
  distance = np.linalg.norm(rebuilt - kernel)
  np.testing.assert_allclose(distance, left_out, rtol=1e-4, atol=1e-4)


def test_factors_are_balanced_and_their_signs_do_not_depend_on_the_algorithm():
  factors = filters.factor_kernel(draws.normal(3, 3, 4, 5), 4)
  atoms = factors.atoms.numpy().reshape(9, 4)
  coefficients = factors.coefficients.numpy().reshape(4, 20)
  np.testing.assert_allclose(
    np.linalg.norm(atoms, axis=0), np.linalg.norm(coefficients, axis=1), 1e-4
  )
  assert (atoms.sum(axis=0) >= 0).all()


def test_atoms_to_spare_have_unit_norm_and_coefficients_zero():
  """A kernel of one pair of channels has one singular value only."""
  kernel = draws.normal(2, 2, 1, 1)
  factors = filters.factor_kernel(kernel, 6)
  atoms = factors.atoms.numpy().reshape(4, 6)
  np.testing.assert_array_equal(np.linalg.norm(atoms[:, 1:], axis=0), 1)
  np.testing.assert_array_equal(factors.coefficients[1:], 0)
  np.testing.assert_allclose(filters.build_kernel(factors), kernel, rtol=1e-5)


def test_a_kernel_of_zeros_has_factors_of_zeros():
  factors = filters.factor_kernel(np.zeros([3, 3, 2, 2], 'f'), 2)
  np.testing.assert_array_equal(filters.build_kernel(factors), 0)


def test_a_kernel_has_at_least_one_atom():
  with pytest.raises(errors.ConfigError, match='num_atoms must be an int'):
    filters.factor_kernel(draws.normal(3, 3, 1, 1), 0)
