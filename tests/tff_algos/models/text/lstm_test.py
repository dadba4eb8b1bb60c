"""Tests of the LSTMs of characters and words, against NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import contract, lstm_oracle, networks, toys
from tff_algos.algorithms import registry as algorithms
from tff_algos.core import errors
from tff_algos.data import schema
from tff_algos.models.text import embeddings, recurrent
from tff_algos.numerics import trees
from tff_algos.runtimes import debug_runtime
from tff_algos.runtimes.tff import tff_runtime
from tff_algos.runtimes.vectorized import vectorization, vectorized_runtime

_PLACES, _CHARACTERS = 5, 7
_VOCABULARY = ('good', 'bad', 'day')
_SPECIAL_IDS = {'padding': 0, 'unknown': 4}


def _build(name, places=_PLACES, num_outputs=None, **options):
  default = _CHARACTERS if name == 'character_lstm' else 2
  return toys.build(
    {'name': name, **options},
    (places,),
    num_outputs or default,
    input_dtype=tf.int32,
    vocabulary=_VOCABULARY,
    special_ids=_SPECIAL_IDS,
  )


def _small(name, **options):
  if name == 'word_lstm':
    options = {'embedding_size': 4, 'dense_size': 3} | options
  return _build(name, hidden_size=6, **options)


def _ids(model, seed=0):
  generator = np.random.default_rng(seed)
  return generator.integers(0, 5, (4, *model.input_shape), np.int32)


_EACH = pytest.mark.parametrize('name', ['character_lstm', 'word_lstm'])
_WORDS_FIRST = pytest.mark.parametrize(
  'name',
  [pytest.param('character_lstm', marks=pytest.mark.verify), 'word_lstm'],
)
_EITHER = pytest.mark.parametrize('recurrence', recurrent.RECURRENCES)


@pytest.mark.parametrize(
  ('name', 'places', 'num_outputs', 'units', 'count'),
  [
    ('character_lstm', 80, 80, 100, 132_720),
    ('character_lstm', 80, 80, 256, 817_872),
    ('word_lstm', 25, 2, 100, 243_861),
    ('word_lstm', 25, 2, 256, 1_103_421),
  ],
)
def test_parameter_counts_of_the_paper(name, places, num_outputs, units, count):
  model = _build(name, places, num_outputs, hidden_size=units)
  assert trees.num_entries(model.weights_spec()) == count


def test_a_logit_for_each_class():
  model = _build('word_lstm', reference_class=False)
  assert trees.num_entries(model.weights_spec()) == 243_861 + 31


@_EITHER
def test_characters_agree_with_numpy(recurrence):
  model = _small('character_lstm', recurrence=recurrence)
  weights, x = networks.shifted(model), _ids(model)
  expected = [
    lstm_oracle.logits(weights, weights['embedding'][ids]) for ids in x
  ]
  np.testing.assert_allclose(model.apply(weights, x), expected, 1e-4, 1e-5)


@_EITHER
@pytest.mark.parametrize('reference_class', [True, False])
def test_words_agree_with_numpy(tmp_path, recurrence, reference_class):
  """Vectors of a file; 'bad' is not in it."""
  path = tmp_path / 'glove.txt'
  path.write_text('day 1 2 -3 0.5\nthe 9 9 9 9\ngood -1 0.1 4 2\n')
  model = _small(
    'word_lstm',
    recurrence=recurrence,
    embeddings_file=str(path),
    reference_class=reference_class,
  )
  table = np.zeros([5, 4])
  table[1], table[3] = [-1, 0.1, 4, 2], [1, 2, -3, 0.5]
  weights, x = networks.shifted(model), _ids(model)
  logits = np.stack([lstm_oracle.logits(weights, table[ids]) for ids in x])
  if reference_class:
    assert logits.shape == (4, 1)
    logits = np.pad(logits, [[0, 0], [1, 0]])
  np.testing.assert_allclose(model.apply(weights, x), logits, 1e-4, 1e-5)


def test_words_without_a_file_have_vectors_of_the_seed():
  model = _small('word_lstm', embeddings_seed=7)
  weights, x = networks.shifted(model), _ids(model)
  table = embeddings.draw((None, *_VOCABULARY, None), 4, seed=7)
  logits = [lstm_oracle.logits(weights, table[ids])[0] for ids in x]
  outputs = model.apply(weights, x)
  np.testing.assert_allclose(outputs[:, 1], logits, 1e-4, 1e-5)
  np.testing.assert_array_equal(outputs[:, 0], np.zeros(4))


def _loss_and_slope(model, weights, x, y):
  with tf.GradientTape() as tape:
    tape.watch(weights)
    loss = tf.reduce_mean(model.example_losses(model.apply(weights, x), y))
  slope = tape.gradient(loss, weights)
  return loss, slope


@_EACH
def test_both_recurrences_have_the_same_gradient(name):
  slopes = []
  for recurrence in recurrent.RECURRENCES:
    model = _small(name, recurrence=recurrence)
    weights = tf.nest.map_structure(tf.constant, networks.shifted(model))
    y = tf.constant([0, 1, 1, 0])
    _, slope = _loss_and_slope(model, weights, _ids(model), y)
    slopes.append(slope)
  for key, leaf in slopes[0].items():
    assert isinstance(leaf, tf.Tensor), key
    assert np.isfinite(leaf).all(), key
    assert np.abs(leaf).max() > 0, key
    np.testing.assert_allclose(leaf, slopes[1][key], 1e-3, 1e-6)


@pytest.mark.verify
@_WORDS_FIRST
def test_a_long_sequence_is_learned(name):
  """The class is the first token, which gradients must reach: 25 steps back."""
  model = _build(name, places=25, num_outputs=5, hidden_size=16)
  generator = np.random.default_rng(0)
  x = generator.integers(0, 4, (64, 25), np.int32)
  y = tf.constant(x[:, 0])
  weights = model.initialize(tf.constant([0, 1]))
  step = tf.function(lambda weights: _loss_and_slope(model, weights, x, y))
  optimizer = tf.keras.optimizers.Adam(0.02)
  variables = tf.nest.map_structure(tf.Variable, weights)
  losses = []
  for _ in range(60):
    values = tf.nest.map_structure(tf.convert_to_tensor, variables)
    loss, slope = step(values)
    losses.append(loss)
    optimizer.apply_gradients(
      zip(tf.nest.flatten(slope), tf.nest.flatten(variables), strict=True)
    )
  assert losses[-1] < 0.3 * losses[0]


def _trained(model, x, y):
  """Returns weights after two local steps of one client, as a function of both."""
  weights = model.initialize(tf.constant([0, 1]))
  for _ in range(2):
    _, slope = _loss_and_slope(model, weights, x, y)
    weights = tf.nest.map_structure(lambda w, s: w - 0.5 * s, weights, slope)
  return weights


@pytest.mark.verify
@_EACH
def test_clients_train_alike_vectorized_or_not(name):
  fused = _small(name)
  unrolled = _small(name, recurrence='unrolled')
  assert (fused.vectorizes, unrolled.vectorizes) == (False, True)
  x = np.stack([_ids(fused, seed) for seed in range(3)])
  y = np.int32([[0, 1, 1, 0], [1, 1, 1, 1], [0, 0, 1, 1]])

  def work(client):
    return _trained(unrolled, *client)

  stacked = tf.function(
    lambda *clients: vectorization.map_stacked(work, clients), autograph=False
  )(x, y)
  for i in range(3):
    for model in (fused, unrolled):
      alone = _trained(model, tf.constant(x[i]), tf.constant(y[i]))
      for key, leaf in alone.items():
        np.testing.assert_allclose(stacked[key][i], leaf, 1e-4, 1e-6)


@_WORDS_FIRST
@pytest.mark.slow
def test_every_runtime_trains_to_the_same_weights(name):
  """The committee sends and compares the weights alone, without any vector."""
  model = _small(name)
  algorithm = algorithms.build_algorithm(
    algorithms.parse_config(
      {
        'name': 'cmfl',
        **contract.options('cmfl'),
        'local_training': contract.LOCAL_TRAINING,
      }
    ),
    model,
  )
  generator = np.random.default_rng(3)
  source = toys.ToySource(
    [
      schema.Examples(
        generator.integers(0, 5, (size, _PLACES), np.int32),
        generator.integers(0, 2, size, np.int32),
        np.zeros(size, np.int32),
      )
      for size in contract.SIZES
    ]
  )
  ends = {}
  for build in (
    debug_runtime.DebugRuntime,
    vectorized_runtime.VectorizedRuntime,
    tff_runtime.TffRuntime,
  ):
    with build(algorithm, len(contract.SIZES)) as runtime:
      ends[build] = toys.run_rounds(algorithm, source, 2, runtime=runtime)[0]
  expected = ends.pop(debug_runtime.DebugRuntime)
  for end in ends.values():
    tf.nest.map_structure(
      lambda a, b: np.testing.assert_allclose(a, b, 1e-3, 1e-4), end, expected
    )


@_EACH
def test_other_inputs_than_sequences_are_refused(name):
  with pytest.raises(errors.ConfigError, match=f'{name} takes sequences'):
    toys.build({'name': name}, (8, 8, 1))


def test_a_data_set_without_words_is_refused():
  with pytest.raises(errors.ConfigError, match='manifest has none'):
    toys.build({'name': 'word_lstm'}, (5,), 2, input_dtype=tf.int32)


@pytest.mark.parametrize(
  ('name', 'options', 'text'),
  [
    ('character_lstm', {'hidden_size': 0}, 'hidden_size must be'),
    ('character_lstm', {'embedding_size': 0}, 'embedding_size must be'),
    ('character_lstm', {'recurrence': 'x'}, "'fused', 'unrolled', got 'x'"),
    ('word_lstm', {'embedding_size': 0}, 'embedding_size must be'),
    ('word_lstm', {'dense_size': 0}, 'dense_size must be'),
    ('word_lstm', {'embeddings_seed': -1}, 'embeddings_seed must be'),
    ('word_lstm', {'embeddings_file': '/no/such/file'}, 'cannot be read'),
  ],
)
def test_bad_options(name, options, text):
  with pytest.raises(errors.ConfigError, match=text):
    _build(name, **options)
