"""Moreau envelopes of least-squares risks, by linear algebra.

Client i's risk is f_i(theta) = 1/2 theta' A_i theta - b_i' theta + const. Its
envelope F_i(w) = min_theta f_i(theta) + lambda/2 |theta - w|^2 has the
minimiser (A_i + lambda I)^-1 (b_i + lambda w) and the gradient lambda (w -
minimiser) (Tang, Guo and Guo 2021, Proposition 1). Arrays are float64; N
clients, d weights.
"""

from typing import NamedTuple

import numpy as np


class QuadraticEnvelopes(NamedTuple):
  """The envelopes of N clients.

  Attributes:
    matrices: A_i, symmetric, eigenvalues >= 0, `[N, d, d]`.
    vectors: b_i, `[N, d]`.
    constants: f_i(0), `[N]`.
    proximal_weight: lambda, > 0.
  """

  matrices: np.ndarray
  vectors: np.ndarray
  constants: np.ndarray
  proximal_weight: float

  @property
  def smoothness(self) -> float:
    """Returns L_F, the largest eigenvalue of all A_i lambda/(A_i + lambda)."""
    largest = np.linalg.eigvalsh(self.matrices)[:, -1].max()
    pull = self.proximal_weight
    return float(largest * pull / (largest + pull))

  def minimizers(self, models: np.ndarray) -> np.ndarray:
    """Returns the exact personalized model of each client, `[N, d]`.

    Args:
      models: What it is pulled to, `[N, d]`.
    """
    pull = self.proximal_weight
    identity = np.eye(models.shape[1])
    tilted = self.vectors + pull * models
    return np.linalg.solve(self.matrices + pull * identity, tilted[..., None])[
      ..., 0
    ]

  def gradients(self, models: np.ndarray) -> np.ndarray:
    """Returns grad F_i at each client's row of `models`, `[N, d]`."""
    return self.proximal_weight * (models - self.minimizers(models))

  def values(self, models: np.ndarray) -> np.ndarray:
    """Returns F_i at each client's row of `models`, `[N]`."""
    theta = self.minimizers(models)
    curved = np.einsum('ni,nij,nj->n', theta, self.matrices, theta) / 2
    tilted = np.einsum('ni,ni->n', self.vectors, theta)
    far = np.sum((theta - models) ** 2, axis=1)
    return curved - tilted + self.constants + self.proximal_weight / 2 * far


def of_least_squares(
  examples: list[tuple[np.ndarray, np.ndarray]],
  proximal_weight: float,
  loss_scale: float = 1.0,
  weight_decay: float = 0.0,
) -> QuadraticEnvelopes:
  """Returns the envelopes of loss_scale mean (y - <x, w>)^2.

  Args:
    examples: (x `[n, d]`, y `[n]`) of each client, n >= 1.
    proximal_weight: lambda, > 0.
    loss_scale: > 0.
    weight_decay: Of theta, >= 0: adds weight_decay / 2 |theta|^2.
  """
  matrices, vectors, constants = [], [], []
  for x, y in examples:
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    share = 2 * loss_scale / len(y)
    matrices.append(share * x.T @ x + weight_decay * np.eye(x.shape[1]))
    vectors.append(share * x.T @ y)
    constants.append(share / 2 * y @ y)
  return QuadraticEnvelopes(
    np.stack(matrices), np.stack(vectors), np.array(constants), proximal_weight
  )
