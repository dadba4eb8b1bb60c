import math

import dp_accounting
import pytest
from dp_accounting import rdp

from tff_algos.core import errors
from tff_algos.privacy import accounting

_DELTA = 1e-5
_poisson = accounting.Participation


def _normal(x):
  return 0.5 * math.erfc(-x / 2**0.5)


def _delta(epsilon, multiplier):
  """delta of one Gaussian release (Balle and Wang 2018, Theorem 8)."""
  low, high = 1 / (2 * multiplier), epsilon * multiplier
  return _normal(low - high) - math.exp(epsilon) * _normal(-low - high)


@pytest.mark.parametrize('multiplier', [0.7, 1.0, 4.0])
@pytest.mark.parametrize('num_releases', [1, 16])
def test_epsilon_without_sampling_is_the_closed_form(multiplier, num_releases):
  # n releases of noise z are one of z / sqrt(n).
  found = accounting.epsilon(multiplier, _poisson(1.0), num_releases, _DELTA)
  one = multiplier / num_releases**0.5
  assert _delta(found, one) <= _DELTA * (1 + 1e-6)
  assert _delta(found * 0.99, one) > _DELTA


def test_sampling_lowers_epsilon_and_releases_raise_it():
  found = [
    accounting.epsilon(1.0, _poisson(0.1), n, _DELTA) for n in (0, 1, 10, 100)
  ]
  assert found[0] == 0
  assert found == sorted(found)
  assert found[2] < accounting.epsilon(1.0, _poisson(0.2), 10, _DELTA)
  assert found[2] < accounting.epsilon(1.0, _poisson(1.0), 10, _DELTA) / 4


@pytest.mark.parametrize(
  ('multiplier', 'prob', 'num_releases'),
  [(5.0, 0.001, 20_000), (10, 0.01, 2_000)],
)
def test_roundings_of_many_small_releases_do_not_add_up(
  multiplier, prob, num_releases
):
  """Beside Renyi divergences, whose bound is looser."""
  accountant = rdp.RdpAccountant().compose(
    dp_accounting.PoissonSampledDpEvent(
      prob, dp_accounting.GaussianDpEvent(multiplier)
    ),
    num_releases,
  )
  found = accounting.epsilon(multiplier, _poisson(prob), num_releases, _DELTA)
  bound = accountant.get_epsilon(_DELTA)
  assert 0.8 * bound < found < 0.95 * bound


@pytest.mark.parametrize(('target', 'prob'), [(0.5, 0.1), (8.0, 1.0)])
def test_noise_is_the_least_that_keeps_to_the_target(target, prob):
  found = accounting.solve_noise(target, _poisson(prob), 40, _DELTA)
  assert accounting.epsilon(found, _poisson(prob), 40, _DELTA) <= target
  assert accounting.epsilon(0.995 * found, _poisson(prob), 40, _DELTA) > target


def test_a_target_out_of_reach_is_refused():
  with pytest.raises(errors.ConfigError, match='target_epsilon 1e-07'):
    accounting.solve_noise(1e-7, _poisson(1.0), 1, 1e-12)


@pytest.mark.parametrize('multiplier', [1e-3, 0.06])
def test_noise_beyond_the_accountant_is_refused(multiplier):
  with pytest.raises(
    errors.ConfigError, match=f'of {multiplier} cannot be acc'
  ):
    accounting.epsilon(multiplier, _poisson(0.01), 1, _DELTA)


def test_a_large_budget_is_kept_with_the_least_noise():
  found = accounting.solve_noise(100.0, _poisson(0.01), 1, _DELTA)
  assert 0.1 <= found < 0.1002


def _tree(multiplier, epoch_releases, num_releases):
  return accounting.epsilon(
    multiplier,
    accounting.Participation(epoch_releases=epoch_releases),
    num_releases,
    _DELTA,
  )


def test_a_tree_of_one_release_is_bounded_by_the_closed_form():
  found = _tree(2.0, 1, 1)
  assert _delta(found, 2.0) < _DELTA
  assert _delta(found * 0.8, 2.0) > _DELTA


@pytest.mark.parametrize('epoch_releases', [1, 2, 3, 4, 7, 8, 12])
def test_trees_cost_as_many_releases_as_they_have_levels(epoch_releases):
  found = _tree(1.5, epoch_releases, epoch_releases)
  one = 1.5 / epoch_releases.bit_length() ** 0.5
  assert found == pytest.approx(_tree(one, 1, 1))


def test_trees_of_several_epochs_add_up():
  # Three levels, twice; then one level of a third tree.
  assert _tree(3.0, 7, 14) == pytest.approx(_tree(3.0 / 6**0.5, 1, 1))
  assert _tree(3.0, 7, 15) == pytest.approx(_tree(3.0 / 7**0.5, 1, 1))
  assert _tree(3.0, 7, 0) == 0
  found = accounting.solve_noise(
    2.0, accounting.Participation(epoch_releases=7), 14, _DELTA
  )
  assert 1.99 < _tree(found, 7, 14) <= 2.0
