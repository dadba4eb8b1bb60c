"""Step sizes, output rule and bounds of PPFL's two descents in blocks.

Di et al., arXiv:2310.14337, Section 5, on the host. eta is the base step: a
local step on the weights theta has eta / num_local_steps, a mirror step on the
memberships has eta. A bound is on the mean over the rounds of

  |grad_theta F|^2 + sum_i |(c_i - c_i+) / eta|_1^2,

the squared stationarity. Two bounds are printed with misprints. In Eq. 27 the
noise of theta is weighed by 2 rho_1 L_1 eta^2, as Lemma 1 has it; in Eq. 30 the
three terms are those that the proof's sum gives, which are larger: measured
runs exceed the printed ones.
"""

import dataclasses

import numpy as np

from tff_algos.core import checks, errors, seeds

# Of the largest step that the proofs allow on memberships, at which an iterate
# would have the chance 0 to be the output.
_BELOW = 0.95


@dataclasses.dataclass(frozen=True)
class Smoothness:
  """What a problem's steps may be.

  Attributes:
    weights: L_1, Lipschitz constant of every grad_theta f_i, > 0.
    memberships: L_2, of every p_i grad_c f_i plus the penalty's own part, from
      the l_1 to the l_infinity norm, > 0: at least p_i max|hess_c f_i| + 2
      lambda d_ii.
  """

  weights: float
  memberships: float

  def __post_init__(self):
    checks.check_positive('weights', self.weights)
    checks.check_positive('memberships', self.memberships)


@dataclasses.dataclass(frozen=True)
class Noise:
  """What stands between a step and the gradient of F.

  Attributes:
    weights: sigma_1^2, variance of grad_theta f_i.
    memberships: sigma_2^2, variance of grad_c f_i.
    diversity: delta^2, the mean of |grad_theta f_i - grad_theta F|^2 by p_i.
  """

  weights: float = 0.0
  memberships: float = 0.0
  diversity: float = 0.0


def random_block_step(smoothness: Smoothness, num_local_steps: int) -> float:
  """Returns eta = min(1 / (32 E L_1), just below 2 / L_2), for any horizon."""
  return min(
    1 / (32 * num_local_steps * smoothness.weights),
    _BELOW * 2 / smoothness.memberships,
  )


def alternating_step(
  smoothness: Smoothness, noise: Noise, gap: float, num_rounds: int
) -> float:
  """Returns eta of Theorem 2 (Eq. 29).

  Args:
    smoothness: L_1 and L_2.
    noise: sigma_1^2 and delta^2; memberships have their full gradients.
    gap: F at the start minus its infimum, > 0.
    num_rounds: T.
  """
  first, second = _alternating_terms(smoothness, noise)
  steps = [1 / (16 * smoothness.weights), 1 / smoothness.memberships]
  if first:
    steps.append((4 * gap / (first * num_rounds)) ** 0.5)
  if second:
    steps.append((4 * gap / (second * num_rounds)) ** (1 / 3))
  return min(steps)


def alternating_bound(
  smoothness: Smoothness,
  noise: Noise,
  gap: float,
  num_rounds: int,
  step: float,
) -> float:
  """Returns Theorem 2's bound, 4 gap / (eta T) + s_1 eta + s_2 eta^2.

  The gradient in theta is that at (theta^t, C^(t+1)).
  """
  first, second = _alternating_terms(smoothness, noise)
  return 4 * gap / (step * num_rounds) + first * step + second * step**2


def _alternating_terms(smoothness, noise):
  """Returns sigma_{1,1} and sigma_{1,2} of Theorem 2."""
  curvature = smoothness.weights
  return 4 * curvature * noise.weights, 128 * curvature**2 * noise.diversity


def output_weights(
  smoothness: Smoothness, steps: np.ndarray, shared_prob: float
) -> np.ndarray:
  """Returns what each iterate's chance to be the output is in proportion to.

  Eq. 16: eta_t min_h rho_h (1 - gamma_h L_h), gamma_1 = 4 eta, gamma_2 = eta /
  2, of the iterates at the start of the rounds.

  Args:
    smoothness: L_1 and L_2.
    steps: eta_t of rounds 0 to T - 1, `[T]`.
    shared_prob: rho_1.

  Raises:
    ConfigError: If a weight is not positive: that step is too long.
  """
  steps = np.asarray(steps, np.float64)
  weights = steps * np.minimum(
    shared_prob * (1 - 4 * steps * smoothness.weights),
    (1 - shared_prob) * (1 - steps * smoothness.memberships / 2),
  )
  if not (weights > 0).all():
    worst = int(np.argmin(weights))
    raise errors.ConfigError(
      f'the step {steps[worst]:g} of round {worst} gives its iterate the '
      f'weight {weights[worst]:g}; steps must be below 1 / (4 L_1) = '
      f'{1 / (4 * smoothness.weights):g} and 2 / L_2 = '
      f'{2 / smoothness.memberships:g}, and shared_prob between 0 and 1'
    )
  return weights


def draw_output_round(weights: np.ndarray, seed: int) -> int:
  """Returns t' of the output rule, Eq. 16: the rounds after which to stop.

  As rounds depend on (seed, round) alone, a training of t' rounds ends in that
  iterate: train with `num_rounds` = t', or read the checkpoint of that round.

  Args:
    weights: `output_weights` of rounds 0 to T - 1.
    seed: The run's seed.
  """
  generator = seeds.numpy_generator(seed, 'output_round')
  return int(generator.choice(len(weights), p=weights / weights.sum()))


def random_block_bound(
  smoothness: Smoothness,
  noise: Noise,
  gap: float,
  num_clients: int,
  steps: np.ndarray,
  shared_prob: float,
) -> float:
  """Returns Theorem 1's bound on the output's expected squared stationarity.

  Args:
    smoothness: L_1 and L_2.
    noise: All three.
    gap: F at the start minus its infimum.
    num_clients: M.
    steps: eta_t of rounds 0 to T - 1, `[T]`.
    shared_prob: rho_1.
  """
  steps = np.asarray(steps, np.float64)
  in_memberships = 2 * (1 - shared_prob) * (num_clients + 1) * noise.memberships
  in_weights = (
    2 * shared_prob * smoothness.weights * (noise.weights + noise.diversity)
  )
  total = (
    2 * gap + in_memberships * steps.sum() + in_weights * np.square(steps).sum()
  )
  return total / output_weights(smoothness, steps, shared_prob).sum()
