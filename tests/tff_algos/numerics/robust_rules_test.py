"""Tests of the robust rules: against NumPy, and for what theory promises."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import robust_oracle, stacks
from tff_algos.core import errors
from tff_algos.numerics import robust_rules

_NUM_ROWS, _NUM_BYZANTINE = 11, 2
_OPTIONS = robust_rules.RuleOptions(
  num_byzantine=_NUM_BYZANTINE,
  trim_fraction=0.2,
  num_selected=6,
  clipping_radius=2.0,
  num_iterations=60,
  committee_share=0.3,
  accepted_share=0.5,
)
_WEIGHTS = np.arange(1.0, _NUM_ROWS + 1)
_START = stacks.normal_rows(1, seed=9)[0]
_GRAPHS = {
  name: tf.function(
    lambda values, weights, start, rule=rule: rule(
      robust_rules.Rows(values, weights, start), _OPTIONS
    ),
    reduce_retracing=True,
  )
  for name, rule in robust_rules.RULES.items()
}
_ROBUST = sorted(robust_rules.RULES.keys() - {'mean'})


def _apply(name, rows, weights=_WEIGHTS, start=_START):
  found = _GRAPHS[name](
    stacks.stack(rows), tf.constant(weights, tf.float32), stacks.stack(start)
  )
  return stacks.flat(found)


_EXPECTED = {
  'mean': lambda rows, w: np.average(rows, axis=0, weights=w),
  'median': lambda rows, w: np.median(rows, axis=0),
  'trimmed_mean': lambda rows, w: robust_oracle.trimmed_mean(rows, 2),
  'krum': lambda rows, w: rows[robust_oracle.krum_order(rows, 2)[0]],
  'multi_krum': lambda rows, w: robust_oracle.multi_krum(rows, 2, 6, w),
  # 3.3 of eleven rows are three members; half of the other eight are accepted.
  'committee': lambda rows, w: robust_oracle.committee(rows, 3, 4, w),
  'bulyan': lambda rows, w: robust_oracle.bulyan(rows, 2),
  'geometric_median': robust_oracle.geometric_median,
  'centered_clipping': lambda rows, w: robust_oracle.centered_clipping(
    rows, w, _START, 2.0, 60
  ),
  'norm_clipping': lambda rows, w: robust_oracle.centered_clipping(
    rows, w, _START, 2.0, 1
  ),
}


@pytest.mark.parametrize('name', robust_rules.RULES)
def test_rule_is_that_of_its_definition(name):
  for seed in range(5):
    rows = stacks.normal_rows(_NUM_ROWS, seed=seed)
    expected = _EXPECTED[name](rows, _WEIGHTS)
    np.testing.assert_allclose(_apply(name, rows), expected, atol=2e-5)


@pytest.mark.parametrize('name', robust_rules.RULES)
def test_order_of_rows_does_not_matter(name):
  rows = stacks.normal_rows(_NUM_ROWS, seed=3)
  order = np.random.default_rng(0).permutation(_NUM_ROWS)
  np.testing.assert_allclose(
    _apply(name, rows[order], _WEIGHTS[order]), _apply(name, rows), atol=1e-5
  )


@pytest.mark.parametrize('name', robust_rules.RULES)
def test_rows_of_weight_0_are_not_there(name):
  """Two rows more, which 11 of 13 do not see."""
  rows = stacks.normal_rows(_NUM_ROWS, seed=4)
  more = np.insert(rows, [0, 5], 1e6, axis=0)
  weights = np.insert(_WEIGHTS, [0, 5], 0.0)
  np.testing.assert_allclose(
    _apply(name, more, weights), _apply(name, rows), atol=1e-5
  )


@pytest.mark.parametrize('name', robust_rules.RULES)
def test_moving_all_models_moves_the_result(name):
  rows = stacks.normal_rows(_NUM_ROWS, seed=5)
  moved = _apply(name, rows + 3, start=_START + 3)
  np.testing.assert_allclose(moved, _apply(name, rows) + 3, atol=1e-5)


@pytest.mark.parametrize('name', _ROBUST)
@pytest.mark.parametrize('size', [1e3, 1e18])
def test_as_many_liars_as_assumed_do_not_carry_it_away(name, size):
  """The result stays among the honest rows, however far two others go.

  Each of these rules keeps the result within twice the largest distance of
  an honest row to the honest mean and to the start, plus the radius.
  """
  rows = stacks.normal_rows(_NUM_ROWS, seed=6)
  rows[[1, 7]] = size * np.sign(stacks.normal_rows(2, seed=7))
  honest = np.delete(rows, [1, 7], axis=0)
  center = honest.mean(axis=0)
  points = np.vstack([honest, _START])
  reach = np.linalg.norm(points - center, axis=1).max()
  weights = np.ones(_NUM_ROWS)
  gap = np.linalg.norm(_apply(name, rows, weights) - center)
  assert gap <= 2 * reach + _OPTIONS.clipping_radius


def test_one_liar_carries_the_mean_away():
  rows = stacks.normal_rows(_NUM_ROWS)
  rows[0] = 1e6
  assert np.abs(_apply('mean', rows, np.ones(_NUM_ROWS))).min() > 1e4


@pytest.mark.parametrize(
  'name', ['median', 'trimmed_mean', 'krum', 'geometric_median', 'committee']
)
def test_a_majority_of_liars_carries_it_away(name):
  """The breakdown point of none is above one half."""
  rows = stacks.normal_rows(_NUM_ROWS)
  rows[:6] = 1e6 + stacks.normal_rows(6, seed=1, scale=0.1)
  assert np.abs(_apply(name, rows, np.ones(_NUM_ROWS))).min() > 1e4


def _direct(name, rows, **options):
  made = robust_rules.Rows(
    stacks.stack(rows),
    tf.constant(_WEIGHTS, tf.float32),
    stacks.stack(_START),
  )
  changed = dataclasses.replace(_OPTIONS, **options)
  return stacks.flat(robust_rules.RULES[name](made, changed))


def test_limits_of_a_rule_are_other_rules():
  rows = stacks.normal_rows(_NUM_ROWS, seed=8)
  plain = rows.mean(axis=0)
  weighted = np.average(rows, axis=0, weights=_WEIGHTS)
  for found, expected in (
    (_direct('trimmed_mean', rows, trim_fraction=0.0), plain),
    (_direct('multi_krum', rows, num_selected=1), _apply('krum', rows)),
    (_direct('multi_krum', rows, num_selected=_NUM_ROWS), weighted),
    (_direct('norm_clipping', rows, clipping_radius=1e9), weighted),
    (_direct('bulyan', rows, num_byzantine=0), plain),
    (_direct('geometric_median', rows, smoothing=1e9), weighted),
  ):
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_multi_krum_leaves_out_as_many_as_assumed_by_default():
  rows = stacks.normal_rows(_NUM_ROWS, seed=2)
  np.testing.assert_allclose(
    _direct('multi_krum', rows, num_selected=0),
    robust_oracle.multi_krum(rows, 2, _NUM_ROWS - 2, _WEIGHTS),
    atol=1e-5,
  )


def test_mixing_of_nearest_neighbors_is_that_of_its_definition():
  rows = stacks.normal_rows(_NUM_ROWS, seed=10)
  made = robust_rules.Rows(
    stacks.stack(rows), tf.ones([_NUM_ROWS]), stacks.stack(_START)
  )
  mixed = robust_rules.mix_nearest_neighbors(made, 3)
  np.testing.assert_allclose(
    stacks.flat(mixed.values, 1),
    robust_oracle.mixed_neighbors(rows, 3),
    atol=1e-5,
  )


def test_a_share_of_a_whole_number_is_that_number():
  """0.29 times 100 is just below 29."""
  found = [
    int(robust_rules.num_trimmed(tf.constant(n), share))
    for n, share in ((30, 0.1), (100, 0.29), (29, 0.1), (9, 0.0))
  ]
  assert found == [3, 29, 2, 0]


@pytest.mark.parametrize(
  ('options', 'words'),
  [
    ({'num_byzantine': -1}, 'num_byzantine must be an integer >= 0'),
    ({'trim_fraction': -0.1}, 'trim_fraction must be'),
    ({'trim_fraction': 0.5}, "trim_fraction must be below 0.5.*'median'"),
    ({'num_selected': -1}, 'num_selected must be'),
    ({'clipping_radius': 0.0}, 'clipping_radius must be'),
    ({'num_iterations': 0}, 'num_iterations must be'),
    ({'smoothing': 0.0}, 'smoothing must be'),
    ({'committee_share': 0.6}, 'committee_share is 0.6'),
    ({'accepted_share': 0.0}, 'accepted_share must be'),
  ],
)
def test_bad_options_are_refused(options, words):
  with pytest.raises(errors.ConfigError, match=words):
    robust_rules.RuleOptions(**options)
