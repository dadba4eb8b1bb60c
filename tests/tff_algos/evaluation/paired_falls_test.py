"""Falls of scores, against NumPy loops and over many drawn data sets."""

import functools

import numpy as np
import pytest
from scipy import stats

from tff_algos.evaluation import paired_falls, summaries

_WORST_DECILE = functools.partial(summaries.worst_decile, higher_is_better=True)
_BEFORE = np.array([0.9, 0.4, 0.7, 0.6, 0.8, 0.5])
_AFTER = np.array([0.7, 0.5, 0.6, 0.3, 0.8, 0.4])


def _estimate(before, after, seed=0, **options):
  options = {
    'higher_is_better': True,
    'tail': 0.05,
    'num_resamples': 500,
    **options,
  }
  return paired_falls.estimate(
    before, after, np.random.default_rng(seed), **options
  )


def test_bounds_are_quantiles_of_the_resampled_falls():
  """Drawn again in a loop, unit by unit."""
  found = _estimate(_BEFORE, _AFTER, num_resamples=1000)
  rows = np.random.default_rng(0).integers(6, size=(1000, 6))
  falls = [
    sum(_BEFORE[i] - _AFTER[i] for i in resample) / 6 for resample in rows
  ]
  # A t interval of 6 units, in normal deviations.
  deviations = stats.t(5).ppf(0.05) * np.sqrt(6 / 5)
  tail = stats.norm.cdf(deviations)
  assert 0.01 < tail < 0.02
  assert found.low == pytest.approx(np.quantile(falls, tail))
  assert found.high == pytest.approx(np.quantile(falls, 1 - tail))
  assert found.before == pytest.approx(3.9 / 6)
  assert found.after == pytest.approx(3.3 / 6)
  assert found.fall == pytest.approx(0.1)


def test_bounds_beyond_the_resamples_are_about_those_of_a_t_interval():
  """No quantile of 5,000 is as far out."""
  falls = np.random.default_rng(1).normal(size=100)
  options = {'tail': 1e-6, 'num_resamples': 5000}
  found = _estimate(falls, np.zeros(100), **options)
  way = stats.t(99).ppf(1 - 1e-6) * stats.sem(falls)
  assert found.fall - found.low == pytest.approx(way, rel=0.1)
  assert found.high - found.fall == pytest.approx(way, rel=0.1)


def test_bounds_of_two_units_widen_with_every_smaller_tail():
  """Also where that tail of the resamples is smaller than any float."""
  found = [
    _estimate([0.9, 0.8], [0.87, 0.75], tail=0.05 / groups, num_resamples=1000)
    for groups in (1, 4, 5, 8, 400)
  ]
  lows, highs = [one.low for one in found], [one.high for one in found]
  assert lows == sorted(lows, reverse=True)
  assert highs == sorted(highs)


def test_a_tail_of_a_half_is_the_median_of_the_resamples():
  """`gate.confidence` 0.5 for one group: no deviation to stretch by."""
  found = _estimate(_BEFORE, _AFTER, tail=0.5)
  assert found.low == found.high == pytest.approx(found.fall, abs=0.03)


def test_chunks_change_nothing(monkeypatch):
  whole = _estimate(_BEFORE, _AFTER)
  monkeypatch.setattr(paired_falls, '_MAX_CHUNK', 6 * 7)
  assert _estimate(_BEFORE, _AFTER) == whole


def test_fall_of_an_error_is_its_relative_rise():
  found = _estimate([2.0, 4.0], [3.0, 6.0], higher_is_better=False)
  assert found.fall == found.low == found.high == pytest.approx(0.5)
  assert _estimate([0.0], [1.0], higher_is_better=False).low > 1e6
  assert _estimate([0.0], [0.0], higher_is_better=False).fall == 0


def test_what_is_difficult_for_both_cancels_out():
  """Each client loses a point, whatever its level: no uncertainty is left."""
  levels = np.linspace(0.1, 0.9, 30)
  found = _estimate(levels, levels - 0.01)
  assert found.low == pytest.approx(0.01)
  assert found.high == pytest.approx(0.01)


@pytest.mark.parametrize('num_units', [8, 24])
def test_false_alarms_are_as_rare_as_the_tail(num_units):
  """No true fall, 12 examples a client: the bound is above 0 in 5 % of cases.

  Of 400 cases 8 % are refused with a probability below 1 in 100 if 5 % are
  expected; the seed is fixed. Plain percentiles of 8 units refuse 7 to 10 %.
  """
  rng = np.random.default_rng(num_units)
  alarms = {'mean': 0, 'worst decile': 0}
  for seed in range(400):
    level = rng.beta(6, 2, num_units)
    before, after = (rng.binomial(12, level) / 12 for _ in range(2))
    for name, statistic in (
      ('mean', paired_falls.mean),
      ('worst decile', _WORST_DECILE),
    ):
      found = _estimate(
        before, after, seed, num_resamples=1000, statistic=statistic
      )
      alarms[name] += found.low > 0
  assert all(0.01 < count / 400 < 0.08 for count in alarms.values()), alarms


def test_falls_are_found():
  """A fall by 0.2 of 24 clients is above a threshold of 0.03."""
  rng = np.random.default_rng(5)
  level = rng.beta(6, 2, 24)
  before = rng.binomial(12, level) / 12
  after = rng.binomial(12, np.maximum(level - 0.2, 0)) / 12
  assert _estimate(before, after, tail=0.005, num_resamples=4000).low > 0.03


@pytest.mark.parametrize(
  ('before', 'after'), [([1.0], [1.0, 2.0]), ([], []), ([[1.0]], [[1.0]])]
)
def test_scores_that_are_not_paired(before, after):
  with pytest.raises(ValueError, match='two vectors of one length'):
    _estimate(before, after)
