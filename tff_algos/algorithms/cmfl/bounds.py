"""Numerical evaluation of CMFL's Theorem 1 for quadratic client objectives.

Che, Li, Chen, He and Zheng (TPDS 2022), section 5. With the step eta_t = 1 /
(mu (t + gamma)) they bound F(w^T) - F^* by terms that fall as 1 / T and a
constant that depends on the heterogeneity Gamma (Eq. 9) and the selection skew
phi (Eq. 10, 11).

Deviations from the paper: it prints gamma = 4 L / mu, but Lemma 3 also needs
gamma >= tau; steps count from 0 here, so the first distance has gamma and not
gamma + 1. phi is negative if a few selected clients have lower minima than the
best committee, and without heterogeneity it is 0 / 0 at the minimum.

K clients with weights p_k (sum 1), d weights; arrays are float64.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tff_algos.numerics import quadratics


@dataclasses.dataclass(frozen=True)
class Objectives(quadratics.Quadratics):
  """The objectives F_k of the clients, strongly convex (Assumption 2).

  Attributes:
    minima: F_k^*, `[K]`.
    weights: p_k, `[K]`, sum 1.
  """

  minima: np.ndarray
  weights: np.ndarray

  @property
  def minimizer(self) -> np.ndarray:
    """Returns w^*, `[d]`."""
    hessian = np.einsum('k,kij->ij', self.weights, self.hessians)
    pull = np.einsum(
      'k,kij,kj->i', self.weights, self.hessians, self.minimizers
    )
    return np.linalg.solve(hessian, pull)

  @property
  def heterogeneity(self) -> float:
    """Returns Gamma = F^* - sum_k p_k F_k^*, >= 0 (Eq. 9)."""
    return self.gap(self.minimizer)

  def values(self, point: np.ndarray) -> np.ndarray:
    """Returns F_k(w), `[K]`."""
    away = point - self.minimizers
    return self.minima + 0.5 * np.einsum(
      'ki,kij,kj->k', away, self.hessians, away
    )

  def gap(self, point: np.ndarray) -> float:
    """Returns F(w) - sum_k p_k F_k^*, the denominator of phi."""
    return float(self.weights @ (self.values(point) - self.minima))

  def mean_of(self, chosen: np.ndarray, values: np.ndarray) -> float:
    """Returns the mean of some clients' values, by their weights.

    Args:
      chosen: Positions, at least one.
      values: `[K]`.
    """
    return float(np.average(values[chosen], weights=self.weights[chosen]))

  def best_committee(self, size: int) -> float:
    """Returns the smallest weighted mean of F_k^* over sets of `size` clients.

    Dinkelbach's iteration: the best set for the current mean has a lower mean,
    until the mean is the smallest.
    """
    mean = np.inf
    chosen = np.argsort(self.minima, kind='stable')[:size]
    while (found := self.mean_of(chosen, self.minima)) < mean:
      mean = found
      cost = self.weights * (self.minima - mean)
      chosen = np.argsort(cost, kind='stable')[:size]
    return mean

  def skew(
    self, selected: np.ndarray, point: np.ndarray, committee: float
  ) -> float:
    """Returns phi (Eq. 10) of a selection at a point; NaN for 0 / 0.

    Args:
      selected: Positions of the clients that are averaged, at least one.
      point: w, `[d]`.
      committee: Of `best_committee`.
    """
    above = self.mean_of(selected, self.values(point)) - committee
    below = self.gap(point)
    return above / below if below else np.nan


def of_ridge_regressions(
  examples: Sequence[tuple[np.ndarray, np.ndarray]],
  loss_scale: float,
  weight_decay: float,
) -> Objectives:
  """Returns loss_scale * mean (x w - y)^2 + weight_decay / 2 |w|^2 of clients.

  Args:
    examples: (x `[n, d]`, y `[n]`) of each client, n >= 1.
    loss_scale: > 0.
    weight_decay: >= 0.

  Raises:
    ValueError: As `Quadratics`.
  """
  terms = quadratics.least_squares(examples, loss_scale, weight_decay)
  best = terms.minimizers
  sizes = np.array([len(y) for _, y in examples], np.float64)
  return Objectives(
    terms.matrices, best, terms.values(best), sizes / sizes.sum()
  )


class Constants(NamedTuple):
  """Constants of the bound.

  Attributes:
    smoothness: L.
    strong_convexity: mu.
    num_local_steps: tau >= 1.
    gradient_bound: G^2, of the mean squared norm of a gradient.
    gradient_variance: sum_k p_k sigma_k^2; 0 for full-batch gradients.
    committee_gap: kappa^2 (Assumption 5).
    heterogeneity: Gamma.
    skew_min: phi_min > 0.
    skew_max: phi_max.
    squared_start: |w^0 - w^*|^2.
  """

  smoothness: float
  strong_convexity: float
  num_local_steps: int
  gradient_bound: float
  gradient_variance: float
  committee_gap: float
  heterogeneity: float
  skew_min: float
  skew_max: float
  squared_start: float

  @property
  def offset(self) -> float:
    """Returns gamma."""
    return step_offset(
      self.smoothness, self.strong_convexity, self.num_local_steps
    )


class Bound(NamedTuple):
  """The right side of the theorem, term by term.

  Attributes:
    steps: Local steps, gradient noise and the committee gap; falls with T.
    spread: Heterogeneity; falls with T.
    start: Distance of the start to the minimizer; falls with T.
    floor: Heterogeneity and selection skew; constant.
  """

  steps: float
  spread: float
  start: float
  floor: float

  @property
  def total(self) -> float:
    """Returns the bound of F(w^T) - F^*."""
    return sum(self)


def step_offset(
  smoothness: float, strong_convexity: float, num_local_steps: int
) -> float:
  """Returns gamma = max(4 L / mu, tau)."""
  return max(4 * smoothness / strong_convexity, float(num_local_steps))


def step(strong_convexity: float, offset: float, index: int) -> float:
  """Returns eta_t = 1 / (mu (t + gamma)).

  Args:
    strong_convexity: mu.
    offset: gamma.
    index: t, number of the local step, from 0.
  """
  return 1 / (strong_convexity * (index + offset))


def theorem(constants: Constants, num_steps: int) -> Bound:
  """Returns the bound after T local steps; infinite unless phi_min > 0.

  Args:
    constants: Of the run.
    num_steps: T >= 0.
  """
  c = constants
  falling = 1 / (num_steps + c.offset)
  ratio = c.skew_max / c.skew_min if c.skew_min > 0 else np.inf
  noise = 32 * c.num_local_steps**2 * c.gradient_bound + c.gradient_variance
  steps = 4 * c.smoothness * noise + 24 * c.smoothness**2 * c.committee_gap
  divisor = 3 * c.strong_convexity**2 * c.skew_min
  return Bound(
    steps=falling * steps / divisor if c.skew_min > 0 else np.inf,
    spread=falling
    * 8
    * c.smoothness**2
    * c.heterogeneity
    / c.strong_convexity**2,
    start=falling * c.smoothness * c.offset * c.squared_start / 2,
    floor=8
    * c.smoothness
    * c.heterogeneity
    * (ratio - 1)
    / (3 * c.strong_convexity),
  )
