"""FedSoft's Theorems 2 to 4, evaluated on quadratic risks.

Ruan and Joe-Wong, "FedSoft: Soft Clustered Federated Learning with Proximal
Local Updating" (2021). The risk of source s is F_s; client k holds the mixture
f_k = sum_s u_ks F_s and minimises, inexactly, sum_s u_ks h_ks with

  h_ks(w) = F_s(w) + lambda / 2 * u^t_ks / u_ks * |w - c_s|^2           (Eq. 8)

over the sources with u_ks > 0, where u^t is the server's estimate of u. For
linear regression all F_s are quadratic, so that every constant of the theorems
can be computed.

Read with three corrections, without which the proofs do not go through: in
Assumption 2 (Eq. 10) the gradient of h_ks' is that with its own centre c_s';
Theorem 2 speaks of the models after the local solves; Theorem 3 needs
Assumption 2, too, and its printed r needs alpha_0 >= 1/4 (`safe_radius` does
not).

Arrays are float64; rows of clients and of sources come in one order. n clients
or N in all, S sources, d weights.
"""

from typing import NamedTuple

import numpy as np

from tff_algos.algorithms.fed_soft import quadratic_risks


class LocalSolves(NamedTuple):
  """What the clients that trained in one round had and found.

  Attributes:
    local_models: w^{t+1}, `[n, d]`.
    centers: c^t, which they were pulled to, `[S, d]`.
    mixture: u, the true shares of the sources, `[n, S]`; rows sum to 1.
    importance: u^t, the estimate that they trained with, `[n, S]`, >= 0.
    proximal_weight: lambda, >= 0.
  """

  local_models: np.ndarray
  centers: np.ndarray
  mixture: np.ndarray
  importance: np.ndarray
  proximal_weight: float


class Bounds(NamedTuple):
  """The constants of one round, and how far its clients exhaust the bounds.

  A ratio is left side over right side: the theorem says that it is at most 1.
  It is 0 where the right side is infinite.

  Attributes:
    gamma_0: Least value that Assumption 1 (Eq. 9) allows; 0 for exact solves,
      and infinite if a centre is at its minimiser and the solves are not exact.
      f_k is the risk, so what a client learns from its sample alone counts. So
      does the pull of centres whose source it does not hold, which Eq. 7 omits.
    beta: Least value that Assumption 2 (Eq. 10) allows; infinite if a centre
      that is used by a mixed client is at its minimiser.
    gamma: sqrt((gamma_0^2 + beta) L_lambda / mu_lambda).
    alpha_0: Of Assumption 4 (Eq. 11) for the centres of this round; the
      assumption holds if it is > 0.
    convexity, smoothness: mu_F and L_F, of the F_s.
    convexity_lambda, smoothness_lambda: mu_lambda and L_lambda, the least
      strong convexity and the largest smoothness of the h_ks.
    min_gap, max_gap: delta and Delta, the least and the largest distance
      between two sources' minimisers (Eq. 12).
    radius: r of Theorem 3 as printed.
    safe_radius: (gamma S + 1) / 2 sqrt(L_F / mu_F) + sqrt(mu_F / L_F) + 1.
    gradient_ratios: Of Theorem 2 (Eq. 15), `[n, S]`; NaN where u_ks = 0.
    distance_ratios: Of Theorem 3 (Eq. 16) with the printed r, `[n, S]`.
    safe_distance_ratios: Of Theorem 3 with `safe_radius`, `[n, S]`.
  """

  gamma_0: float
  beta: float
  gamma: float
  alpha_0: float
  convexity: float
  smoothness: float
  convexity_lambda: float
  smoothness_lambda: float
  min_gap: float
  max_gap: float
  radius: float
  safe_radius: float
  gradient_ratios: np.ndarray
  distance_ratios: np.ndarray
  safe_distance_ratios: np.ndarray


class Descent(NamedTuple):
  """Theorem 4 (Eq. 17), one entry a source.

  The printed proof bounds E[1/X] by 1 / E[X], which is the wrong way around: so
  read the shape of these numbers (signs, trends), not a guarantee.

  Attributes:
    rho: `[S]`; the theorem promises descent only where it is > 0.
    decrease: rho |grad F_s(c_s)|^2 / ((1 - p) n_s + p' n), `[S]`.
    floor: p' R Delta^2 / ((1 - p) n_s - p' (S - 2) n), `[S]`; infinite where
      the divisor is not positive.
  """

  rho: np.ndarray
  decrease: np.ndarray
  floor: np.ndarray


def measure(
  risks: quadratic_risks.QuadraticRisks, solves: LocalSolves
) -> Bounds:
  """Returns the constants and both sides of Theorems 2 and 3 for one round."""
  mu, smoothness = risks.strong_convexity, risks.smoothness
  shares, centers = solves.mixture, solves.centers
  used = shares > 0
  pulls = solves.proximal_weight * np.divide(
    solves.importance, shares, out=np.zeros(shares.shape), where=used
  )
  extremes = np.linalg.eigvalsh(risks.hessians)
  mu_lambda = float((extremes[:, 0] + pulls)[used].min())
  smoothness_lambda = float((extremes[:, -1] + pulls)[used].max())
  at_centers = np.linalg.norm(risks.gradients(centers), axis=-1)

  gradients = _sub_gradients(risks, centers, pulls, solves.local_models)
  whole = np.linalg.norm(np.einsum('ks,ksd->kd', shares, gradients), axis=-1)
  gamma_0 = float(_ratio(whole, at_centers.min()).max())
  spread = _dissimilarity(risks, centers, pulls, shares)
  beta = float(_ratio(spread, at_centers**2)[used].max())
  gamma = float(np.sqrt((gamma_0**2 + beta) * smoothness_lambda / mu_lambda))

  condition = np.sqrt(smoothness / mu)
  closest, widest = risks.gaps
  errors = np.linalg.norm(centers - risks.minimizers, axis=-1)
  steps = gamma * len(centers) + 1
  radius = steps / 4 * condition + 0.5 / condition + 1
  safe_radius = steps / 2 * condition + 1 / condition + 1
  moved = np.linalg.norm(solves.local_models[:, None] - centers, axis=-1)
  left = np.sqrt(shares) * np.linalg.norm(gradients, axis=-1)
  ratios = (
    np.zeros(left.shape)
    if np.isinf(gamma)
    else _ratio(left, gamma * at_centers)
  )
  return Bounds(
    gamma_0=gamma_0,
    beta=beta,
    gamma=gamma,
    alpha_0=float(0.5 - errors.max() * condition / closest),
    convexity=mu,
    smoothness=smoothness,
    convexity_lambda=mu_lambda,
    smoothness_lambda=smoothness_lambda,
    min_gap=closest,
    max_gap=widest,
    radius=float(radius),
    safe_radius=float(safe_radius),
    gradient_ratios=np.where(used, ratios, np.nan),
    distance_ratios=moved / (radius * widest),
    safe_distance_ratios=moved / (safe_radius * widest),
  )


def descent(
  risks: quadratic_risks.QuadraticRisks,
  solves: LocalSolves,
  bounds: Bounds,
  mixture: np.ndarray,
  num_examples: np.ndarray,
  *,
  misassignment: float,
  smoother: float,
  num_draws: float,
) -> Descent:
  """Returns the constants of Theorem 4 (Eq. 17).

  Args:
    risks: Of the sources.
    solves: Of the round; its proximal weight must be > 0.
    bounds: `measure(risks, solves)`.
    mixture: u of all clients, `[N, S]`.
    num_examples: n_k of all clients, `[N]`.
    misassignment: p, see `quadratic_risks.misassignment`.
    smoother: sigma; p' = p + sigma.
    num_draws: K, clients drawn for each cluster; infinity for the full
      participation of Eqs. 35 and 36.
  """
  p, p_smooth = misassignment, misassignment + smoother
  mu, smoothness = bounds.convexity_lambda, bounds.smoothness
  weight = solves.proximal_weight
  root, step = np.sqrt(num_draws), bounds.gamma + 1
  num_examples = np.asarray(num_examples, np.float64)
  held = mixture > 0
  n, n_s = num_examples.sum(), num_examples @ mixture
  m_s = num_examples @ held
  m_rest = n - m_s
  inverse = np.divide(1, mixture, out=np.zeros(mixture.shape), where=held)
  m_hat = (1 - p) * m_s + p_smooth * (num_examples @ inverse)
  expected = (1 - p) * n_s + p_smooth * n
  rho = (
    (n_s - bounds.gamma * m_s) / weight
    - step * smoothness * m_s / (mu * weight)
    - p_smooth * m_rest / (2 * mu)
    - smoothness * step**2 * m_hat / (2 * mu**2)
    - 4 * smoothness * step**2 * m_hat / (mu**2 * root)
    - (step**2 * m_hat + expected) / (mu * np.sqrt(2) * root)
  )
  squared_radius = m_rest * bounds.radius**2
  spread = (mu + smoothness) / 2 + (4 * smoothness + mu) / root
  squares = np.sum(risks.gradients(solves.centers) ** 2, axis=-1)
  divisor = (1 - p) * n_s - p_smooth * (len(n_s) - 2) * n
  above = p_smooth * spread * squared_radius * bounds.max_gap**2
  return Descent(
    rho=rho,
    decrease=rho * squares / expected,
    floor=np.where(divisor > 0, _ratio(above, divisor), np.inf),
  )


def _sub_gradients(risks, centers, pulls, models):
  """Returns grad h_ks(w_k), `[n, S, d]`."""
  models = models[:, None]
  return risks.gradients(models) + pulls[..., None] * (models - centers)


def _dissimilarity(risks, centers, pulls, shares):
  """Returns sum_s' u_ks' |grad h_ks'(w_ks^*)|^2 of Eq. 10, `[n, S]`."""
  values, vectors = np.linalg.eigh(risks.hessians)
  offsets = np.einsum('sji,sj->si', vectors, centers - risks.minimizers)
  kept = pulls[..., None] / (values + pulls[..., None])
  minimizers = risks.minimizers + np.einsum(
    'sij,ksj->ksi', vectors, kept * offsets
  )
  sums = [
    np.einsum(
      'ks,ksd->k',
      shares,
      _sub_gradients(risks, centers, pulls, minimizers[:, s]) ** 2,
    )
    for s in range(len(centers))
  ]
  return np.stack(sums, axis=1)


def _ratio(above, below):
  """Returns above / below; 0 / 0 is 0, and what else is over 0 infinite."""
  with np.errstate(divide='ignore', invalid='ignore'):
    return np.where(np.asarray(above) == 0, 0.0, np.divide(above, below))
