"""Tests of mixtures of models against NumPy in float64."""

import dataclasses
from collections import OrderedDict

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import contract, exportable, toys
from tff_algos.core import model as model_lib
from tff_algos.stages.clusters import mixtures


def _posterior(losses, membership):
  found = mixtures.posterior(
    tf.constant(losses, tf.float32), tf.constant(membership, tf.float32)
  )
  return found.responsibilities.numpy(), found.losses.numpy()


def test_responsibilities_are_bayes_rule():
  generator = np.random.default_rng(0)
  losses = generator.uniform(0, 5, (3, 6))
  membership = np.array([0.5, 0.2, 0.3])
  joint = membership[:, None] * np.exp(-losses)
  found, found_losses = _posterior(losses, membership)
  np.testing.assert_allclose(found, joint / joint.sum(axis=0), rtol=1e-5)
  np.testing.assert_allclose(
    found_losses, -np.log(joint.sum(axis=0)), rtol=1e-5, atol=1e-6
  )
  np.testing.assert_allclose(found.sum(axis=0), 1, rtol=1e-6)


def test_losses_of_hundreds_leave_the_difference():
  """exp(-900) is 0 even in float64."""
  found, losses = _posterior([[900, 900, 1e30], [899, 100, 2e30]], [0.5, 0.5])
  odds = np.exp(-1) / (1 + np.exp(-1))
  np.testing.assert_allclose(found[0], [odds, 0, 1], rtol=1e-6)
  np.testing.assert_allclose(found[1], [1 - odds, 1, 0], rtol=1e-6)
  np.testing.assert_allclose(
    losses, [899 + np.log(2 * (1 - odds)), 100 + np.log(2), 1e30], rtol=1e-6
  )


def test_losses_of_hundreds_do_not_round_memberships_away():
  found, _ = _posterior([[900], [899]], [0.3, 0.7])
  odds = 0.3 * np.exp(-1) / (0.3 * np.exp(-1) + 0.7)
  np.testing.assert_allclose(found[:, 0], [odds, 1 - odds], rtol=1e-6)


def test_what_cannot_be_gets_nothing():
  """Membership 0, a loss that is infinite, and an example of nobody."""
  found, _ = _posterior(
    [[5, 5, np.inf], [0, 0, 0], [5, np.inf, np.inf]], [0.5, 0, 0.5]
  )
  np.testing.assert_allclose(found[:, :2], [[0.5, 1], [0, 0], [0.5, 0]])
  assert np.isnan(found[:, 2]).all()


def test_membership_is_the_mean_over_real_examples():
  shares = tf.constant([[0.5, 0.9, np.nan], [0.5, 0.1, np.nan]])
  old = tf.constant([0.3, 0.7])

  def mean(mask):
    return mixtures.mean_responsibilities(shares, tf.constant(mask), old)

  np.testing.assert_allclose(mean([1.0, 1, 0]), [0.7, 0.3], rtol=1e-6)
  np.testing.assert_allclose(mean([0.0, 1, 0]), [0.9, 0.1], rtol=1e-6)
  np.testing.assert_array_equal(mean([0.0, 0, 0]), old)
  assert np.isnan(mean([1.0, 1, 1])).all()


def test_fitted_membership_is_the_likeliest():
  """No other on a fine grid of the simplex is likelier; padding is not read."""
  losses = np.random.default_rng(3).uniform(0, 3, (3, 40))
  padded = np.concatenate([losses, np.full((3, 5), np.nan)], axis=1)
  mask = np.repeat([1.0, 0.0], [40, 5])
  found = mixtures.fit_membership(
    tf.constant(padded, tf.float32), tf.constant(mask, tf.float32)
  ).numpy()
  np.testing.assert_allclose(found.sum(), 1, rtol=1e-5)

  def likelihood(shares):
    return np.sum(np.log(shares @ np.exp(-losses)), axis=-1)

  grid = np.array(
    [[i, j, 60 - i - j] for i in range(61) for j in range(61 - i)]
  )
  assert likelihood(found) >= likelihood(grid / 60).max() - 1e-4
  # Nobody's examples say nothing.
  nobody = mixtures.fit_membership(
    tf.constant(padded, tf.float32), tf.zeros([45])
  )
  np.testing.assert_allclose(nobody, [1 / 3] * 3, rtol=1e-6)


_MEMBERSHIP = np.array([0.6, 0.1, 0.3])


def _weights(model, scale=1.0, membership=_MEMBERSHIP):
  canonical = exportable.random_weights(model, 3, seed=1)
  return OrderedDict(
    canonical=tf.nest.map_structure(
      lambda leaf: tf.constant(scale * leaf), canonical
    ),
    membership=tf.constant(membership, tf.float32),
  )


def _oracle(weights, x):
  """The outputs of the components, float64 `[3, batch, num_outputs]`."""
  canonical = {
    k: v.numpy().astype(float) for k, v in weights['canonical'].items()
  }
  return (
    np.einsum('bd,kdc->kbc', x, canonical['kernel'])
    + (canonical['bias'][:, None])
  )


@pytest.mark.parametrize('vectorizes', [True, False])
def test_classifiers_mix_their_probabilities(vectorizes):
  base = exportable.linear_model(vectorizes=vectorizes)
  model = mixtures.mixture_of_outputs(base, 3)
  assert model.vectorizes == vectorizes
  weights, x = _weights(base), exportable.sample_inputs(5)
  expected = np.einsum(
    'k,kbc->bc', _MEMBERSHIP, exportable.softmax(_oracle(weights, x))
  )
  # In eager mode, and in a graph, where components are stacked.
  for apply in (model.apply, tf.function(model.apply, autograph=False)):
    np.testing.assert_allclose(
      apply(weights, x), np.log(expected), rtol=1e-4, atol=1e-5
    )
  labels = np.array([0, 1, 2, 0, 1], np.int32)
  np.testing.assert_allclose(
    model.example_losses(model.apply(weights, x), labels),
    -np.log(expected[np.arange(5), labels]),
    rtol=1e-4,
    atol=1e-5,
  )
  np.testing.assert_array_equal(
    model.example_scores(model.apply(weights, x), labels),
    expected.argmax(axis=1) == labels,
  )


def test_the_loss_of_a_mixture_is_that_of_the_e_step():
  base = exportable.linear_model()
  model, weights = mixtures.mixture_of_outputs(base, 3), _weights(base)
  x, labels = exportable.sample_inputs(4), np.array([2, 1, 0, 1], np.int32)
  losses = base.map_stacked(
    lambda one: base.example_losses(base.apply(one, x), labels),
    weights['canonical'],
  )
  np.testing.assert_allclose(
    mixtures.posterior(losses, weights['membership']).losses,
    model.example_losses(model.apply(weights, x), labels),
    rtol=1e-5,
    atol=1e-6,
  )


def test_logits_of_thousands_are_no_harm():
  """All probabilities but the largest are 0 in float32; their logarithms are
  not. A component of membership 0 says nothing.
  """
  base = exportable.linear_model()
  model = mixtures.mixture_of_outputs(base, 3)
  x = exportable.sample_inputs(5)
  weights = _weights(base, 1e3, [0, 0.25, 0.75])
  logits = _oracle(weights, x)[1:]
  logs = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
  expected = np.logaddexp(np.log(0.25) + logs[0], np.log(0.75) + logs[1])
  assert expected.min() < -1000
  np.testing.assert_allclose(
    model.apply(weights, x), expected, rtol=1e-4, atol=1e-6
  )


def test_regressions_mix_their_predictions():
  base = exportable.linear_model(model_lib.REGRESSION)
  model = mixtures.mixture_of_outputs(base, 3)
  weights, x = _weights(base), exportable.sample_inputs(5)
  expected = np.einsum('k,kbc->bc', _MEMBERSHIP, _oracle(weights, x))
  found = model.apply(weights, x)
  assert found.shape == [5, 1]
  np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('build', contract.MODELS.values())
def test_a_mixture_starts_with_equal_shares_of_different_models(build):
  base = build()
  model = mixtures.mixture_of_outputs(base, 3)
  weights = model.initialize(tf.constant([1, 2]))
  assert list(weights) == ['canonical', 'membership']
  np.testing.assert_allclose(weights['membership'], [1 / 3] * 3)
  for leaf, spec in zip(
    tf.nest.flatten(weights), tf.nest.flatten(model.weights_spec()), strict=True
  ):
    assert leaf.shape == spec.shape
  for leaf, spec in zip(
    tf.nest.flatten(weights['canonical']),
    tf.nest.flatten(base.weights_spec()),
    strict=True,
  ):
    assert leaf.shape == [3, *spec.shape]
  outputs = model.apply(weights, np.ones([2, *model.input_shape], 'f'))
  np.testing.assert_allclose(np.exp(outputs).sum(axis=1), 1, rtol=1e-5)
  kernel = tf.nest.flatten(weights['canonical'])[-1]
  assert np.abs(kernel[0] - kernel[1]).max() > 0.01
  again = model.initialize(tf.constant([1, 2]))
  tf.nest.map_structure(np.testing.assert_array_equal, weights, again)


def test_a_mixture_differs_from_its_component_in_what_it_says_only():
  base = toys.mlp()
  model = mixtures.mixture_of_outputs(base, 4)
  assert model.name == 'mixture_of_4_mlp'
  same = dataclasses.replace(
    model, name=base.name, initialize=base.initialize, apply=base.apply
  )
  assert same == base
