"""How often FedSoft gives an example to the wrong cluster.

Ruan and Joe-Wong (2021), Theorem 1, and the exact law for linear regression
with standard normal features and noise.
"""

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import client_data, toys
from tff_algos.algorithms.fed_soft import importance as importance_lib
from tff_algos.stages.clusters import assignment


def _two_regressions(gap):
  thetas = np.random.default_rng(1).normal(size=(2, 10))
  return thetas * gap / np.linalg.norm(thetas[0] - thetas[1])


def _assigned_shares(centers, x, y):
  """Shares of examples that our assignment stage gives to each centre."""
  data = client_data.build(x, y)
  stacked = {'kernel': tf.constant(centers[..., np.newaxis], tf.float32)}
  losses = assignment.cluster_losses(toys.linear(10), stacked, data)
  counts = importance_lib.best_cluster_counts(losses, data.mask)
  return counts.numpy() / len(y)


def _regression_examples(theta, num_examples, seed=0):
  generator = np.random.default_rng(seed)
  x = generator.normal(size=(num_examples, 10))
  return x, x @ theta + generator.normal(size=num_examples)


def _misassignment(centers, theta):
  """Exact chance that a point of source 0 goes to centre 1."""
  gap, rest = centers[1] - centers[0], 2 * theta - centers[0] - centers[1]
  length = np.linalg.norm(gap) * np.sqrt(rest @ rest + 4)
  return 0.5 + np.arcsin(gap @ rest / length) / np.pi


@pytest.mark.parametrize(('gap', 'expected'), [(12.85, 0.0491), (3.7, 0.158)])
def test_misassignment_of_two_regressions_is_what_theory_says(gap, expected):
  """p = arctan(2 / D) / pi at the true centres, and off them.

  1,600,000 points: 1.5e-3 is over 5 standard errors (false alarms below 1e-6).
  """
  thetas = _two_regressions(gap)
  assert abs(np.arctan(2 / gap) / np.pi - expected) < 5e-4
  assert abs(_misassignment(thetas, thetas[0]) - expected) < 5e-4
  offsets = np.random.default_rng(2).normal(size=(2, 10))
  for centers in (thetas, thetas + 0.1 * gap * offsets):
    shares = [
      _assigned_shares(centers, *_regression_examples(thetas[0], 400_000, seed))
      for seed in range(4)
    ]
    exact = _misassignment(centers, thetas[0])
    assert abs(np.mean(shares, axis=0)[1] - exact) < 1.5e-3


def test_importance_is_bounded_by_theorem_one():
  """E[u_ks^t] <= (1 - p) u_ks + p', p = largest pairwise misassignment.

  60,000 points a source: the slack of the bound is many standard errors.
  """
  thetas = np.random.default_rng(3).normal(size=(3, 10)) * 3
  mixture, smoother = np.array([0.6, 0.3, 0.1]), 1e-4
  shares = np.stack(
    [
      _assigned_shares(thetas, *_regression_examples(theta, 60_000, seed))
      for seed, theta in enumerate(thetas)
    ]
  )
  worst = max(
    _misassignment(thetas[[s, other]], thetas[s])
    for s in range(3)
    for other in range(3)
    if s != other
  )
  importance = mixture @ shares
  assert (importance <= (1 - worst) * mixture + worst + smoother).all()
  assert (np.abs(importance - mixture) > 0.01).any(), 'the bound has work to do'
