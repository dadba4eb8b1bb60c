"""Tests of the perceptron."""

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import draws
from tff_algos.core import errors
from tff_algos.models import mlp
from tff_algos.numerics import trees


def _randomized(weights):
  """The same weights with biases, scales and offsets that are not 0 or 1."""
  return {
    name: tf.constant(leaf.numpy() + 0.1 * draws.normal(*leaf.shape, seed=i))
    for i, (name, leaf) in enumerate(weights.items())
  }


def test_layers_of_the_given_sizes_with_relu_between():
  model = mlp.build_mlp(mlp.MlpConfig(hidden_sizes=(5, 4)), (2, 3), 3)
  weights = _randomized(model.initialize(tf.constant([0, 1])))
  assert trees.num_entries(weights) == (6 * 5 + 5) + (5 * 4 + 4) + (4 * 3 + 3)
  x = draws.normal(7, 2, 3)
  hidden = x.reshape(7, 6)
  for i in range(3):
    kernel, bias = weights[f'dense_{i}/kernel'], weights[f'dense_{i}/bias']
    hidden = hidden @ kernel.numpy() + bias.numpy()
    if i < 2:
      hidden = np.maximum(hidden, 0)
  np.testing.assert_allclose(
    model.apply(weights, x), hidden, rtol=1e-4, atol=1e-5
  )


def test_with_one_output_it_is_a_regression():
  model = mlp.build_mlp(mlp.MlpConfig((4,)), (3,), 1)
  outputs = model.apply(
    model.initialize(tf.constant([0, 1])), draws.normal(5, 3)
  )
  targets = draws.normal(5, seed=1)
  np.testing.assert_allclose(
    model.example_losses(outputs, targets),
    (outputs.numpy()[:, 0] - targets) ** 2,
    rtol=1e-6,
  )
  assert model.score_name == 'mse'


def test_pfedkms_network_of_digits_has_101770_parameters():
  model = mlp.build_mlp(mlp.MlpConfig((128,)), (28, 28, 1), 10)
  assert trees.num_entries(model.weights_spec()) == 101_770


def test_group_norm_stands_before_the_activation():
  model = mlp.build_mlp(mlp.MlpConfig((16,), 'group'), (6,), 3)
  weights = _randomized(model.initialize(tf.constant([0, 1])))
  x = draws.normal(7, 6)
  hidden = x @ weights['dense_0/kernel'].numpy() + weights['dense_0/bias']
  # One group: eight of two units, or of one, would lose their values.
  grouped = hidden.numpy() - hidden.numpy().mean(axis=1, keepdims=True)
  grouped /= np.sqrt(np.mean(grouped**2, axis=1, keepdims=True) + 1e-5)
  hidden = grouped * weights['norm_0/scale'].numpy()
  hidden = np.maximum(hidden + weights['norm_0/offset'].numpy(), 0)
  expected = hidden @ weights['dense_1/kernel'].numpy()
  expected += weights['dense_1/bias'].numpy()
  np.testing.assert_allclose(
    model.apply(weights, x), expected, rtol=1e-3, atol=1e-3
  )


def test_no_hidden_layer_is_logistic_regression():
  model = mlp.build_mlp(mlp.MlpConfig(()), (4,), 3)
  weights = model.initialize(tf.constant([0, 1]))
  x = draws.normal(5, 4)
  np.testing.assert_allclose(
    model.apply(weights, x), x @ weights['dense_0/kernel'].numpy(), rtol=1e-5
  )


@pytest.mark.parametrize(
  ('options', 'text'),
  [
    ({'hidden_sizes': (5, 0)}, 'hidden_sizes must be an integer >= 1, got 0'),
    (
      {'hidden_sizes': (5, 1), 'normalization': 'group'},
      'hidden_sizes must be an integer >= 2, got 1',
    ),
    ({'normalization': 'batch'}, "normalization 'batch' is refused"),
    ({'normalization': 'layer'}, "normalization must be one of .* got 'layer'"),
  ],
)
def test_options_out_of_range_are_refused(options, text):
  with pytest.raises(errors.ConfigError, match=text):
    mlp.MlpConfig(**options)
