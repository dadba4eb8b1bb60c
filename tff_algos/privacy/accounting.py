"""Epsilon of a number of releases, and the noise that a budget allows.

By the accountant of privacy loss distributions of `dp_accounting`, for
neighbouring populations that differ by one client, added or removed. Its
discretization rounds towards more loss, so epsilon is an upper bound.
"""

import functools

import dp_accounting
from dp_accounting import pld

from tff_algos.core import errors

# Larger values were seen to change epsilon in the fifth digit, smaller ones to
# take ten times as long.
_DISCRETIZATION = 1e-3
_LARGEST_MULTIPLIER = 1e4


def _accountant() -> pld.PLDAccountant:
  return pld.PLDAccountant(value_discretization_interval=_DISCRETIZATION)


def _event(
  noise_multiplier: float, sampling_prob: float, num_releases: int
) -> dp_accounting.DpEvent:
  release = dp_accounting.GaussianDpEvent(noise_multiplier)
  if sampling_prob < 1:
    release = dp_accounting.PoissonSampledDpEvent(sampling_prob, release)
  return dp_accounting.SelfComposedDpEvent(release, num_releases)


@functools.lru_cache(maxsize=4096)
def epsilon(
  noise_multiplier: float, sampling_prob: float, num_releases: int, delta: float
) -> float:
  """Returns epsilon after some releases; 0 for none.

  Args:
    noise_multiplier: z of each release, > 0.
    sampling_prob: q of Poisson sampling, in (0, 1].
    num_releases: Number of releases, >= 0.
    delta: In (0, 1).
  """
  if not num_releases:
    return 0.0
  accountant = _accountant()
  accountant.compose(_event(noise_multiplier, sampling_prob, num_releases))
  return float(accountant.get_epsilon(delta))


def solve_noise(
  target_epsilon: float, sampling_prob: float, num_releases: int, delta: float
) -> float:
  """Returns the least noise multiplier that keeps to a budget.

  Args:
    target_epsilon: The budget, > 0.
    sampling_prob: q of Poisson sampling, in (0, 1].
    num_releases: Number of releases, >= 1.
    delta: In (0, 1).

  Returns:
    z, at most 1e-3 of it above the least.

  Raises:
    ConfigError: If no multiplier below 10,000 does.
  """

  def spent(multiplier: float) -> float:
    return epsilon(multiplier, sampling_prob, num_releases, delta)

  low, high = 0.0, 1.0
  while spent(high) > target_epsilon:
    low, high = high, 2 * high
    if high > _LARGEST_MULTIPLIER:
      raise errors.ConfigError(
        f'privacy.target_epsilon {target_epsilon:g} with delta {delta:g} needs '
        f'a noise multiplier above {_LARGEST_MULTIPLIER:g} for {num_releases} '
        'releases; raise it, or train fewer rounds'
      )
  while high - low > 1e-3 * high:
    middle = (low + high) / 2
    # Little noise has losses beyond the accountant's range.
    if middle > 0.05 and spent(middle) <= target_epsilon:
      high = middle
    else:
      low = middle
  return high
