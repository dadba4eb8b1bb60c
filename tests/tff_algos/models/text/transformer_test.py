"""Tests of the transformer, against NumPy place by place."""

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import exportable, networks
from tff_algos.core import errors
from tff_algos.models.text import transformer
from tff_algos.numerics import trees

_WORDS, _PLACES = 7, 4


def _build(places=_PLACES, words=_WORDS, **options):
  options = {'num_blocks': 2, 'width': 6, 'hidden_size': 5, 'num_heads': 2} | (
    options
  )
  config = transformer.TransformerConfig(**options)
  return transformer.build_transformer(config, (places,), words)


def test_parameter_counts_of_the_papers():
  """PPFL's: one decoder for each of five canonical models, and no tied one."""
  options = {'width': 256, 'hidden_size': 1024, 'num_blocks': 4, 'num_heads': 4}
  tied = trees.num_entries(_build(20, 10_004, **options).weights_spec())
  assert tied == 5_731_092
  spec = _build(20, 10_004, decoder='untied', **options).weights_spec()
  decoder = trees.num_entries(spec['head/kernel'])
  assert decoder == 2_561_024
  assert trees.num_entries(spec) + 4 * decoder == 18_536_212


def _normalize(values, weights, name):
  """Normalizes one vector."""
  deviation = np.sqrt(((values - values.mean()) ** 2).mean() + 1e-5)
  normalized = (values - values.mean()) / deviation
  return normalized * weights[f'{name}/scale'] + weights[f'{name}/offset']


def _attend(hidden, weights, name):
  """Two heads of three features; a place sees those up to itself."""
  query, key, value = (
    hidden @ weights[f'{name}/{part}'] for part in ('query', 'key', 'value')
  )
  mixed = np.zeros_like(hidden)
  for head in (slice(0, 3), slice(3, 6)):
    for t in range(len(hidden)):
      scores = [query[t, head] @ key[s, head] for s in range(t + 1)]
      shares = exportable.softmax(np.array(scores) / np.sqrt(3))
      mixed[t, head] = sum(
        share * value[s, head] for s, share in enumerate(shares)
      )
  return mixed @ weights[f'{name}/output']


def _logits(weights, ids, decoder):
  """The network's logits for one sequence."""
  hidden = weights['embedding'][ids] * np.sqrt(6) + weights['positions']
  hidden = np.maximum(hidden.astype(np.float64), 0)
  for i in range(2):
    name = f'block_{i}'
    added = hidden + _attend(hidden, weights, name)
    hidden = np.stack([_normalize(v, weights, f'{name}/norm_0') for v in added])
    inner = hidden @ weights[f'{name}/dense_0/kernel']
    inner = np.maximum(inner + weights[f'{name}/dense_0/bias'], 0)
    added = hidden + inner @ weights[f'{name}/dense_1/kernel']
    added = added + weights[f'{name}/dense_1/bias']
    hidden = np.stack([_normalize(v, weights, f'{name}/norm_1') for v in added])
  return hidden @ decoder + weights['head/bias']


@pytest.mark.parametrize('decoder', transformer.DECODERS)
def test_network_agrees_with_numpy(decoder):
  model = _build(decoder=decoder)
  weights = networks.shifted(model)
  x = np.array([[1, 4, 0, 6], [5, 5, 2, 3]])
  kernel = weights.get('head/kernel', weights['embedding'].T)
  expected = [_logits(weights, ids, kernel) for ids in x]
  outputs = model.apply(weights, tf.constant(x, tf.int32))
  np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-4)


def test_no_place_sees_a_later_one():
  model = _build()
  weights = networks.shifted(model)
  first = model.apply(weights, tf.constant([[1, 2, 3, 4]]))
  other = model.apply(weights, tf.constant([[1, 2, 6, 5]]))
  np.testing.assert_array_equal(first[:, :2], other[:, :2])
  assert np.abs(first[:, 2:] - other[:, 2:]).min() > 1e-3


def test_an_untied_decoder_starts_as_the_tied_one():
  seed, x = tf.constant([0, 1]), tf.constant([[1, 2, 3, 4]])
  tied, untied = _build(), _build(decoder='untied')
  np.testing.assert_allclose(
    tied.apply(tied.initialize(seed), x),
    untied.apply(untied.initialize(seed), x),
    rtol=1e-4,
    atol=1e-6,
  )


def test_initial_weights():
  """Variances within 5 standard errors: false alarms below 1e-5."""
  weights = _build(width=40, hidden_size=30).initialize(tf.constant([0, 1]))
  for name, leaf in weights.items():
    leaf = leaf.numpy()
    if name.endswith('scale'):
      np.testing.assert_array_equal(leaf, np.ones_like(leaf))
    elif name.endswith(('offset', 'bias')):
      np.testing.assert_array_equal(leaf, np.zeros_like(leaf))
    else:
      assert abs(leaf.var() / 4e-4 - 1) < 5 * (2 / leaf.size) ** 0.5, name
  assert np.abs(weights['block_0/key'] - weights['block_0/query']).max() > 0.01


@pytest.mark.parametrize('decoder', transformer.DECODERS)
def test_a_step_down_the_gradient_lowers_the_loss(decoder):
  """The gradient is dense, as optimizers and averages need it."""
  model = _build(decoder=decoder)
  weights = networks.shifted(model)
  x, y = tf.constant([[1, 4, 0, 6]]), tf.constant([[4, 0, 6, 2]])

  def loss(weights):
    return model.example_losses(model.apply(weights, x), y)[0]

  weights = tf.nest.map_structure(tf.constant, weights)
  with tf.GradientTape() as tape:
    tape.watch(weights)
    before = loss(weights)
  slope = tape.gradient(before, weights)
  for name, leaf in slope.items():
    assert isinstance(leaf, tf.Tensor), name
    assert np.abs(leaf).max() > 0, name
  moved = {name: leaf - 1e-3 * slope[name] for name, leaf in weights.items()}
  assert loss(moved) < before


def test_stacked_over_clusters_and_clients():
  """Two axes more than a model has, as evaluation on a cohort has them."""
  model = _build()
  seeds = [[tf.constant([i, j]) for j in range(2)] for i in range(3)]
  each = [[model.initialize(seed) for seed in row] for row in seeds]
  rows = [tf.nest.map_structure(lambda *a: tf.stack(a), *row) for row in each]
  stacked = tf.nest.map_structure(lambda *a: tf.stack(a), *rows)
  x = tf.constant([[1, 4, 0, 6], [5, 5, 2, 3]])
  outputs = tf.function(
    lambda stacked: tf.vectorized_map(
      lambda row: model.map_stacked(lambda one: model.apply(one, x), row),
      stacked,
    )
  )(stacked)
  expected = [[model.apply(weights, x) for weights in row] for row in each]
  np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
  ('options', 'text'),
  [
    ({'num_heads': 4}, 'width must be a multiple of num_heads=4, got 6'),
    ({'num_blocks': 0}, 'num_blocks must be'),
    ({'decoder': 'shared'}, "'tied', 'untied', got 'shared'"),
  ],
)
def test_bad_options(options, text):
  with pytest.raises(errors.ConfigError, match=text):
    _build(**options)


def test_other_inputs_than_sequences_are_refused():
  with pytest.raises(errors.ConfigError, match='transformer takes sequences'):
    transformer.build_transformer(
      transformer.TransformerConfig(), (28, 28, 1), 10
    )
