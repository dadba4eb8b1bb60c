"""Tests of false updates: by hand, against NumPy and by their distances."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tests.testing import robust_oracle, stacks
from tff_algos.adversaries import falsification
from tff_algos.numerics import robust_distances

_SEED = tf.constant([3, 4])
_IS_HONEST = np.array([True, False, True, True, True, False, True])


def _honest(seed=0, scale=1.0, shift=0.5):
  rows = shift + stacks.normal_rows(7, seed=seed, scale=scale)
  rows[~_IS_HONEST] = 1e4
  made = falsification.HonestRows(stacks.stack(rows), tf.constant(_IS_HONEST))
  return made, rows[_IS_HONEST]


def _direction(honest, perturbation):
  mean = honest.mean(axis=0)
  return {
    'std': -honest.std(axis=0),
    'unit': -mean / np.linalg.norm(mean),
    'sign': -np.sign(mean),
  }[perturbation]


def test_scaling_is_within_its_bounds_and_uniform():
  """20,000 entries: six standard errors of a uniform mean and deviation."""
  update = {'w': tf.ones([10000]), 'b': -tf.ones([10000])}
  found = falsification.scale_entries(update, _SEED, 0.5)
  ratios = np.concatenate([found['w'], -found['b']])
  assert ratios.min() >= 0.5
  assert ratios.max() < 1
  assert abs(ratios.mean() - 0.75) < 6 * ratios.std() / 20000**0.5
  np.testing.assert_allclose(ratios.std(), 0.5 / 12**0.5, rtol=0.03)
  assert len(np.unique(found['w'].numpy() + found['b'].numpy())) > 9000


def test_noise_is_normal():
  """20,000 numbers; a Kolmogorov-Smirnov test fails by chance in 1 of 10^6."""
  update = {'w': tf.fill([10000], 2.0), 'b': tf.fill([100, 100], 2.0)}
  found = falsification.add_noise(update, _SEED, 3.0)
  noise = np.concatenate([np.ravel(leaf) - 2 for leaf in found.values()]) / 3
  assert stats.kstest(noise, 'norm').pvalue > 1e-6
  assert abs(np.corrcoef(noise[:10000], noise[10000:])[0, 1]) < 0.06


@pytest.mark.parametrize(
  ('attack', 'num_draws'),
  [(falsification.scale_entries, 2), (falsification.add_noise, 4)],
)
def test_no_two_draws_are_of_the_same_numbers(monkeypatch, attack, num_draws):
  drawn = []
  uniform = falsification._uniform

  def record(*arguments):
    drawn.append(uniform(*arguments))
    return drawn[-1]

  monkeypatch.setattr(falsification, '_uniform', record)
  attack({'w': tf.ones([9]), 'b': tf.ones([9])}, _SEED, 0.5)
  assert len({tuple(one.numpy()) for one in drawn}) == num_draws


def test_randomness_follows_from_the_seed():
  update = {'w': tf.ones([50])}
  for attack in (falsification.scale_entries, falsification.add_noise):
    one, same, other = (
      attack(update, tf.constant(seed), 0.5)['w'].numpy()
      for seed in ([1, 2], [1, 2], [2, 1])
    )
    np.testing.assert_array_equal(one, same)
    assert np.abs(one - other).max() > 0.1


def test_statistics_are_those_of_the_honest_rows():
  rows, honest = _honest()
  np.testing.assert_allclose(
    stacks.flat(rows.mean()), honest.mean(axis=0), atol=1e-5
  )
  np.testing.assert_allclose(
    stacks.flat(rows.deviation()), honest.std(axis=0), rtol=1e-5
  )


def test_little_is_enough_and_inner_product_manipulation():
  rows, honest = _honest()
  mean, deviation = honest.mean(axis=0), honest.std(axis=0)
  found = falsification.little_is_enough(rows, tf.constant(1.5))
  np.testing.assert_allclose(
    stacks.flat(found), mean - 1.5 * deviation, atol=1e-5
  )
  found = falsification.inner_product_manipulation(rows, 0.5)
  np.testing.assert_allclose(stacks.flat(found), -0.5 * mean, atol=1e-5)


def test_hidden_deviations_are_those_of_the_papers_example():
  """Baruch et al., Section 3.2: 50 workers, 24 of them corrupted, 2 needed."""
  found = falsification.hidden_deviations(tf.constant(50), tf.constant(24))
  np.testing.assert_allclose(found, stats.norm.ppf(24 / 26), rtol=1e-4)
  few = falsification.hidden_deviations(tf.constant(10), tf.constant(1))
  assert float(few) == 0


@pytest.mark.parametrize('perturbation', falsification.PERTURBATIONS)
def test_min_max_and_min_sum_go_as_far_as_a_search_does(perturbation):
  rows, honest = _honest()
  direction = _direction(honest, perturbation)
  for name in ('min_max', 'min_sum'):
    found = stacks.flat(getattr(falsification, name)(rows, perturbation))
    expected = getattr(robust_oracle, name)(honest, direction)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    # It has left the mean.
    assert np.linalg.norm(found - honest.mean(axis=0)) > 0.1


def test_equal_honest_rows_leave_no_room():
  rows = falsification.HonestRows(
    stacks.stack(np.tile(stacks.normal_rows(1), (4, 1))), tf.fill([4], True)
  )
  for found in (
    falsification.min_max(rows, 'std'),
    falsification.min_max(rows, 'sign'),
    falsification.min_sum(rows, 'unit'),
  ):
    np.testing.assert_allclose(
      stacks.flat(found), stacks.normal_rows(1)[0], atol=1e-5
    )


@pytest.mark.parametrize(
  ('squared', 'inner', 'rest', 'expected'),
  [
    (2, 0, -8, 2),
    (1, 1, -3, 1),
    (0, 0, -1, 0),
    (1, 0, 1, 0),
    (1, 3, 1, 0),
    (1, -1, 2, 0),
  ],
)
def test_largest_step_by_hand(squared, inner, rest, expected):
  arguments = (
    tf.constant(float(n), tf.float64) for n in (squared, inner, rest)
  )
  found = falsification.largest_step(*arguments)
  np.testing.assert_allclose(found, expected)


def test_a_hidden_update_has_no_worse_krum_score_than_every_honest_one():
  """Min-sum is built to be no farther from the others than the farthest."""
  rows, honest = _honest(seed=5)
  false = stacks.flat(falsification.min_sum(rows, 'std'))
  points = np.vstack([honest, false])
  scores = robust_distances.krum_scores(
    tf.constant(robust_oracle.squared_distances(points)), tf.fill([6], True), 0
  ).numpy()
  assert scores[-1] < scores[:-1].max()


@pytest.mark.parametrize('perturbation', falsification.PERTURBATIONS)
@pytest.mark.parametrize('accepted', [1, 3, 5])
def test_who_knows_the_committees_rule_is_as_near_as_the_last_accepted(
  perturbation, accepted
):
  """And by Eq. 7's pairwise distances it ranks there, if all honest vote."""
  rows, honest = _honest(seed=6)
  false = stacks.flat(
    falsification.committee_aware(rows, perturbation, accepted / 5)
  )
  distances = np.linalg.norm(honest - honest.mean(axis=0), axis=1)
  distance = np.linalg.norm(false - honest.mean(axis=0))
  assert distance == pytest.approx(np.sort(distances)[accepted - 1], rel=1e-3)
  towards = (false - honest.mean(axis=0)) @ _direction(honest, perturbation)
  assert towards > 0
  pairwise = [
    np.mean(np.sum((honest - one) ** 2, axis=1))
    for one in [*honest, 0.999 * false + 0.001 * honest.mean(axis=0)]
  ]
  assert np.argsort(pairwise).tolist().index(5) <= accepted - 1
