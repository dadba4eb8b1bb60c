"""Convergence bounds of filter decomposition, as printed and as they must be.

Chen and Qiu (2025), arXiv:2503.08652, Theorems 5.5 and F.1, for L-smooth and
mu-strongly convex losses. No loss is that in atoms *and* coefficients, whose
product has saddles, so the bounds are about the averaging of convex surrogates.

Steps of rate 2 / (mu (gamma + t)), gamma = max(8 L / mu, steps between
averages). Corrected here, see the tests for counterexamples:

* The last term of Theorem 5.5 is (gamma + 1) mu^2 / 4 |w_1 - w*|^2; the factor
  gamma + 1 of the proof's own v is lost in print.
* The sampling term of M^2 pairs has no M^2 in its denominator: the sum over all
  pairs does not disappear.
* Theorem F.1 needs gamma of at least E / beta.
"""

from typing import NamedTuple


class Problem(NamedTuple):
  """What a bound depends on.

  Attributes:
    smoothness: L, > 0.
    strong_convexity: mu, from 0 (excluded) to L.
    gradient_bound: G, largest norm of a client's gradient.
    heterogeneity_gap: Gamma, F* - mean of the clients' minima, >= 0.
    start_distance: |w_1 - w*|^2.
    averaging_period: Local steps between averages: E, or E / beta for weights
      that travel every 1 / beta rounds.
  """

  smoothness: float
  strong_convexity: float
  gradient_bound: float
  heterogeneity_gap: float
  start_distance: float
  averaging_period: int

  @property
  def step_offset(self) -> float:
    """Returns gamma."""
    condition = 8 * self.smoothness / self.strong_convexity
    return max(condition, self.averaging_period)

  def step_size(self, step: int) -> float:
    """Returns the learning rate of a step, counted from 1."""
    return 2 / (self.strong_convexity * (self.step_offset + step))

  def drift(self, step_size: float) -> float:
    """Returns the bound on the mean of |mean model - client's model|^2."""
    way = (self.averaging_period - 1) * self.gradient_bound
    return 4 * step_size**2 * way**2

  def recursion(self, distance: float, step_size: float) -> float:
    """Returns the bound on |w - w*|^2 after a step, from the last (Eq. 20)."""
    kept = 1 - self.strong_convexity * step_size
    return kept * distance + step_size**2 * self._noise

  def gap(self, num_steps: int, sampling_term: float = 0.0) -> float:
    """Returns the corrected bound on F(w_T) - F*.

    Args:
      num_steps: T, >= 1.
      sampling_term: D; 0 if all clients take part.
    """
    start = (self.step_offset + 1) * self._start
    return self._scale(num_steps) * (self._noise + sampling_term + start)

  def printed_gap(self, num_steps: int, sampling_term: float = 0.0) -> float:
    """Returns the bound as printed, which small problems violate."""
    total = self._noise + sampling_term + self._start
    return self._scale(num_steps) * total

  def num_steps(self, gap: float, sampling_term: float = 0.0) -> float:
    """Returns after how many steps the corrected bound is down at `gap`."""
    return self.gap(1, sampling_term) * (1 + self.step_offset) / gap - (
      self.step_offset
    )

  @property
  def _noise(self):
    """Returns B = 8 (E - 1)^2 G^2 + 6 L Gamma."""
    return 2 * self.drift(1.0) + 6 * self.smoothness * self.heterogeneity_gap

  @property
  def _start(self):
    return self.strong_convexity**2 / 4 * self.start_distance

  def _scale(self, num_steps):
    offset = self.step_offset + num_steps
    return 2 / self.strong_convexity**2 * self.smoothness / offset


def sampling_share(num_clients: int, cohort_size: int) -> float:
  """Returns (M - m) / (m (M - 1)), of D = 4 share (E - 1)^2 G^2 of FedAvg.

  0 if all take part.
  """
  if num_clients == cohort_size:
    return 0.0
  left_out = num_clients - cohort_size
  return left_out / (cohort_size * (num_clients - 1))


def pair_sampling_share(num_clients: int, cohort_size: int) -> float:
  """Returns that of m^2 of M^2 pairs: (M^2 - m^2) / (m^2 (M^2 - 1)).

  The paper takes the pairs as drawn by themselves; they are those of m clients.
  """
  return sampling_share(num_clients**2, cohort_size**2)


def printed_pair_sampling_share(num_clients: int, cohort_size: int) -> float:
  """Returns the share of Theorem 5.5 as printed, M^2 times too small."""
  return pair_sampling_share(num_clients, cohort_size) / num_clients**2
