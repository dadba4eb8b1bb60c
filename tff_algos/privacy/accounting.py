"""Epsilon of a number of releases, and the noise that a budget allows.

Independent releases of Poisson samples are accounted by privacy loss
distributions of `dp_accounting`, for neighbouring populations that differ by
one client, added or removed. Its discretization rounds towards more loss, so
epsilon is an upper bound.

Releases by tree aggregation are accounted by Renyi divergences, for populations
that differ by one client whose contribution is replaced by zeros: its place in
the order stays (Kairouz et al. 2021, arXiv:2103.00039, Definition 1.1 and
Appendix D). They are bounds, too.
"""

import functools
from typing import NamedTuple

import dp_accounting
from dp_accounting import pld, rdp

from tff_algos.core import errors

# The loss of each release is rounded up to a multiple of these, and that adds
# up: 20,000 releases of z = 5 and q = 0.001 have epsilon 0.18 with the coarse
# interval, and 0.09 with the fine one, which takes seconds where z is small.
_INTERVAL, _FINE_INTERVAL = 1e-3, 1e-4
_FINE_FROM_NOISE = 2.0
_LARGEST_MULTIPLIER = 2.0**13
# With less noise the accountant of Poisson sampling fails or takes all memory,
# and that of trees may find no finite epsilon.
_LEAST_MULTIPLIER = 0.1


class Participation(NamedTuple):
  """When a client takes part.

  Attributes:
    sampling_prob: q of Poisson sampling, in (0, 1].
    epoch_releases: Releases of an epoch of tree aggregation, in which each
      client takes part once; 0 for Poisson sampling.
  """

  sampling_prob: float = 1.0
  epoch_releases: int = 0


def _compose_poisson(
  noise_multiplier: float, sampling_prob: float, num_releases: int
) -> dp_accounting.PrivacyAccountant:
  release = dp_accounting.GaussianDpEvent(noise_multiplier)
  if sampling_prob < 1:
    release = dp_accounting.PoissonSampledDpEvent(sampling_prob, release)
  is_fine = noise_multiplier >= _FINE_FROM_NOISE
  accountant = pld.PLDAccountant(
    value_discretization_interval=_FINE_INTERVAL if is_fine else _INTERVAL
  )
  return accountant.compose(release, num_releases)


def _compose_trees(
  noise_multiplier: float, epoch_releases: int, num_releases: int
) -> dp_accounting.PrivacyAccountant:
  accountant = rdp.RdpAccountant(
    neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_SPECIAL
  )
  num_epochs, rest = divmod(num_releases, epoch_releases)
  for steps, count in ((epoch_releases, num_epochs), (rest, 1)):
    if steps and count:
      accountant.compose(
        dp_accounting.SingleEpochTreeAggregationDpEvent(
          noise_multiplier, steps
        ),
        count,
      )
  return accountant


@functools.lru_cache(maxsize=4096)
def epsilon(
  noise_multiplier: float,
  participation: Participation,
  num_releases: int,
  delta: float,
) -> float:
  """Returns epsilon after some releases; 0 for none.

  Args:
    noise_multiplier: z of each release, or of each node of the trees, > 0.
    participation: When a client takes part.
    num_releases: Number of releases, >= 0.
    delta: In (0, 1).

  Raises:
    ConfigError: If the noise is too little to be accounted for.
  """
  if not num_releases:
    return 0.0
  if noise_multiplier < _LEAST_MULTIPLIER:
    raise errors.ConfigError(
      f'a noise multiplier of {noise_multiplier:g} cannot be accounted for; '
      f'set privacy.noise_multiplier to {_LEAST_MULTIPLIER:g} or more'
    )
  if participation.epoch_releases:
    accountant = _compose_trees(
      noise_multiplier, participation.epoch_releases, num_releases
    )
  else:
    accountant = _compose_poisson(
      noise_multiplier, participation.sampling_prob, num_releases
    )
  return float(accountant.get_epsilon(delta))


def solve_noise(
  target_epsilon: float,
  participation: Participation,
  num_releases: int,
  delta: float,
) -> float:
  """Returns the least noise multiplier that keeps to a budget.

  Args:
    target_epsilon: The budget, > 0.
    participation: When a client takes part.
    num_releases: Number of releases, >= 1.
    delta: In (0, 1).

  Returns:
    z, at most 1e-3 of it above the least that is not below 0.1.

  Raises:
    ConfigError: If no multiplier up to 8,192 does.
  """

  def spent(multiplier: float) -> float:
    return epsilon(multiplier, participation, num_releases, delta)

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
    if middle > _LEAST_MULTIPLIER and spent(middle) <= target_epsilon:
      high = middle
    else:
      low = middle
  return high
