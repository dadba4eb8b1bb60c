"""Tests of the local objectives against NumPy."""

import dataclasses

import numpy as np
import tensorflow as tf

from tests.testing import toys
from tff_algos.core import algorithm
from tff_algos.models.text import transformer
from tff_algos.stages.client import objectives, weighted_data

_MODEL = toys.linear(3)
_X = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
_Y = np.array([1.0, -2, 0.5, 3, 1], np.float32)
_KERNEL = np.array([[0.5], [-1], [2]], np.float32)


def _batch(mask):
  return algorithm.ClientData(
    tf.constant(_X), tf.constant(_Y), tf.constant(mask, tf.float32)
  )


def _value(objective, kernel, batch):
  return objective({'kernel': tf.constant(kernel)}, batch)


def test_mean_loss_is_over_real_examples_only():
  value, losses = _value(
    objectives.mean_loss(_MODEL, 0.5), _KERNEL, _batch([1, 0, 1, 1, 0])
  )
  squares = (_X @ _KERNEL[:, 0] - _Y) ** 2
  np.testing.assert_allclose(losses, squares, rtol=1e-5)
  np.testing.assert_allclose(value, 0.5 * squares[[0, 2, 3]].mean(), rtol=1e-5)


def test_the_mean_has_the_gradient_of_its_formula_bit_for_bit():
  mask = tf.constant([1.0, 0, 1, 1, 0])
  losses = tf.constant([2.0, np.nan, -1, 7, 5])

  def formula(losses):
    kept = tf.where(mask > 0, losses, tf.zeros_like(losses))
    return tf.reduce_sum(kept) / tf.reduce_sum(mask)

  found = []
  for mean in (lambda x: objectives.real_mean(x, mask), formula):
    with tf.GradientTape() as outer:
      outer.watch(losses)
      with tf.GradientTape() as inner:
        inner.watch(losses)
        value = mean(losses) ** 2
      first = inner.gradient(value, losses)
    second = outer.gradient(first, losses)
    found.append((mean(losses), first, second))
  tf.nest.map_structure(np.testing.assert_array_equal, *found)


def test_mean_loss_of_an_empty_batch_is_zero():
  value, _ = _value(objectives.mean_loss(_MODEL), _KERNEL, _batch([0] * 5))
  assert float(value) == 0


def test_mean_loss_counts_every_label_once():
  """One post of three words and one of a single word: four labels."""
  model = dataclasses.replace(
    transformer.build_transformer(
      transformer.TransformerConfig(num_blocks=1, width=4), (3,), 5
    ),
    padding_label=0,
  )
  weights = model.initialize(tf.constant([0, 1]))
  weights['head/bias'] += [0.0, 1, -1, 2, 0.5]
  labels = tf.constant([[1, 2, 3], [4, 0, 0], [1, 1, 1]])
  batch = algorithm.ClientData(
    tf.constant([[4, 1, 2], [4, 4, 0], [1, 1, 1]]),
    labels,
    tf.constant([1.0, 1, 0]),
  )
  value, losses = objectives.mean_loss(model, 0.5)(weights, batch)
  each = tf.nn.sparse_softmax_cross_entropy_with_logits(
    labels, model.apply(weights, batch.x)
  ).numpy()
  expected = (each[0].sum() + each[1, 0]) / 4
  np.testing.assert_allclose(value, 0.5 * expected, rtol=1e-5)
  np.testing.assert_allclose(
    losses[:2], [each[0].mean(), each[1, 0]], rtol=1e-5
  )


def test_masked_examples_have_no_gradient():
  def gradient(mask, y):
    weights = {'kernel': tf.constant(_KERNEL)}
    batch = _batch(mask)._replace(y=tf.constant(y))
    with tf.GradientTape() as tape:
      tape.watch(weights)
      value, _ = objectives.mean_loss(_MODEL)(weights, batch)
    return tape.gradient(value, weights)['kernel'].numpy()

  changed = _Y.copy()
  changed[1] = 1e6
  mask = [1, 0, 1, 1, 1]
  np.testing.assert_array_equal(gradient(mask, _Y), gradient(mask, changed))


_STACKED = np.stack([_KERNEL, 0.5 - _KERNEL])
_SHARES = np.array([[0.5, 1, 0.2, 0, 0.9], [0.5, 0, 0.8, 1, 0.1]], 'f').T


def test_weighted_losses_are_summed_over_models_and_real_examples():
  batch = weighted_data.WeightedData(
    _batch([1, 0, 1, 1, 0]), tf.constant(_SHARES)
  )
  with tf.GradientTape() as tape:
    stacked = {'kernel': tf.constant(_STACKED)}
    tape.watch(stacked)
    value, losses = objectives.weighted_mean_losses(_MODEL, 0.5)(stacked, batch)
  errors = np.einsum('nd,sd->ns', _X, _STACKED[..., 0]) - _Y[:, np.newaxis]
  weighted = (_SHARES * errors**2).sum(axis=1)
  np.testing.assert_allclose(losses, weighted, rtol=1e-5)
  real = [0, 2, 3]
  np.testing.assert_allclose(value, 0.5 * weighted[real].mean(), rtol=1e-5)
  np.testing.assert_allclose(
    tape.gradient(value, stacked)['kernel'][..., 0],
    np.einsum('ns,nd->sd', (_SHARES * errors)[real], _X[real]) / 3,
    rtol=1e-4,
  )


def test_the_penalty_does_not_depend_on_the_batch():
  center = {'kernel': tf.constant(_KERNEL + 1)}
  base = objectives.mean_loss(_MODEL)
  for mask in ([1] * 5, [1, 0, 0, 0, 0], [0] * 5):
    value, losses = _value(
      objectives.ProximalLoss(base, center, 0.5), _KERNEL, _batch(mask)
    )
    alone, base_losses = _value(base, _KERNEL, _batch(mask))
    np.testing.assert_allclose(value - alone, 0.25 * 3, rtol=1e-5)
    np.testing.assert_array_equal(losses, base_losses)


def test_two_pulls_are_one_up_to_a_constant():
  """weight / 2 |w - c|^2 + decay / 2 |w|^2."""
  base = objectives.mean_loss(_MODEL)
  center = {'kernel': tf.constant([[1.0], [0], [-1]])}
  pulled = objectives.ProximalLoss(base, center, 0.7)
  assert pulled.with_decay(0.0) is pulled
  gaps = []
  for kernel in (_KERNEL, _KERNEL + 1, -2 * _KERNEL):
    joined, _ = _value(pulled.with_decay(0.3), kernel, _batch([1] * 5))
    apart, _ = _value(pulled, kernel, _batch([1] * 5))
    gaps.append(joined - apart - 0.15 * np.sum(kernel**2))
  np.testing.assert_allclose(gaps, gaps[0], rtol=1e-3, atol=1e-4)


def test_a_tilted_objective_has_so_much_more_gradient():
  batch, slope = _batch([1, 0, 1, 1, 0]), {'kernel': tf.constant(_KERNEL * 3)}
  plain = objectives.mean_loss(_MODEL)
  tilted = objectives.tilted(plain, slope)
  weights = {'kernel': tf.constant(_KERNEL)}
  gradients = []
  for objective in (plain, tilted):
    with tf.GradientTape() as tape:
      tape.watch(weights)
      value, losses = objective(weights, batch)
    gradients.append((tape.gradient(value, weights)['kernel'], value, losses))
  (g, value, losses), (tilted_g, tilted_value, tilted_losses) = gradients
  np.testing.assert_allclose(tilted_g - g, 3 * _KERNEL, rtol=1e-4)
  expected = 3 * np.sum(_KERNEL**2)
  np.testing.assert_allclose(tilted_value - value, expected, rtol=1e-5)
  np.testing.assert_array_equal(tilted_losses, losses)
