"""Numerical evaluation of pFedKM's Theorem 1 and the underlying bound.

Tang, Guo and Guo (2021), "Personalized Federated Learning with Clustered
Generalization", appendix. With alpha = beta eta R they bound the mean over T
rounds of 1/K |grad F_K(Omega^t)|^2 (Eq. 24), if eta is small enough
(`largest_learning_rate`) and beta <= 2. The theorem's printed condition has R^2
where the proof has R 2^R; this follows the proof.

K clusters, N clients, d weights; F_k is the mean of the envelopes F_i of
cluster k's clients, and Omega^t holds the cluster models before round t + 1.
"""

from typing import NamedTuple

import numpy as np


class Measured(NamedTuple):
  """What a run's rounds say; `[]` float but for settled_round.

  Attributes:
    mean_squared_gradient: 1/T sum_t 1/K |grad F_K(Omega^t)|^2, the left side.
    model_bound: rho_Omega, the largest Frobenius norm of Omega^t.
    gradient_bound: rho_g, the largest Frobenius norm of grad F_K(Omega^t).
    settled_round: T_C, the last round that changed the partition; 1 if none
      did, which the bound allows, too.
    objective_gap: Delta_F, by how much 1/K sum_k F_k(omega_k) fell.
  """

  mean_squared_gradient: float
  model_bound: float
  gradient_bound: float
  settled_round: int
  objective_gap: float


class Constants(NamedTuple):
  """What the bound depends on, besides T and what was measured.

  Attributes:
    num_clients: N, >= 1.
    num_clusters: K, >= 1.
    num_local_steps: R, >= 1.
    client_learning_rate: eta, > 0.
    server_mixing: beta, from 0 (excluded) to 2.
    proximal_weight: lambda, > 0.
    smoothness: L_F, largest of the F_k, > 0; at most lambda if the risks are
      convex.
    prox_error: delta, root mean square of |theta - exact theta|, >= 0.
  """

  num_clients: int
  num_clusters: int
  num_local_steps: int
  client_learning_rate: float
  server_mixing: float
  proximal_weight: float
  smoothness: float
  prox_error: float

  @property
  def learning_rate_excess(self) -> float:
    """Returns eta over the largest that is proven; > 1 is outside the proof."""
    return self.client_learning_rate / largest_learning_rate(
      self.smoothness, self.num_local_steps
    )

  @property
  def floor(self) -> float:
    """Returns 16 N lambda^2 delta^2, which no number of rounds goes below."""
    return 16 * self.num_clients * (self.proximal_weight * self.prox_error) ** 2


class Bound(NamedTuple):
  """The right side of Eq. 24, term by term.

  Attributes:
    start: 4 Delta_F / (alpha T), what the first models cost.
    moved_models: C_1 K beta^2 / (alpha^2 T), what regrouping does to models.
    moved_gradients: C_2 K / T, what it does to gradients.
    drift: C_3 alpha^2 / beta^2, what R steps between communications cost.
    floor: See `Constants.floor`.
  """

  start: float
  moved_models: float
  moved_gradients: float
  drift: float
  floor: float

  @property
  def total(self) -> float:
    """Returns the sum of the terms."""
    return sum(self)


class Theorem(NamedTuple):
  """Theorem 1 (Eq. 27) for the best step.

  Attributes:
    step: alpha, the least of alpha_0 and beta (C_1 K / (C_3 T))^(1/4).
    bound: Of the mean squared gradient.
  """

  step: float
  bound: float


def largest_learning_rate(smoothness: float, num_local_steps: int) -> float:
  """Returns 1 / (L_F sqrt(432 R 2^R)), the largest eta (before Eq. 18).

  Args:
    smoothness: L_F, > 0.
    num_local_steps: R, >= 1.
  """
  steps = num_local_steps
  return 1 / (smoothness * np.sqrt(432 * steps * 2.0**steps))


def measure(
  models: np.ndarray,
  gradients: np.ndarray,
  assignments: np.ndarray,
  objectives: np.ndarray,
) -> Measured:
  """Returns what T rounds say.

  Args:
    models: Omega^0 to Omega^T, float64 `[T + 1, K, d]`.
    gradients: grad F_K(Omega^t) of the clients that were in the clusters then,
      float64 `[T + 1, K, d]`.
    assignments: Cluster of each client, int `[T + 1, N]`; a cluster's number
      goes on from round to round.
    objectives: F_k(omega_k^t), float64 `[T + 1, K]`.
  """
  changed = (assignments[1:] != assignments[:-1]).any(axis=1)
  squares = np.sum(gradients**2, axis=(1, 2))
  return Measured(
    mean_squared_gradient=float(squares[:-1].mean() / models.shape[1]),
    model_bound=float(np.sqrt(np.sum(models**2, axis=(1, 2)).max())),
    gradient_bound=float(np.sqrt(squares.max())),
    settled_round=1 + int(np.flatnonzero(changed).max(initial=0)),
    objective_gap=float(objectives[0].mean() - objectives[-1].mean()),
  )


def explicit_bound(
  constants: Constants, measured: Measured, num_rounds: int
) -> Bound:
  """Returns the right side of Eq. 24 after so many rounds, >= 1.

  It says something about the left side only if `learning_rate_excess` <= 1.
  """
  mixing, num_clusters = constants.server_mixing, constants.num_clusters
  step = mixing * constants.client_learning_rate * constants.num_local_steps
  moved_models, moved_gradients, drift = _factors(constants, measured)
  return Bound(
    start=4 * measured.objective_gap / (step * num_rounds),
    moved_models=moved_models
    * num_clusters
    * (mixing / step) ** 2
    / num_rounds,
    moved_gradients=moved_gradients * num_clusters / num_rounds,
    drift=drift * (step / mixing) ** 2,
    floor=constants.floor,
  )


def theorem(
  constants: Constants, measured: Measured, num_rounds: int
) -> Theorem:
  """Returns Theorem 1 for so many rounds, >= 1, with the step that it sets.

  `constants.client_learning_rate` does not count. `measured.objective_gap` and
  `measured.gradient_bound` must be > 0.
  """
  mixing, num_clusters = constants.server_mixing, constants.num_clusters
  moved_models, moved_gradients, drift = _factors(constants, measured)
  proven = largest_learning_rate(
    constants.smoothness, constants.num_local_steps
  )
  largest = min(
    moved_models * num_clusters * mixing**2 / (4 * measured.objective_gap),
    np.sqrt(moved_models / moved_gradients) * mixing,
    mixing * constants.num_local_steps * proven,
  )
  step = largest
  if drift:
    root = (moved_models * num_clusters / (drift * num_rounds)) ** 0.25
    step = min(largest, mixing * root)
  settling = 3 * moved_models * num_clusters * mixing**2
  noise = 5 * np.sqrt(moved_models * drift * num_clusters)
  bound = settling / (2 * largest**2 * num_rounds)
  bound += noise / (2 * np.sqrt(num_rounds)) + constants.floor
  return Theorem(float(step), float(bound))


def _factors(constants: Constants, measured: Measured):
  """Returns C_1, C_2 and C_3 of Eq. 24."""
  steps, settled = constants.num_local_steps, measured.settled_round
  error = constants.proximal_weight * constants.prox_error
  return (
    8 * measured.model_bound**2 * settled,
    6 * measured.gradient_bound**2 * settled,
    192
    * constants.num_clients
    * 2.0**steps
    * (error * constants.smoothness / steps) ** 2,
  )
