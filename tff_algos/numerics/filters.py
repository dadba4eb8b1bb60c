"""Filter decomposition of convolution kernels into atoms and coefficients.

A kernel `[height, width, inputs, outputs]` is sum_q atoms[:, :, q] *
coefficients[q]: every pair of channels mixes the same atoms with coefficients
of its own (Qiu et al. 2018, "DCFNet"; Chen and Qiu 2025, section 3).

Any invertible matrix R turns (coefficients R, R^-1 atoms) into factors of the
same kernel. So distances, variances and means of *factors* mean something only
between factors that came from one start; kernels can always be compared.
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


class Factored(NamedTuple):
  """What `factor_kernel` returns.

  Attributes:
    factors: Of the kernel, or of the nearest that has so few atoms.
    relative_error: |kernel - rebuilt kernel| / |kernel|, float32 `[]`; 0 of a
      kernel that is 0.
  """

  factors: FilterFactors
  relative_error: tf.Tensor


def build_kernel(factors: FilterFactors) -> tf.Tensor:
  """Returns the kernel, `[height, width, inputs, outputs]`."""
  # A matrix product: TensorFlow's einsum costs several times as much to start.
  return tf.tensordot(factors.atoms, factors.coefficients, axes=1)


def factor_kernel(kernel: tf.Tensor, num_atoms: int) -> Factored:
  """Returns the factors that come nearest to a kernel in the least squares.

  The singular value decomposition of the kernel as a matrix `[height * width,
  inputs * outputs]`, each factor taking the root of the singular values. It is
  exact for as many atoms as a filter has pixels (Eckart and Young 1936: else no
  factors are nearer). Atoms beyond the number of singular values are unit
  vectors of one pixel with coefficients 0: they change no kernel, and may be
  learnt.

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
  # A decomposition may turn both signs at will: the sum of an atom is >= 0.
  signs = tf.where(tf.reduce_sum(left, axis=0) < 0, -1.0, 1.0)
  roots = (signs * tf.sqrt(sizes))[:rank]
  atoms = left[:, :rank] * roots
  coefficients = tf.transpose(right[:, :rank] * roots)
  missing = num_atoms - rank
  spare = tf.one_hot(tf.range(missing) % pixels, pixels, axis=0)
  atoms = tf.concat([atoms, spare], axis=1)
  coefficients = tf.pad(coefficients, [[0, missing], [0, 0]])
  error = tf.math.divide_no_nan(tf.norm(sizes[rank:]), tf.norm(sizes))
  factors = FilterFactors(
    tf.reshape(atoms, [height, width, num_atoms]),
    tf.reshape(coefficients, [num_atoms, inputs, outputs]),
  )
  return Factored(factors, error)
