"""Tests of linear and logistic regression."""

import numpy as np
import pytest
import tensorflow as tf

from tff_algos.models import linear
from tff_algos.numerics import trees


def _random(*shape):
  return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def test_fed_softs_regression_has_ten_parameters():
  """FedSoft's synthetic model: ten features, no intercept."""
  model = linear.build_linear_regression(
    linear.LinearConfig(use_bias=False), (10,), 1
  )
  assert trees.num_entries(model.weights_spec()) == 10
  assert model.task == 'regression'
  assert model.num_outputs == 1


@pytest.mark.parametrize('use_bias', [True, False])
def test_regression_predicts_the_inner_product(use_bias):
  model = linear.build_linear_regression(
    linear.LinearConfig(use_bias), (2, 3), 1
  )
  weights = dict(model.initialize(tf.constant([0, 1])))
  assert ('bias' in weights) == use_bias
  if use_bias:
    np.testing.assert_array_equal(weights['bias'], [0])
    weights['bias'] = tf.constant([1.5])
  x = _random(5, 2, 3)
  expected = x.reshape(5, 6) @ weights['kernel'].numpy() + 1.5 * use_bias
  np.testing.assert_allclose(model.apply(weights, x), expected, rtol=1e-5)


def test_logistic_regression_has_a_logit_a_class():
  model = linear.build_logistic_regression(linear.LinearConfig(), (4, 4, 1), 3)
  weights = model.initialize(tf.constant([0, 1]))
  assert trees.num_entries(weights) == 16 * 3 + 3
  assert model.task == 'classification'
  x = _random(5, 4, 4, 1)
  np.testing.assert_allclose(
    model.apply(weights, x), x.reshape(5, 16) @ weights['kernel'], rtol=1e-5
  )


def test_the_same_seed_gives_the_same_weights_and_another_does_not():
  model = linear.build_linear_regression(linear.LinearConfig(), (10,), 1)
  kernel = model.initialize(tf.constant([1, 1]))['kernel']
  again = model.initialize(tf.constant([1, 1]))['kernel']
  other = model.initialize(tf.constant([1, 2]))['kernel']
  np.testing.assert_array_equal(kernel, again)
  assert not np.isclose(kernel, other).any()
