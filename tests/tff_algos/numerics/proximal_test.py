"""Tests of the proximal pull (FedSoft, Eqs. 4-5), in float64."""

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import stacks
from tff_algos.numerics import proximal


def _random_case(seed, num_centers=4):
  generator = np.random.default_rng(seed)
  shapes = {'kernel': (3, 2), 'bias': (2,)}
  pulls = generator.uniform(0.05, 1, num_centers)
  point = {name: generator.normal(size=s) for name, s in shapes.items()}
  centers = {
    name: generator.normal(size=(num_centers, *s)) for name, s in shapes.items()
  }
  return pulls, point, centers


def _penalties(pulls, point, centers):
  """sum_s u_s / 2 |w - c_s|^2, the printed form."""
  gaps = stacks.flat(point) - stacks.flat(centers, 1)
  return float(pulls @ (gaps**2).sum(axis=1) / 2)


@pytest.mark.parametrize('seed', range(5))
def test_many_pulls_are_one_pull_to_the_mixed_center_and_a_constant(seed):
  """FedSoft: sum u |w-c|^2 = U |w-c~|^2 + sum u |c-c~|^2, to 1e-10."""
  pulls, point, centers = _random_case(seed)
  mixed = proximal.mixed_center(tf.constant(pulls), centers)
  ours = float(proximal.penalty(point, mixed, pulls.sum()))
  spread = _penalties(pulls, {n: v.numpy() for n, v in mixed.items()}, centers)
  assert abs(ours + spread - _penalties(pulls, point, centers)) < 1e-10


@pytest.mark.parametrize('normalized', [True, False])
def test_gradient_is_that_of_the_printed_penalty(normalized):
  """Eq. 5 where the importances sum to 1, its general form where not."""
  pulls, point, centers = _random_case(7)
  if normalized:
    pulls /= pulls.sum()
  weight = 0.3
  point = {name: tf.constant(leaf) for name, leaf in point.items()}
  mixed = proximal.mixed_center(tf.constant(pulls), centers)
  with tf.GradientTape() as tape:
    tape.watch(point)
    value = proximal.penalty(point, mixed, weight * pulls.sum())
  gradient = stacks.flat(tape.gradient(value, point))
  w, c = stacks.flat(point), stacks.flat(centers, 1)
  expected = weight * (pulls.sum() * w - pulls @ c)
  np.testing.assert_allclose(gradient, expected, rtol=0, atol=1e-12)


def test_mixed_center_of_one_hot_pulls_is_that_center():
  _, _, centers = _random_case(3)
  mixed = proximal.mixed_center(
    tf.constant([0.0, 0, 1, 0], tf.float64), centers
  )
  for name, leaf in centers.items():
    np.testing.assert_array_equal(mixed[name], leaf[2])


def test_joint_pull_of_several_points_is_that_of_each_alone():
  """FedSoft's server makes all clients' centres at once.

  Products of some processors differ in the last bit with the number of rows.
  """
  _, _, centers = _random_case(3)
  centers = {name: leaf.astype(np.float32) for name, leaf in centers.items()}
  pulls = np.random.default_rng(1).uniform(0, 1, (5, 4)).astype(np.float32)
  together = proximal.joint_pull(tf.constant(pulls), centers)
  for i, row in enumerate(pulls):
    alone = proximal.joint_pull(tf.constant(row), centers)
    np.testing.assert_allclose(together.strength[i], alone.strength, rtol=1e-6)
    assert float(alone.strength) == pytest.approx(row.sum(), rel=1e-6)
    for name, leaf in alone.center.items():
      np.testing.assert_allclose(
        together.center[name][i], leaf, rtol=1e-5, atol=1e-6
      )


def test_where_nothing_pulls_the_center_is_zero_and_so_is_the_strength():
  _, _, centers = _random_case(3)
  pull = proximal.joint_pull(tf.zeros([4], tf.float64), centers)
  assert float(pull.strength) == 0
  assert not any(leaf.numpy().any() for leaf in pull.center.values())


def test_penalty_of_weight_zero_and_at_the_center_is_zero():
  _, point, _ = _random_case(3)
  assert float(proximal.penalty(point, point, 5.0)) == 0
  elsewhere = {name: leaf + 1 for name, leaf in point.items()}
  assert float(proximal.penalty(elsewhere, point, 0.0)) == 0
  np.testing.assert_allclose(proximal.penalty(elsewhere, point, 0.5), 0.25 * 8)
