"""Tests of linear and logistic regression."""

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import draws
from tff_algos.models import linear
from tff_algos.numerics import trees


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
  x = draws.normal(5, 2, 3)
  expected = x.reshape(5, 6) @ weights['kernel'].numpy() + 1.5 * use_bias
  np.testing.assert_allclose(model.apply(weights, x), expected, rtol=1e-5)


def test_logistic_regression_has_a_logit_a_class():
  model = linear.build_logistic_regression(
    linear.LogisticConfig(), (4, 4, 1), 3
  )
  weights = model.initialize(tf.constant([0, 1]))
  assert trees.num_entries(weights) == 16 * 3 + 3
  assert model.task == 'classification'
  x = draws.normal(5, 4, 4, 1)
  np.testing.assert_allclose(
    model.apply(weights, x), x.reshape(5, 16) @ weights['kernel'], rtol=1e-5
  )


def test_pfedkms_regression_of_digits_has_7850_parameters():
  model = linear.build_logistic_regression(
    linear.LogisticConfig(), (28, 28, 1), 10
  )
  assert trees.num_entries(model.weights_spec()) == 7_850


def test_ppfls_binary_regression_has_151_parameters():
  """One logit: the probability of class 1 is its sigmoid."""
  model = linear.build_logistic_regression(
    linear.LogisticConfig(reference_class=True), (150,), 2
  )
  weights = model.initialize(tf.constant([0, 1]))
  assert trees.num_entries(weights) == 151
  weights['bias'] += 0.7
  x = draws.normal(5, 150)
  outputs = model.apply(weights, x)
  assert outputs.shape == (5, model.num_outputs)
  logit = (x @ weights['kernel'].numpy())[:, 0] + 0.7
  np.testing.assert_allclose(
    tf.nn.softmax(outputs)[:, 1], 1 / (1 + np.exp(-logit)), rtol=1e-5
  )
  losses = model.example_losses(outputs, tf.constant([1, 0, 1, 1, 0]))
  signs = np.array([1, -1, 1, 1, -1])
  np.testing.assert_allclose(
    losses, np.log1p(np.exp(-signs * logit)), rtol=1e-5, atol=1e-6
  )


def test_a_reference_class_among_three():
  model = linear.build_logistic_regression(
    linear.LogisticConfig(reference_class=True), (4,), 3
  )
  weights = model.initialize(tf.constant([0, 1]))
  assert trees.num_entries(weights) == 2 * 5
  outputs = model.apply(weights, draws.normal(6, 4)).numpy()
  np.testing.assert_array_equal(outputs[:, 0], np.zeros(6))
  np.testing.assert_allclose(
    outputs[:, 1:], draws.normal(6, 4) @ weights['kernel'].numpy(), rtol=1e-5
  )


def test_the_same_seed_gives_the_same_weights_and_another_does_not():
  model = linear.build_linear_regression(linear.LinearConfig(), (10,), 1)
  kernel = model.initialize(tf.constant([1, 1]))['kernel']
  again = model.initialize(tf.constant([1, 1]))['kernel']
  other = model.initialize(tf.constant([1, 2]))['kernel']
  np.testing.assert_array_equal(kernel, again)
  assert not np.isclose(kernel, other).any()
