"""Initial factors of decomposed convolutions.

The paper (Chen and Qiu 2025) does not give its initialization. With
coefficients of variance 2 / (inputs * num_atoms) and atoms whose squared norm
is 1 on average, an entry of the kernel has variance 2 / (inputs * height *
width), the initialization of He et al. (2015) for layers with ReLU.
"""

import functools

import numpy as np
import tensorflow as tf

from tff_algos.core import errors
from tff_algos.numerics import filters, index_random

# A filter of side s needs Bessel functions up to an order and a root of about
# its number of pixels; our largest filters have 7 x 7.
_MAX_ORDER = 16
_NUM_ROOTS = 16


def normal(
  seed: tf.Tensor, kernel_shape: tuple[int, ...], num_atoms: int
) -> filters.FilterFactors:
  """Returns normal atoms and coefficients; the kernel has He's variance."""
  height, width, inputs, outputs = kernel_shape
  return filters.FilterFactors(
    tf.random.stateless_normal(
      [height, width, num_atoms],
      index_random.fold_in(seed, 0),
      stddev=(height * width) ** -0.5,
    ),
    _he_coefficients(seed, inputs, outputs, num_atoms),
  )


def uniform(
  seed: tf.Tensor, kernel_shape: tuple[int, ...], num_atoms: int
) -> filters.FilterFactors:
  """Returns uniform factors as in DCFNet's published code.

  Atoms in +-1/2, coefficients in +-1 / sqrt(inputs * num_atoms); entries of the
  kernel have variance 1 / (36 inputs).
  """
  height, width, inputs, outputs = kernel_shape
  bound = (inputs * num_atoms) ** -0.5
  return filters.FilterFactors(
    tf.random.stateless_uniform(
      [height, width, num_atoms], index_random.fold_in(seed, 0), -0.5, 0.5
    ),
    tf.random.stateless_uniform(
      [num_atoms, inputs, outputs], index_random.fold_in(seed, 1), -bound, bound
    ),
  )


def fourier_bessel(
  seed: tf.Tensor, kernel_shape: tuple[int, ...], num_atoms: int
) -> filters.FilterFactors:
  """Returns Fourier-Bessel atoms, the smoothest first (Qiu et al. 2018).

  Raises:
    ConfigError: If there are fewer than `num_atoms`, or the filter is not
      square.
  """
  height, width, inputs, outputs = kernel_shape
  basis = fourier_bessel_basis(height) if height == width else []
  if len(basis) < num_atoms:
    raise errors.ConfigError(
      f"atom_init 'fourier_bessel' has {len(basis)} atoms of {height} x "
      f'{width} '
      f'pixels, but num_atoms is {num_atoms}; take fewer, or atom_init '
      "'normal'"
    )
  atoms = np.moveaxis(basis[:num_atoms], 0, -1).astype(np.float32)  # pyright: ignore[reportArgumentType]
  return filters.FilterFactors(
    tf.constant(atoms), _he_coefficients(seed, inputs, outputs, num_atoms)
  )


@functools.cache
def fourier_bessel_basis(side: int) -> np.ndarray:
  """Returns orthonormal Fourier-Bessel functions on a square of pixels.

  J_n(r_{n,i} rho) cos(n phi) and sin(n phi) on the disc around the square's
  middle whose radius is half a side, by ascending frequency r_{n,i}. They are
  orthogonalized in this order (Gram-Schmidt on the pixels); functions that
  depend linearly on earlier ones are left out.

  Args:
    side: Pixels of a side, >= 1.

  Returns:
    float64 `[at most side**2, side, side]`: one function for each pixel of the
    disc.
  """
  middle = (np.arange(side) - (side - 1) / 2) / (side / 2)
  rows, columns = np.meshgrid(middle, middle, indexing='ij')
  radius, angle = np.hypot(rows, columns), np.arctan2(rows, columns)
  inside = radius <= 1
  frequencies = [
    (root, order) for order in range(_MAX_ORDER) for root in _roots(order)
  ]
  basis = []
  for root, order in sorted(frequencies):
    radial = inside * bessel(order, root * radius)
    turns = [np.cos] if order == 0 else [np.cos, np.sin]
    for turn in turns:
      function = radial * turn(order * angle)
      size = np.linalg.norm(function)
      for other in basis:
        function = function - np.sum(function * other) * other
      if np.linalg.norm(function) > 1e-6 * max(size, 1):
        basis.append(function / np.linalg.norm(function))
  return np.array(basis)


def bessel(order: int, x: np.ndarray) -> np.ndarray:
  """Returns the Bessel function of the first kind, of an order >= 0.

  Bessel's integral by the trapezoidal rule, exact up to rounding if
  |x| + order is below its 256 points.
  """
  angles = 2 * np.pi * np.arange(256) / 256
  phase = order * angles - np.asarray(x)[..., np.newaxis] * np.sin(angles)
  return np.cos(phase).mean(axis=-1)


def _roots(order):
  """Returns the first positive roots of a Bessel function, by bisection."""
  # Roots are more than 2 apart, and the first is larger than the order.
  grid = np.arange(order + 0.5, order + 0.5 + 5 * _NUM_ROOTS, 0.5)
  signs = np.sign(bessel(order, grid))
  begins = np.flatnonzero(signs[:-1] * signs[1:] < 0)[:_NUM_ROOTS]
  low, high = grid[begins], grid[begins + 1]
  for _ in range(50):
    middle = (low + high) / 2
    is_left = np.sign(bessel(order, middle)) == signs[begins]
    low, high = np.where(is_left, middle, low), np.where(is_left, high, middle)
  return (low + high) / 2


def _he_coefficients(seed, inputs, outputs, num_atoms):
  return tf.random.stateless_normal(
    [num_atoms, inputs, outputs],
    index_random.fold_in(seed, 1),
    stddev=(2 / (inputs * num_atoms)) ** 0.5,
  )
