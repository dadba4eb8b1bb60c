"""Filter decomposition of convolution kernels into atoms and coefficients.

A kernel `[height, width, inputs, outputs]` is sum_q atoms[:, :, q] *
coefficients[q]: every pair of channels mixes the same atoms with its own
coefficients (Qiu et al. 2018, "DCFNet"; Chen and Qiu 2025, section 4).

Any invertible matrix R turns (coefficients R, R^-1 atoms) into factors of the
same kernel. So distances, variances and means of *factors* are meaningful only
between factors with the same initialization; kernels can always be compared.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from tff_algos.core import checks


class FilterFactors(NamedTuple):
  """A kernel in factors.

  Attributes:
    atoms: D, `[height, width, num_atoms]`.
    coefficients: alpha, `[num_atoms, inputs, outputs]`.
  """

  atoms: tf.Tensor
  coefficients: tf.Tensor


def build_kernel(factors: FilterFactors) -> tf.Tensor:
  """Returns the kernel, `[height, width, inputs, outputs]`."""
  # A matrix product: TensorFlow's einsum costs several times as much to start.
  return tf.tensordot(factors.atoms, factors.coefficients, axes=1)


def factor_kernel(kernel: tf.Tensor, num_atoms: int) -> FilterFactors:
  """Returns the least-squares factors of a kernel.

  The truncated singular value decomposition of the kernel as a matrix `[height
  * width, inputs * outputs]`; each factor takes the square root of the singular
  values. It is the best approximation with that many atoms (Eckart and Young
  1936), and exact with as many atoms as a filter has pixels. Atoms beyond the
  number of singular values are unit vectors of one pixel with coefficients 0:
  they do not change the kernel, and can be trained.

  Args:
    kernel: `[height, width, inputs, outputs]`, static.
    num_atoms: >= 1.

  Raises:
    ConfigError: If `num_atoms` is out of range.
  """
  checks.check_int('num_atoms', num_atoms, minimum=1)
  shape: Any = kernel.shape
  height, width, inputs, outputs = shape
  pixels, pairs = height * width, inputs * outputs
  matrix = tf.reshape(kernel, [pixels, pairs])
  sizes, left, right = tf.linalg.svd(matrix)
  rank = min(num_atoms, pixels, pairs)
  # Signs of singular vectors are arbitrary: make the sum of each atom >= 0.
  signs = tf.where(tf.reduce_sum(left, axis=0) < 0, -1.0, 1.0)
  roots = (signs * tf.sqrt(sizes))[:rank]
  atoms = left[:, :rank] * roots
  coefficients = tf.transpose(right[:, :rank] * roots)
  missing = num_atoms - rank
  spare = tf.one_hot(tf.range(missing) % pixels, pixels, axis=0)
  atoms = tf.concat([atoms, spare], axis=1)
  coefficients = tf.pad(coefficients, [[0, missing], [0, 0]])
  return FilterFactors(
    tf.reshape(atoms, [height, width, num_atoms]),
    tf.reshape(coefficients, [num_atoms, inputs, outputs]),
  )
