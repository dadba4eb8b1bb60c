"""Quadratic risks of source distributions, as linear regression has them.

What a centre loses on a source, how often it takes another's examples, and
where FedSoft's centres end (Ruan and Joe-Wong, "FedSoft: Soft Clustered
Federated Learning with Proximal Local Updating", 2021).

Arrays are float64. S sources, d weights, N clients.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from tff_algos.numerics import quadratics


@dataclasses.dataclass(frozen=True)
class QuadraticRisks(quadratics.Quadratics):
  """The risks F_s of the sources, strongly convex (Assumption 3).

  Their minimizers are c_s^*, mu_F and L_F their constants.

  Raises:
    ValueError: If there are fewer than two sources, or as `Quadratics`.
  """

  of = 'source'

  def __post_init__(self):
    if len(self.hessians) < 2:
      raise ValueError('the theorems compare sources: at least 2 are needed')
    super().__post_init__()

  @property
  def gaps(self) -> tuple[float, float]:
    """Returns delta and Delta, the least and largest |c_s^* - c_s'^*|."""
    pairs = np.triu_indices(len(self.minimizers), 1)
    between = np.diff(self.minimizers[np.stack(pairs, 1)], axis=1)
    lengths = np.linalg.norm(between, axis=-1)
    return float(lengths.min()), float(lengths.max())


def misassignment(
  centers: np.ndarray, examples: Sequence[tuple[np.ndarray, np.ndarray]]
) -> float:
  """Returns p: how often another centre fits an example better than its own.

  The largest share over pairs of sources, by squared error (Theorem 1).

  Args:
    centers: c, `[S, d]`.
    examples: (x `[n, d]`, y `[n]`) of each source, n >= 1.
  """
  shares = []
  for s, (x, y) in enumerate(examples):
    losses = (x @ centers.T - y[:, None]) ** 2
    wrong = (losses < losses[:, [s]]).mean(axis=0)
    shares.append(np.delete(wrong, s).max())
  return float(max(shares))


def fixed_centers(
  risks: QuadraticRisks,
  mixture: np.ndarray,
  importance: np.ndarray,
  num_examples: np.ndarray,
  proximal_weight: float,
) -> np.ndarray:
  """Returns where the centres end if the importance stays, `[S, d]`.

  The fixed point of exact local solves (Eq. 4) and the weighted mean of all
  clients (Eq. 27). With perfect importance, u^t = u, and Hessian 1 everywhere
  it is ((1 + lambda) I - lambda M)^-1 M c^*, M being the mean mixture of those
  that a centre averages. It is not c^*: clients that are mixtures draw the
  centres together, which Theorem 4 does not show.

  Args:
    risks: Of the sources.
    mixture: u, the true shares of the sources, `[N, S]`; rows sum to 1.
    importance: u^t, the estimate, `[N, S]`, >= 0; a centre in which
      everybody has 0 averages by examples.
    num_examples: n_k, `[N]`, >= 0; 0 leaves a client out.
    proximal_weight: lambda, >= 0.
  """
  num_sources, size = risks.minimizers.shape
  sizes = np.asarray(num_examples, np.float64)[:, None]
  weights = importance * sizes
  weights += sizes * (weights.sum(axis=0) == 0)
  weights /= weights.sum(axis=0)
  targets = np.einsum('sij,sj->si', risks.hessians, risks.minimizers)
  matrix = np.eye(num_sources * size)
  right = np.zeros((num_sources, size))
  for k in np.flatnonzero(num_examples):
    true, estimated, weight = mixture[k], importance[k], weights[k]
    hessian = np.tensordot(true, risks.hessians, axes=1)
    pull = proximal_weight * estimated.sum() * np.eye(size)
    solve = np.linalg.inv(hessian + pull)
    matrix -= proximal_weight * np.kron(np.outer(weight, estimated), solve)
    right += np.outer(weight, solve @ (true @ targets))
  return np.linalg.solve(matrix, right.ravel()).reshape(num_sources, size)
