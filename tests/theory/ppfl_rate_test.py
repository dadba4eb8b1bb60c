"""Corollary 1 of PPFL: how fast, and where noise stops it.

Di et al., arXiv:2310.14337, Section 5: with steps eta = 1 / sqrt(T) the mean squared
stationarity of the random blocks falls as 1 / sqrt(T), but for a term of the noise in
the memberships' gradients that no T makes smaller. In NumPy, with gradients written
out by hand; float32 would hide the smallest steps.
"""

import numpy as np
import pytest

from tests.testing import ppfl_bounds as bounds
from tests.testing import ppfl_oracle

_HORIZONS = 2 ** np.arange(8, 13, 2)
_NUM_CLIENTS, _NUM_MODELS, _NUM_WEIGHTS = 2, 2, 2


def _problem():
  """Clients between two models; short features, so that L_1 < 1 / 2."""
  generator = np.random.default_rng(3)
  models = np.array([[1.0, 2.0], [-2.0, 1.0]])
  clients = []
  for i in range(_NUM_CLIENTS):
    x = generator.normal(size=(20, _NUM_WEIGHTS))
    x *= (0.49 / np.linalg.eigvalsh(x.T @ x / 20)[-1]) ** 0.5
    own = np.array([0.7, 0.3])[[i, 1 - i]] @ models
    clients.append((x, x @ own + 0.1 * generator.normal(size=20)))
  return clients


_CLIENTS = _problem()
_SHARE = 1 / _NUM_CLIENTS
_START = np.array([[1.0, 0.5], [-1.0, 0.5]])


def _mapping(c, slope, step):
  stepped = ppfl_oracle.mirror_step(c, _SHARE * slope, step, 0)
  return stepped, np.abs((c - stepped) / step).sum() ** 2


def _run(num_rounds, deviation):
  """Returns the mean squared stationarity, of true and of noisy memberships' steps.

  Args:
    num_rounds: T.
    deviation: Of the noise on each entry of a membership's gradient.
  """
  step = num_rounds**-0.5
  generator = np.random.default_rng(num_rounds)
  theta = _START
  c = np.full((_NUM_CLIENTS, _NUM_MODELS), 1 / _NUM_MODELS)
  sums = np.zeros(2)
  for _ in range(num_rounds):
    slopes = [
      ppfl_oracle.gradients(x, y, theta, one)
      for (x, y), one in zip(_CLIENTS, c, strict=True)
    ]
    in_theta = _SHARE * sum(slope[0] for slope in slopes)
    noise = deviation * generator.normal(size=c.shape)
    true = [_mapping(c[i], slopes[i][1], step) for i in range(_NUM_CLIENTS)]
    noisy = [
      _mapping(c[i], slopes[i][1] + noise[i], step) for i in range(_NUM_CLIENTS)
    ]
    sums += np.sum(in_theta**2)
    sums += [sum(one[1] for one in true), sum(one[1] for one in noisy)]
    if generator.random() < 0.5:
      theta = theta - step * in_theta
    else:
      c = np.array([one[0] for one in noisy])
  return sums / num_rounds


def _bound(num_rounds, deviation):
  """Of Corollary 1, with F at the start in place of the gap: F >= 0."""
  hessians = [x.T @ x / len(x) for x, _ in _CLIENTS]
  # No model gets longer than 4 on the way.
  largest = max(np.linalg.eigvalsh(one)[-1] for one in hessians)
  smoothness = bounds.Smoothness(largest, _SHARE * largest * 16)
  step = bounds.horizon_step(smoothness, 1, num_rounds)
  even = np.full((_NUM_CLIENTS, _NUM_MODELS), 1 / _NUM_MODELS)
  gap = ppfl_oracle.objective(
    _CLIENTS,
    _START,
    even,
    np.full(_NUM_CLIENTS, _SHARE),
    np.zeros((_NUM_CLIENTS, _NUM_CLIENTS)),
    0.0,
  )
  return bounds.random_block_bound(
    smoothness,
    bounds.Noise(memberships=_NUM_MODELS * (_SHARE * deviation) ** 2),
    gap,
    _NUM_CLIENTS,
    np.full(num_rounds, step),
    0.5,
  )


def _slope(means):
  return np.polyfit(np.log(_HORIZONS), np.log(means), 1)[0]


@pytest.mark.slow
def test_without_noise_the_mean_falls_as_one_over_the_root_of_the_rounds():
  means = [_run(num_rounds, 0.0)[0] for num_rounds in _HORIZONS]
  assert _slope(means) <= -0.45
  for num_rounds, mean in zip(_HORIZONS, means, strict=True):
    assert mean <= _bound(int(num_rounds), 0.0)


@pytest.mark.slow
def test_noise_on_memberships_leaves_a_floor_under_the_steps_that_are_taken():
  """And none under steps along the true gradients, where noise averages out."""
  true, noisy = np.array([_run(num_rounds, 1.0) for num_rounds in _HORIZONS]).T
  assert _slope(true) <= -0.45
  assert _slope(noisy) > -0.15
  for num_rounds, mean in zip(_HORIZONS, noisy, strict=True):
    assert mean <= _bound(int(num_rounds), 1.0)
