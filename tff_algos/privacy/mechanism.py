"""Options of differential privacy, and the noise of one release.

A release is the noisy sum of clipped contributions, one a client. What is
released together shares one Gaussian mechanism: with noise multipliers z_j of
its parts, the whole has 1 / z^2 = sum_j 1 / z_j^2 (Andrew, Thakkar, McMahan and
Ramaswamy, "Differentially Private Learning with Adaptive Clipping" (NeurIPS
2021), arXiv:1905.03871, Theorem 1). Options set the share of 1 / z^2 that goes
to each part.
"""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

from tff_algos.core import checks, errors
from tff_algos.core import config as config_lib

# Budgets are met up to the rounding of a sum of losses.
_SLACK = 1e-9

# Least and largest norm at which contributions are clipped.
CLIP_NORMS = (1e-6, 1e6)


def _check_at_most(name: str, value: float, maximum: float) -> None:
  if value > maximum:
    raise errors.ConfigError(
      f'privacy.{name} must be at most {maximum:g}, got {value:g}'
    )


@dataclasses.dataclass(frozen=True)
class AdaptiveClippingConfig:
  """Options of the clipping norm that follows a quantile (Andrew et al. 2021).

  Attributes:
    target_quantile: gamma, share of the clients whose contribution is not
      clipped, in (0, 1]; 0 keeps the clipping norm fixed.
    learning_rate: eta_C of the geometric update, in (0, 10].
    share: Share of 1 / z^2 that goes to the count of clients below the norm, in
      (0, 1).
  """

  target_quantile: float = 0.0
  learning_rate: float = 0.2
  share: float = 0.01

  def __post_init__(self):
    checks.check_fraction('target_quantile', self.target_quantile)
    checks.check_positive('learning_rate', self.learning_rate)
    _check_at_most('adaptive_clipping.learning_rate', self.learning_rate, 10)
    checks.check_proper_share('share', self.share)


@dataclasses.dataclass(frozen=True)
class PrivacyConfig:
  """Options of user-level differential privacy; off by default.

  Attributes:
    noise_multiplier: z, deviation of the noise in units of the sensitivity, 0
      or at least 0.1, as `accounting.epsilon` needs. Privacy is on if this or
      `target_epsilon` is above 0; if both are, training stops before the target
      is exceeded.
    target_epsilon: Budget, >= 0; 0 for none. Without `noise_multiplier`, the
      noise is solved such that `num_rounds` rounds spend it.
    delta: delta of (epsilon, delta), in [1e-12, 1).
    num_rounds: Rounds for which the noise is solved, >= 0; 0 for the rounds of
      the run. Set it where further runs continue this one.
    sampling_prob: q of Poisson sampling: each client with examples takes part
      in a phase with this probability, independently, in (0, 1].
    rounds_per_epoch: Rounds in which each client takes part once, in a fixed
      order, and whose noise is that of tree aggregation (DP-FTRL), >= 1; 0 for
      Poisson sampling and independent noise.
    clip_norm: L2 norm at which a client's contribution, all fields and clusters
      together, is clipped, in [1e-6, 1e6]; the initial one with adaptive
      clipping, which stays in this range.
    adaptive_clipping: Options of a clipping norm that follows a quantile.
    count_share: Share of 1 / z^2 that goes to the clusters' counts of clients,
      in (0, 1); unused where there is one mean, whose divisor is the
      average number of clients in a round.
    min_count: A cluster whose noisy count is lower keeps its model, >= 1.
  """

  noise_multiplier: float = 0.0
  target_epsilon: float = 0.0
  delta: float = 1e-5
  num_rounds: int = 0
  sampling_prob: float = 1.0
  rounds_per_epoch: int = 0
  clip_norm: float = 1.0
  adaptive_clipping: AdaptiveClippingConfig = AdaptiveClippingConfig()
  count_share: float = 0.1
  min_count: float = 1.0

  def __post_init__(self):
    checks.check_at_least('noise_multiplier', self.noise_multiplier, 0)
    checks.check_at_least('target_epsilon', self.target_epsilon, 0)
    checks.check_proper_share('delta', self.delta)
    # With less the accountant finds no epsilon.
    checks.check_at_least('delta', self.delta, 1e-12)
    checks.check_int('num_rounds', self.num_rounds, minimum=0)
    checks.check_share('sampling_prob', self.sampling_prob)
    checks.check_int('rounds_per_epoch', self.rounds_per_epoch, minimum=0)
    if self.rounds_per_epoch:
      self._check_tree()
    checks.check_at_least('clip_norm', self.clip_norm, CLIP_NORMS[0])
    _check_at_most('clip_norm', self.clip_norm, CLIP_NORMS[1])
    checks.check_proper_share('count_share', self.count_share)
    checks.check_at_least('min_count', self.min_count, 1)
    adaptive = self.adaptive_clipping
    if adaptive.target_quantile and self.count_share + adaptive.share >= 1:
      raise errors.ConfigError(
        f'privacy.count_share is {self.count_share:g} and '
        f'privacy.adaptive_clipping.share is {self.adaptive_clipping.share:g}; '
        'their sum must be below 1, because the rest is for the models'
      )

  def _check_tree(self) -> None:
    """Checks what tree aggregation excludes."""
    if self.sampling_prob < 1:
      raise errors.ConfigError(
        f'privacy.sampling_prob is {self.sampling_prob:g} and '
        f'privacy.rounds_per_epoch is {self.rounds_per_epoch}: a client is '
        'either drawn in each round or takes part once an epoch; leave one of '
        'them out'
      )
    if self.adaptive_clipping.target_quantile:
      raise errors.ConfigError(
        'privacy.adaptive_clipping.target_quantile is '
        f'{self.adaptive_clipping.target_quantile:g} and '
        f'privacy.rounds_per_epoch is {self.rounds_per_epoch}: nodes of a tree '
        'add contributions of several rounds, whose clipping norm must be the '
        'same; leave target_quantile 0 and set privacy.clip_norm'
      )

  @property
  def is_on(self) -> bool:
    """Returns whether training is private."""
    return self.noise_multiplier > 0 or self.target_epsilon > 0

  def is_exceeded_by(self, epsilon: float) -> bool:
    """Returns whether an epsilon is above the target, if there is one."""
    return 0 < self.target_epsilon * (1 + _SLACK) < epsilon

  def for_rounds(self, num_rounds: int) -> 'PrivacyConfig':
    """Returns the options with `num_rounds`, where the noise depends on it.

    Args:
      num_rounds: Rounds of the run, which take the place of 0.
    """
    if self.noise_multiplier:
      return dataclasses.replace(self, num_rounds=0)
    return dataclasses.replace(self, num_rounds=self.num_rounds or num_rounds)

  def identity(self, num_rounds: int) -> Mapping[str, object]:
    """Returns the config entries that affect training state.

    Args:
      num_rounds: Rounds of the run.
    """
    if not self.is_on:
      return {}
    values = config_lib.to_dict(self.for_rounds(num_rounds))
    if self.noise_multiplier:  # Then a target decides on the end alone.
      values.pop('target_epsilon')
    return {'privacy': values}


class Noise(NamedTuple):
  """Standard deviations of the noise of one release, in its parts' units.

  Attributes:
    contributions: In clipping norms.
    counts: Of each cluster's sum of memberships, whose sensitivity is 1.
    below: Of the sum of +-1/2 by clients below the clipping norm, whose
      sensitivity is 1/2.
  """

  contributions: float
  counts: float
  below: float


def split(config: PrivacyConfig, has_counts: bool) -> Noise:
  """Returns the deviations whose joint noise multiplier is that of the options.

  Args:
    config: Options; a multiplier of 0 is no noise, in tests.
    has_counts: Whether counts of clusters are released.
  """
  counts = config.count_share if has_counts else 0.0
  is_adaptive = config.adaptive_clipping.target_quantile > 0
  below = config.adaptive_clipping.share if is_adaptive else 0.0

  def deviation(share: float, sensitivity: float) -> float:
    return config.noise_multiplier * sensitivity / share**0.5 if share else 0.0

  return Noise(
    contributions=deviation(1 - counts - below, 1.0),
    counts=deviation(counts, 1.0),
    below=deviation(below, 0.5),
  )
