"""Moreau envelopes of least-squares risks, by linear algebra.

Client i's risk is f_i(theta) = 1/2 theta' A_i theta - b_i' theta + const. Its
envelope F_i(w) = min_theta f_i(theta) + lambda/2 |theta - w|^2 has the
minimiser (A_i + lambda I)^-1 (b_i + lambda w) and the gradient lambda (w -
minimiser) (Tang, Guo and Guo 2021, Proposition 1). Arrays are float64; N
clients, d weights.
"""

from typing import NamedTuple

import numpy as np

from tff_algos.numerics import quadratics


class QuadraticEnvelopes(NamedTuple):
  """The envelopes of N clients.

  Attributes:
    risks: f_i, with A_i, b_i and f_i(0).
    proximal_weight: lambda, > 0.
  """

  risks: quadratics.LeastSquares
  proximal_weight: float

  @property
  def smoothness(self) -> float:
    """Returns L_F, the largest eigenvalue of all A_i lambda/(A_i + lambda)."""
    largest = np.linalg.eigvalsh(self.risks.matrices)[:, -1].max()
    pull = self.proximal_weight
    return float(largest * pull / (largest + pull))

  def minimizers(self, models: np.ndarray) -> np.ndarray:
    """Returns the exact personalized model of each client, `[N, d]`.

    Args:
      models: What it is pulled to, `[N, d]`.
    """
    pull = self.proximal_weight
    matrices = self.risks.matrices + pull * np.eye(models.shape[1])
    tilted = self.risks.vectors + pull * models
    return np.linalg.solve(matrices, tilted[..., None])[..., 0]

  def gradients(self, models: np.ndarray) -> np.ndarray:
    """Returns grad F_i at each client's row of `models`, `[N, d]`."""
    return self.proximal_weight * (models - self.minimizers(models))

  def values(self, models: np.ndarray) -> np.ndarray:
    """Returns F_i at each client's row of `models`, `[N]`."""
    theta = self.minimizers(models)
    far = np.sum((theta - models) ** 2, axis=1)
    return self.risks.values(theta) + self.proximal_weight / 2 * far
