"""The bounds of FedSoft against an oracle written in loops."""

import numpy as np
import pytest

from tff_algos.algorithms.fed_soft import bounds as bounds_lib
from tff_algos.algorithms.fed_soft import quadratic_risks


def _random_case(generator, num_sources, num_clients=2, closeness=None):
  """Random quadratics, eigenvalues in [0.5, 2], and clients' exact solves.

  Args:
    generator: Of all draws.
    num_sources: S.
    num_clients: n.
    closeness: Distance of the centres from the minimisers as a share of the
      radius of Assumption 4 with alpha_0 = 0; None for centres anywhere.
  """
  hessians = []
  for _ in range(num_sources):
    basis, _ = np.linalg.qr(generator.normal(size=(4, 4)))
    hessians.append(basis @ np.diag(generator.uniform(0.5, 2, 4)) @ basis.T)
  risks = quadratic_risks.QuadraticRisks(
    np.stack(hessians), 2 * generator.normal(size=(num_sources, 4))
  )
  offsets = generator.normal(size=(num_sources, 4))
  if closeness is not None:
    offsets /= np.linalg.norm(offsets, axis=1, keepdims=True)
    condition = np.sqrt(risks.strong_convexity / risks.smoothness)
    offsets *= closeness * 0.5 * condition * risks.gaps[0]
  mixture, importance = (
    generator.dirichlet(np.ones(num_sources), num_clients) for _ in range(2)
  )
  centers = risks.minimizers + offsets
  weight = generator.uniform(0.05, 3)
  models = [
    np.linalg.solve(
      np.tensordot(u, risks.hessians, 1) + weight * np.eye(4),
      sum(
        u[s] * hessians[s] @ risks.minimizers[s] + weight * v[s] * centers[s]
        for s in range(num_sources)
      ),
    )
    for u, v in zip(mixture, importance, strict=True)
  ]
  return risks, bounds_lib.LocalSolves(
    np.stack(models), centers, mixture, importance, weight
  )


def _oracle(risks, solves):
  """gamma_0, beta, gamma and the left sides of Eqs. 15 and 16, in loops."""
  num_clients, num_sources = solves.mixture.shape
  clients, sources = range(num_clients), range(num_sources)

  def pull(k, s):
    return (
      solves.proximal_weight * solves.importance[k, s] / solves.mixture[k, s]
    )

  def gradient(k, s, w):
    risk = risks.hessians[s] @ (w - risks.minimizers[s])
    return risk + pull(k, s) * (w - solves.centers[s])

  at_center = [
    np.linalg.norm(
      risks.hessians[s] @ (solves.centers[s] - risks.minimizers[s])
    )
    for s in sources
  ]
  gamma_0, beta, eigenvalues = 0.0, 0.0, []
  for k in clients:
    u, w = solves.mixture[k], solves.local_models[k]
    whole = sum(u[s] * gradient(k, s, w) for s in sources if u[s])
    gamma_0 = max(gamma_0, np.linalg.norm(whole) / min(at_center))
    for s in (s for s in sources if u[s]):
      matrix = risks.hessians[s] + pull(k, s) * np.eye(4)
      eigenvalues.extend(np.linalg.eigvalsh(matrix))
      best = np.linalg.solve(matrix, -gradient(k, s, np.zeros(4)))
      total = sum(
        u[j] * np.linalg.norm(gradient(k, j, best)) ** 2
        for j in sources
        if u[j]
      )
      beta = max(beta, total / at_center[s] ** 2)
  gamma = np.sqrt((gamma_0**2 + beta) * max(eigenvalues) / min(eigenvalues))
  left = np.array(
    [
      [
        np.linalg.norm(gradient(k, s, solves.local_models[k]))
        if solves.mixture[k, s]
        else np.nan
        for s in sources
      ]
      for k in clients
    ]
  )
  right = gamma / np.sqrt(solves.mixture) * at_center
  return gamma_0, beta, gamma, left / right


@pytest.mark.filterwarnings('ignore:divide by zero')
@pytest.mark.parametrize('num_sources', [2, 3])
def test_constants_are_those_of_the_oracle(num_sources):
  generator = np.random.default_rng(num_sources)
  risks, solves = _random_case(generator, num_sources, num_clients=5)
  inexact = solves._replace(
    local_models=solves.local_models + 0.1 * generator.normal(size=(5, 4))
  )
  pure = inexact.mixture.copy()
  pure[0] = np.eye(num_sources)[1]  # Estimated elsewhere, too.
  for case in (solves, inexact, inexact._replace(mixture=pure)):
    found = bounds_lib.measure(risks, case)
    gamma_0, beta, gamma, ratios = _oracle(risks, case)
    np.testing.assert_allclose(found.gamma_0, gamma_0, atol=1e-12)
    np.testing.assert_allclose(found.beta, beta)
    np.testing.assert_allclose(found.gamma, gamma)
    np.testing.assert_allclose(found.gradient_ratios, ratios)
    condition = np.sqrt(risks.smoothness / risks.strong_convexity)
    radius = (gamma * num_sources + 1) / 4 * condition + 0.5 / condition + 1
    safe = (gamma * num_sources + 1) / 2 * condition + 1 / condition + 1
    assert abs(found.radius - radius) < 1e-9
    assert (found.convexity, found.smoothness) == (
      risks.strong_convexity,
      risks.smoothness,
    )
    assert (found.min_gap, found.max_gap) == risks.gaps
    assert abs(found.safe_radius - safe) < 1e-9
    moved = np.linalg.norm(case.local_models[:, None] - case.centers, axis=-1)
    np.testing.assert_allclose(
      found.distance_ratios, moved / (radius * risks.gaps[1])
    )
    np.testing.assert_allclose(
      found.safe_distance_ratios, moved / (safe * risks.gaps[1])
    )


def _worst_ratios(closeness, noise, num_trials=300):
  """Largest ratios of Theorem 2 and of both forms of Theorem 3."""
  generator = np.random.default_rng(0)
  worst = np.zeros(3)
  for trial in range(num_trials):
    risks, solves = _random_case(generator, 2 + trial % 2, 2, closeness)
    models = solves.local_models
    moved = models + noise * generator.normal(size=models.shape)
    found = bounds_lib.measure(risks, solves._replace(local_models=moved))
    ratios = (
      found.gradient_ratios,
      found.distance_ratios,
      found.safe_distance_ratios,
    )
    worst = np.maximum(worst, [ratio.max() for ratio in ratios])
  return worst


@pytest.mark.parametrize('noise', [0.0, 0.3])
def test_theorem_two_holds_wherever_the_centers_are(noise):
  worst, _, _ = _worst_ratios(None, noise)
  assert 0.2 < worst <= 1


@pytest.mark.parametrize('noise', [0.0, 0.3])
@pytest.mark.parametrize('closeness', [0.1, 0.5, 0.99])
def test_theorem_three_holds_inside_the_ball_of_assumption_four(
  closeness, noise
):
  """The printed r is proved for alpha_0 >= 1/4 only, closeness <= 1/2."""
  _, printed, safe = _worst_ratios(closeness, noise)
  assert 0.005 < safe < printed <= 1


def test_alpha_is_how_deep_the_centers_lie_in_the_ball():
  generator = np.random.default_rng(3)
  for closeness, expected in [(0.5, 0.25), (1.0, 0.0), (3.0, -1.0)]:
    risks, solves = _random_case(generator, 3, 2, closeness)
    found = bounds_lib.measure(risks, solves)
    assert abs(found.alpha_0 - expected) < 1e-9


def test_no_beta_suffices_where_a_center_is_perfect_and_a_client_is_mixed():
  """The bounds speak of a transient: at the optimum a bias is left."""
  risks, solves = _random_case(np.random.default_rng(4), 2, 2, closeness=0.0)
  found = bounds_lib.measure(risks, solves)
  assert found.beta == np.inf and found.gamma == np.inf
  assert (found.gradient_ratios == 0).all()
  assert (found.distance_ratios == 0).all()
  pure = solves._replace(
    mixture=np.eye(2), importance=np.eye(2), local_models=risks.minimizers
  )
  assert bounds_lib.measure(risks, pure).beta == 0


def _descent(risks, solves, bounds, **changes):
  arguments = {
    'mixture': solves.mixture,
    'num_examples': np.array([7, 3, 9, 5]),
    'misassignment': 0.1,
    'smoother': 0.01,
    'num_draws': 4,
    **changes,
  }
  return bounds_lib.descent(risks, solves, bounds, **arguments)


@pytest.fixture(name='case')
def _case():
  risks, solves = _random_case(np.random.default_rng(5), 3, 4, closeness=0.5)
  mixture = solves.mixture.copy()
  mixture[0] = [0.4, 0, 0.6]
  solves = solves._replace(mixture=mixture)
  return risks, solves, bounds_lib.measure(risks, solves)


def test_descent_is_that_of_theorem_four(case):
  risks, solves, bounds = case
  found = _descent(risks, solves, bounds)
  sizes, p, q, draws = [7, 3, 9, 5], 0.1, 0.11, 4
  lam, mu, big_f = (
    solves.proximal_weight,
    bounds.convexity_lambda,
    bounds.smoothness,
  )
  g = bounds.gamma + 1
  for s in range(3):
    u = solves.mixture[:, s]
    holders = [k for k in range(4) if u[k]]
    n, n_s = 24, sum(sizes[k] * u[k] for k in range(4))
    m_s = sum(sizes[k] for k in holders)
    m_hat = (1 - p) * m_s + q * sum(sizes[k] / u[k] for k in holders)
    rho = (n_s - bounds.gamma * m_s) / lam - g * big_f * m_s / (mu * lam)
    rho -= q * (n - m_s) / (2 * mu) + big_f * g**2 * m_hat / (2 * mu**2)
    rho -= 4 * big_f * g**2 * m_hat / (mu**2 * draws**0.5)
    expected = (1 - p) * n_s + q * n
    rho -= (g**2 * m_hat + expected) / (mu * (2 * draws) ** 0.5)
    big_r = (mu + big_f) / 2 * (n - m_s) * bounds.radius**2
    big_r += (4 * big_f + mu) * (n - m_s) * bounds.radius**2 / draws**0.5
    floor = q * big_r * risks.gaps[1] ** 2 / ((1 - p) * n_s - q * n)
    gradient = risks.hessians[s] @ (solves.centers[s] - risks.minimizers[s])
    np.testing.assert_allclose(found.rho[s], rho)
    np.testing.assert_allclose(
      found.decrease[s], rho * (gradient @ gradient) / expected
    )
    np.testing.assert_allclose(found.floor[s], floor)
  assert found.floor[0] == 0 and found.floor[1] > 0


def test_shape_of_theorem_four(case):
  risks, solves, bounds = case
  base = _descent(risks, solves, bounds)
  exact = _descent(risks, solves, bounds._replace(gamma=0.0))
  assert (exact.rho > base.rho).all()
  everyone = _descent(risks, solves, bounds, num_draws=np.inf)
  assert (everyone.rho > base.rho).all()
  worse = _descent(risks, solves, bounds, misassignment=0.2)
  assert (worse.rho < base.rho).all() and worse.floor[1] > base.floor[1]
  perfect = _descent(risks, solves, bounds, misassignment=0.0, smoother=0.0)
  assert (perfect.floor == 0).all()
  hopeless = _descent(risks, solves, bounds, misassignment=0.9)
  assert hopeless.floor[1] == np.inf
  mixed = np.full((4, 3), 1 / 3)
  assert (_descent(risks, solves, bounds, mixture=mixed).floor == 0).all()


def test_theorem_four_promises_descent_to_pure_clients_that_are_pulled_hard():
  """rho > 0 with one-hot clients, exact solves, everybody and a large lambda;
  then the promise is kept by the exact round, which shrinks the error by
  lambda / (1 + lambda)."""
  risks = quadratic_risks.QuadraticRisks(
    np.stack([np.eye(2)] * 2), np.array([[1.0, 0], [-1, 0]])
  )
  centers, weight = risks.minimizers + 0.2, 50.0
  models = (risks.minimizers + weight * centers) / (1 + weight)
  solves = bounds_lib.LocalSolves(models, centers, np.eye(2), np.eye(2), weight)
  bounds = bounds_lib.measure(risks, solves)
  found = _descent(
    risks, solves, bounds, num_examples=np.array([10, 10]), misassignment=0.0,
    smoother=0.0, num_draws=np.inf,
  )  # fmt: skip
  before, after = (
    np.sum((points - risks.minimizers) ** 2, axis=1) / 2
    for points in (centers, models)
  )
  assert (found.rho > 0).all()
  assert (after - before <= -found.decrease).all()
