"""Tests of PPFL's step sizes, output rule and bounds, by hand."""

import numpy as np
import pytest

from tests.testing import ppfl_bounds as bounds
from tff_algos.core import errors

_SMOOTHNESS = bounds.Smoothness(weights=2.0, memberships=0.5)


def test_steps_by_hand():
  """1 / (32 * 5 * 2); 2 / L_2 if that is shorter."""
  assert bounds.random_block_step(_SMOOTHNESS, 5) == 1 / 320
  flat = bounds.Smoothness(1e-3, 0.5)
  np.testing.assert_allclose(bounds.random_block_step(flat, 1), 0.95 * 4)


def test_alternating_step_is_the_least_of_four():
  """s_1 = 4 * 2 * 3 = 24 and s_2 = 128 * 4 * 5 = 2560."""
  noise = bounds.Noise(weights=3.0, diversity=5.0)
  for num_rounds in (10, 10**4, 10**8):
    expected = min(
      1 / 32,
      2.0,
      np.sqrt(4 * 7 / (24 * num_rounds)),
      np.cbrt(4 * 7 / (2560 * num_rounds)),
    )
    found = bounds.alternating_step(_SMOOTHNESS, noise, 7.0, num_rounds)
    np.testing.assert_allclose(found, expected)
    np.testing.assert_allclose(
      bounds.alternating_bound(_SMOOTHNESS, noise, 7.0, num_rounds, found),
      28 / (found * num_rounds) + 24 * found + 2560 * found**2,
    )
  quiet = bounds.alternating_step(_SMOOTHNESS, bounds.Noise(), 7.0, 10)
  assert quiet == 1 / 32


def test_alternating_bound_is_below_the_three_terms_of_the_corrected_theorem():
  generator = np.random.default_rng(0)
  for _ in range(100):
    first, second, gap, sigma, delta = 10 ** generator.uniform(-2, 2, 5)
    num_rounds = int(10 ** generator.uniform(0, 5))
    smoothness = bounds.Smoothness(first, second)
    noise = bounds.Noise(weights=sigma, diversity=delta)
    step = bounds.alternating_step(smoothness, noise, gap, num_rounds)
    found = bounds.alternating_bound(smoothness, noise, gap, num_rounds, step)
    s_1, s_2 = 4 * first * sigma, 128 * first**2 * delta
    terms = (
      2 * np.sqrt(4 * gap * s_1 / num_rounds),
      2 * np.cbrt(16 * gap**2 * s_2) / num_rounds ** (2 / 3),
      4 * gap * (16 * first + second) / num_rounds,
    )
    assert found <= sum(terms) * (1 + 1e-9)


def test_output_weights_by_hand():
  """rho_1 (1 - 4 eta L_1) = 0.5 (1 - 0.8) against 0.5 (1 - 0.025)."""
  found = bounds.output_weights(_SMOOTHNESS, [0.1, 0.05], 0.5)
  np.testing.assert_allclose(found, [0.1 * 0.1, 0.05 * 0.3])
  with pytest.raises(errors.ConfigError, match='the step 0.2 of round 1 gives'):
    bounds.output_weights(_SMOOTHNESS, [0.1, 0.2], 0.5)


def test_output_rounds_follow_their_weights():
  """2,000 seeds: a count lies more than 5 standard deviations from its mean with
  a chance below 1e-6.
  """
  weights = np.array([1.0, 3.0, 0.5, 3.5])
  drawn = [bounds.draw_output_round(weights, seed) for seed in range(2_000)]
  chances = weights / weights.sum()
  counts = np.bincount(drawn, minlength=4)
  spread = np.sqrt(2_000 * chances * (1 - chances))
  assert (np.abs(counts - 2_000 * chances) < 5 * spread).all()
  assert drawn[7] == bounds.draw_output_round(weights, 7)


def test_random_block_bound_by_hand():
  """Two rounds of eta 0.1, M = 3, rho_1 = 1/2."""
  noise = bounds.Noise(weights=0.2, memberships=0.3, diversity=0.4)
  total = 2 * 5 + 2 * 0.5 * 4 * 0.3 * 0.2 + 2 * 0.5 * 2.0 * 0.6 * 0.02
  found = bounds.random_block_bound(_SMOOTHNESS, noise, 5.0, 3, [0.1, 0.1], 0.5)
  np.testing.assert_allclose(found, total / (2 * 0.1 * 0.1))


def test_noise_on_memberships_leaves_a_floor_and_none_leaves_a_rate():
  """Corollary 1: 1 / sqrt(T), but for 2 rho_2 (M + 1) sigma_2^2 (over rho)."""
  found = {}
  for sigma in (0.0, 0.3):
    noise = bounds.Noise(weights=1.0, memberships=sigma, diversity=1.0)
    found[sigma] = [
      bounds.random_block_bound(
        _SMOOTHNESS, noise, 5.0, 3, np.full(t, t**-0.5), 0.5
      )
      for t in (10**6, 4 * 10**6)
    ]
  np.testing.assert_allclose(found[0.0][0] / found[0.0][1], 2, rtol=0.02)
  np.testing.assert_allclose(found[0.3][1], 2 * 4 * 0.3, rtol=0.03)


def test_constants_out_of_range_are_refused():
  with pytest.raises(
    errors.ConfigError, match='weights must be a finite number'
  ):
    bounds.Smoothness(0.0, 1.0)
