"""Strongly convex quadratics, and those of least squares; NumPy, float64."""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from tff_algos.core.structures import Array

# Eigenvalues below this share of the largest count as zero.
_RANK_TOLERANCE = 1e-10


@dataclasses.dataclass(frozen=True)
class Quadratics:
  """F_k(w) = 1/2 (w - w_k^*)' H_k (w - w_k^*) + a constant, k < K.

  Attributes:
    of: What has such a function, for errors.
    hessians: H_k, symmetric and positive definite, `[K, d, d]`.
    minimizers: w_k^*, `[K, d]`.

  Raises:
    ValueError: If one is not strongly convex.
  """

  of: ClassVar[str] = 'client'
  hessians: Array
  minimizers: Array

  def __post_init__(self) -> None:
    for k, values in enumerate(np.linalg.eigvalsh(self.hessians)):
      if values[0] <= _RANK_TOLERANCE * values[-1]:
        raise ValueError(
          f'the objective of {self.of} {k} is not strongly convex: the '
          f'eigenvalues of its Hessian go from {values[0]:.3g} to '
          f'{values[-1]:.3g}; its examples must span all features'
        )

  @property
  def strong_convexity(self) -> float:
    """Returns mu > 0, the smallest eigenvalue of all H_k."""
    return float(np.linalg.eigvalsh(self.hessians).min())

  @property
  def smoothness(self) -> float:
    """Returns L, the largest eigenvalue of all H_k."""
    return float(np.linalg.eigvalsh(self.hessians).max())

  def gradients(self, points: Array) -> Array:
    """Returns grad F_k at one point `[d]`, or at points[..., k, :]."""
    return np.einsum(
      'kij,...kj->...ki', self.hessians, points - self.minimizers
    )


class LeastSquares(NamedTuple):
  """f_k(w) = 1/2 w' A_k w - b_k' w + c_k.

  Attributes:
    matrices: A_k, symmetric, eigenvalues >= 0, `[K, d, d]`.
    vectors: b_k, `[K, d]`.
    constants: c_k, `[K]`.
  """

  matrices: Array
  vectors: Array
  constants: Array

  @property
  def minimizers(self) -> Array:
    """Returns the shortest minimizer of each, `[K, d]`."""
    inverses = np.linalg.pinv(self.matrices, hermitian=True)
    return np.einsum('kij,kj->ki', inverses, self.vectors)

  def values(self, points: Array) -> Array:
    """Returns f_k(points[k]), `[K]`."""
    slopes = np.einsum('kij,kj->ki', self.matrices, points) / 2 - self.vectors
    return np.sum(points * slopes, axis=1) + self.constants


def least_squares(
  examples: Sequence[tuple[Array, Array]],
  loss_scale: float,
  weight_decay: float = 0.0,
) -> LeastSquares:
  """Returns loss_scale * mean (x w - y)^2 + weight_decay / 2 |w|^2.

  Args:
    examples: (x `[n, d]`, y `[n]`) of each; the mean over n = 0 is 0.
    loss_scale: > 0.
    weight_decay: >= 0.
  """
  terms = []
  for x, y in examples:
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    scale = 2 * loss_scale / max(len(y), 1)
    decay = weight_decay * np.eye(x.shape[1])
    terms.append((scale * x.T @ x + decay, scale * x.T @ y, scale / 2 * y @ y))
  return LeastSquares(*map(np.array, zip(*terms, strict=True)))
