"""Theorems 5.5 and F.1 on quadratics, with their corrections.

Chen and Qiu (2025), arXiv:2503.08652. Eight clients in three dimensions, F_k(w) =
1/2 sum_j a_kj (w_j - c_kj)^2, all of them in every round.
"""

import numpy as np
import pytest

from tests.testing import filter_decomposition_bounds as bounds

_GENERATOR = np.random.default_rng(0)
_CURVATURES = _GENERATOR.uniform(1, 4, size=(8, 3))
_CENTERS = _GENERATOR.normal(size=(8, 3))
_MINIMUM = (_CURVATURES * _CENTERS).sum(axis=0) / _CURVATURES.sum(axis=0)
_START = np.array([3.0, -2.0, 2.0])


def _loss(w):
  return np.mean(np.sum(_CURVATURES * (w - _CENTERS) ** 2, axis=1)) / 2


def _gradients(w):
  return _CURVATURES * (w - _CENTERS)


def _problem(period, gradient_bound):
  # The clients' own minima are 0.
  return bounds.Problem(
    smoothness=_CURVATURES.max(),
    strong_convexity=_CURVATURES.min(),
    gradient_bound=gradient_bound,
    heterogeneity_gap=_loss(_MINIMUM),
    start_distance=np.sum((_START - _MINIMUM) ** 2),
    averaging_period=period,
  )


def _run(period, num_steps, slow_period=None):
  """Local gradient descent; the first coordinate averages more rarely.

  Returns:
    The problem with the observed gradient bound, mean models before each step
    and after the last, and the drift before each step.
  """
  slow_period = slow_period or period
  models = np.tile(_START, (8, 1))
  means, drifts, largest = [], [], 0.0
  rates = _problem(slow_period, 0.0)
  for step in range(1, num_steps + 1):
    mean = models.mean(axis=0)
    means.append(mean)
    drifts.append(np.mean(np.sum((models - mean) ** 2, axis=1)))
    slopes = _gradients(models)
    largest = max(largest, np.linalg.norm(slopes, axis=1).max())
    models = models - rates.step_size(step) * slopes
    if step % period == 0:
      models[:, 1:] = models[:, 1:].mean(axis=0)
    if step % slow_period == 0:
      models[:, 0] = models[:, 0].mean()
  means.append(models.mean(axis=0))
  return _problem(slow_period, largest), np.array(means), np.array(drifts)


@pytest.mark.parametrize(('period', 'slow_period'), [(1, 1), (5, 5), (2, 10)])
def test_every_step_obeys_the_recursion_and_the_drift_bound(
  period, slow_period
):
  """Eqs. 19, 20 and 34; rates below 1 / (4 L)."""
  problem, means, drifts = _run(period, 200, slow_period)
  assert problem.step_size(1) <= 1 / (4 * problem.smoothness)
  distances = np.sum((means - _MINIMUM) ** 2, axis=1)
  for step in range(1, 201):
    rate = problem.step_size(step)
    allowed = problem.recursion(distances[step - 1], rate)
    assert distances[step] <= allowed + 1e-12
    # The drift came about by the steps before.
    assert drifts[step - 1] <= problem.drift(rate) + 1e-12
  if slow_period > 1:
    assert drifts.max() > 0


@pytest.mark.parametrize(('period', 'slow_period'), [(1, 1), (5, 5), (2, 10)])
def test_corrected_bound_holds_and_the_gap_falls_like_1_over_t(
  period, slow_period
):
  problem, means, _ = _run(period, 2000, slow_period)
  gaps = np.array([_loss(w) for w in means]) - _loss(_MINIMUM)
  steps = np.arange(1, len(gaps) + 1)
  allowed = np.array([problem.gap(step) for step in steps])
  assert (gaps <= allowed + 1e-12).all()
  scaled = (problem.step_offset + steps) * gaps
  assert scaled[1000:].max() <= scaled[:1000].max()


def test_printed_bound_is_violated_by_one_client_with_one_parabola():
  """F = w^2 / 2, L = mu = E = 1, gamma = 8, B = D = 0, w_1 = 1."""
  problem = bounds.Problem(1.0, 1.0, 1.0, 0.0, 1.0, 1)
  w, gaps = 1.0, []
  for step in range(1, 41):
    gaps.append(w**2 / 2)
    w -= problem.step_size(step) * w
  printed = [problem.printed_gap(step) for step in range(1, 41)]
  np.testing.assert_allclose(gaps[:3], [0.5, 0.3025, 0.1936], rtol=0.02)
  np.testing.assert_allclose(printed[:2], [0.0556, 0.05], rtol=1e-2)
  violated = [
    step for step in range(1, 41) if gaps[step - 1] > printed[step - 1]
  ]
  assert violated == list(range(1, 9))
  for step in range(1, 41):
    assert gaps[step - 1] <= problem.gap(step) + 1e-12
  np.testing.assert_allclose(problem.gap(1), 0.5)


def test_rare_averages_loosen_the_bound():
  """Theorem F.1 with beta = 1 / 5 against 1, at the same G."""
  often, rarely = (_problem(period, 3.0) for period in (5, 25))
  for num_steps in (1, 100, 10_000):
    assert rarely.gap(num_steps) > often.gap(num_steps)
  ratio = rarely.gap(2 * 10**6) / rarely.gap(10**6)
  np.testing.assert_allclose(ratio, 0.5, rtol=1e-3)


def test_pairs_help_between_one_client_and_all():
  """(M + m) / (m (M + 1)) < 1 if and only if m > 1."""
  for num_clients in (2, 5, 20):
    for cohort_size in range(1, num_clients):
      single = bounds.sampling_share(num_clients, cohort_size)
      pairs = bounds.pair_sampling_share(num_clients, cohort_size)
      np.testing.assert_allclose(
        pairs / single,
        (num_clients + cohort_size) / (cohort_size * (num_clients + 1)),
      )
      assert (pairs < single - 1e-12) == (cohort_size > 1)
    assert bounds.pair_sampling_share(num_clients, num_clients) == 0


_PROBLEM = bounds.Problem(
  smoothness=4.0,
  strong_convexity=2.0,
  gradient_bound=3.0,
  heterogeneity_gap=0.5,
  start_distance=7.0,
  averaging_period=5,
)


def test_terms_by_hand():
  """gamma = 16; B = 8 * 16 * 9 + 6 * 4 / 2 = 1164."""
  assert _PROBLEM.step_offset == 16
  assert _PROBLEM._replace(averaging_period=20).step_offset == 20
  np.testing.assert_allclose(_PROBLEM.step_size(4), 2 / (2 * 20))
  np.testing.assert_allclose(_PROBLEM.drift(0.1), 4 * 0.01 * 16 * 9)
  np.testing.assert_allclose(
    _PROBLEM.recursion(7.0, 0.1), 0.8 * 7 + 0.01 * 1164
  )


def test_gaps_by_hand():
  """2 / mu^2 L / (gamma + T) = 2 / 20, and mu^2 / 4 |w_1 - w*|^2 = 7."""
  np.testing.assert_allclose(_PROBLEM.printed_gap(4, 9.0), 0.1 * (1164 + 9 + 7))
  np.testing.assert_allclose(_PROBLEM.gap(4, 9.0), 0.1 * (1164 + 9 + 17 * 7))


def test_number_of_steps_is_where_the_bound_is_reached():
  steps = _PROBLEM.num_steps(2.0, 9.0)
  np.testing.assert_allclose(_PROBLEM.gap(steps, 9.0), 2.0)


@pytest.mark.parametrize(
  ('num_clients', 'cohort_size', 'fed_avg', 'printed', 'pairs'),
  [
    (100, 10, 0.090909, 9.901e-7, 0.0099010),
    (20, 2, 0.473684, 6.203e-4, 0.248120),
    (1000, 100, 0.0090090, 9.900e-11, 9.900e-5),
    (100, 2, 0.494949, 2.499e-5, 0.249925),
    (100, 40, 0.0151515, 5.251e-8, 5.2505e-4),
    (7, 7, 0, 0, 0),
    (1, 1, 0, 0, 0),
  ],
)
def test_sampling_shares(num_clients, cohort_size, fed_avg, printed, pairs):
  for function, expected in (
    (bounds.sampling_share, fed_avg),
    (bounds.printed_pair_sampling_share, printed),
    (bounds.pair_sampling_share, pairs),
  ):
    np.testing.assert_allclose(
      function(num_clients, cohort_size), expected, rtol=2e-4
    )
