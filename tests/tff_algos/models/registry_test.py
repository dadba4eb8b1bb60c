"""Tests of the models by name, and of what all of them promise."""

import re

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from tff_algos.core import config as config_lib
from tff_algos.core import errors
from tff_algos.models import keras_models, registry

_SECTIONS = {
  'linear_regression': ({'name': 'linear_regression'}, 'regression', 1),
  'logistic_regression': ({'name': 'logistic_regression'}, 'classification', 3),
  'logistic_regression with a reference class': (
    {'name': 'logistic_regression', 'reference_class': True},
    'classification',
    3,
  ),
  'mlp': ({'name': 'mlp', 'hidden_sizes': [6]}, 'classification', 3),
  'mlp with group norm': (
    {'name': 'mlp', 'hidden_sizes': [6], 'normalization': 'group'},
    'classification',
    3,
  ),
  'letters_cnn': ({'name': 'letters_cnn'}, 'classification', 3),
  'letters_cnn with group norm': (
    {'name': 'letters_cnn', 'normalization': 'group'},
    'classification',
    3,
  ),
  'cifar_cnn': ({'name': 'cifar_cnn'}, 'classification', 3),
  'small_cnn': ({'name': 'small_cnn'}, 'classification', 3),
  'mobilenet_v2': ({'name': 'mobilenet_v2'}, 'classification', 3),
  'resnet18': ({'name': 'resnet18'}, 'classification', 3),
  'lenet': ({'name': 'lenet'}, 'classification', 3),
  'small_cnn in factors': (
    {'name': 'small_cnn', 'decomposition': {'num_atoms': 3}},
    'classification',
    3,
  ),
  'transformer': (
    {'name': 'transformer', 'num_blocks': 1, 'width': 8},
    'classification',
    3,
  ),
  'alexnet': (
    {'name': 'alexnet', 'image_side': 63, 'hidden_sizes': [6]},
    'classification',
    3,
  ),
  'character_lstm': (
    {'name': 'character_lstm', 'hidden_size': 6},
    'classification',
    3,
  ),
  'character_lstm, unrolled': (
    {'name': 'character_lstm', 'hidden_size': 6, 'recurrence': 'unrolled'},
    'classification',
    3,
  ),
  'word_lstm': ({'name': 'word_lstm', 'hidden_size': 6}, 'classification', 3),
}
_SHAPE = (16, 16, 1)
_WORDS = {
  'input_shape': (4,),
  'input_dtype': tf.int32,
  'vocabulary': ('a', 'b'),
  'special_ids': {'padding': 0},
}
_TOKENS = {
  'input_shape': (4,),
  'input_dtype': tf.int32,
  'label_shape': (4,),
}
_TAKE_TOKENS = {
  'transformer': _TOKENS,
  'character_lstm': _WORDS,
  'word_lstm': _WORDS,
}


def _build(section, task, num_outputs):
  shapes = _TAKE_TOKENS.get(section['name'], {'input_shape': _SHAPE})
  return registry.build_model(
    registry.parse_config(section), task=task, num_outputs=num_outputs, **shapes
  )


def _inputs(model, seed):
  generator = np.random.default_rng(seed)
  shape = (5, *model.input_shape)
  if model.input_dtype == tf.int32:
    return generator.integers(0, 3, shape, np.int32)
  return generator.normal(size=shape).astype(np.float32)


@pytest.fixture(params=_SECTIONS, name='model')
def _model(request):
  return _build(*_SECTIONS[request.param])


def test_all_models_are_covered():
  named = {section['name'] for section, _, _ in _SECTIONS.values()}
  assert named == set(registry.MODELS)


def test_a_model_is_what_it_says(model):
  weights = model.initialize(tf.constant([0, 1]))
  spec = model.weights_spec()
  tf.nest.assert_same_structure(weights, spec)
  for leaf, leaf_spec in zip(
    tf.nest.flatten(weights), tf.nest.flatten(spec), strict=True
  ):
    assert leaf_spec.is_compatible_with(leaf)
  x = tf.ones([5, *model.input_shape], model.input_dtype)
  outputs = model.apply(weights, x)
  assert outputs.shape == (5, *model.label_shape, model.num_outputs)
  assert outputs.dtype == tf.float32
  labels = tf.zeros([5, *model.label_shape], model.label_dtype)
  losses = model.example_losses(outputs, labels)
  assert losses.shape == (5,)


def test_stacked_weights_give_what_each_gives_alone(model):
  x = _inputs(model, 0)
  alone = [model.initialize(tf.constant([0, i])) for i in range(3)]
  stacked = tf.nest.map_structure(lambda *leaves: tf.stack(leaves), *alone)
  graph = tf.function(
    lambda stacked: model.map_stacked(lambda w: model.apply(w, x), stacked)
  )
  expected = np.stack([model.apply(weights, x) for weights in alone])
  np.testing.assert_allclose(graph(stacked), expected, rtol=1e-4, atol=1e-5)


def test_an_examples_outputs_do_not_depend_on_its_batch(model):
  x = _inputs(model, 1)
  weights = model.initialize(tf.constant([0, 1]))
  together = model.apply(weights, x)
  alone = model.apply(weights, x[3:4])
  np.testing.assert_allclose(alone[0], together[3], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
  ('section', 'text'),
  [
    ({'name': 'mpl'}, "config.model.name 'mpl' is unknown; did you mean 'mlp'"),
    (
      {},
      'config.model.name None is unknown. Known: alexnet, character_lstm, cifar',
    ),
    ({'name': 'mlp', 'hiden_sizes': [3]}, "did you mean 'hidden_sizes'"),
    ({'name': 'mlp', 'hidden_sizes': [0]}, 'hidden_sizes must be an integer'),
    (
      {'name': 'mlp', 'normalization': 'batch'},
      r"^config.model: normalization 'batch' is refused",
    ),
    ({'name': 'linear_regression', 'use_bias': 1}, 'use_bias must be bool'),
  ],
)
def test_a_wrong_section_is_refused(section, text):
  with pytest.raises(errors.ConfigError, match=text):
    registry.parse_config(section)


@pytest.mark.parametrize('name', sorted(registry.MODELS))
def test_a_model_for_another_task_is_refused(name):
  is_regression = name == 'linear_regression'
  task = 'classification' if is_regression else 'regression'
  text = f"'{name}' is for .*, but the data set is for {task}"
  with pytest.raises(errors.ConfigError, match=text):
    _build({'name': name}, task, 3)


@pytest.mark.parametrize(
  ('name', 'shapes', 'text'),
  [
    ('mlp', _TOKENS, "'mlp' takes numbers, but the data set holds the ids of"),
    (
      'transformer',
      {'input_shape': (4,)},
      "'transformer' takes the ids of tokens, but the data set holds numbers",
    ),
    (
      'transformer',
      _TOKENS | {'label_shape': ()},
      r'needs labels of shape \(4,\), but those of the data set have \(\)',
    ),
    (
      'character_lstm',
      _WORDS | {'vocabulary': ('a', 'b', 'c')},
      'reads, but the data set has 4 of them and 3 classes',
    ),
    (
      'transformer',
      _TOKENS
      | {'vocabulary': ('a', 'b'), 'special_ids': {'padding': 0, 'x': 3}},
      'reads, but the data set has 4 of them and 3 classes',
    ),
  ],
)
def test_a_model_of_other_examples_is_refused(name, shapes, text):
  with pytest.raises(errors.ConfigError, match=text):
    registry.build_model(
      registry.parse_config({'name': name}),
      task='classification',
      num_outputs=3,
      **shapes,
    )


@pytest.mark.parametrize('num_embedded', [2, 3])
def test_an_own_embedding_has_every_id_of_the_data_set(
  monkeypatch, num_embedded
):
  layers = tf.keras.layers

  def build_net(input_shape, num_outputs):
    return tf.keras.Sequential(
      [
        layers.Input(input_shape, dtype='int32'),
        layers.Embedding(num_embedded, 2),
        layers.Flatten(),
        layers.Dense(num_outputs),
      ]
    )

  entry = registry.Entry(
    keras_models.KerasConfig,
    lambda _, *sizes: keras_models.from_keras(build_net, *sizes),
  )
  monkeypatch.setitem(registry.MODELS, 'own', entry)

  def build():
    return registry.build_model(
      registry.parse_config({'name': 'own'}),
      task='classification',
      num_outputs=3,
      **_WORDS,
    )

  if num_embedded == 3:
    assert build().name == 'own'
  else:
    text = "'own' cannot embed the id 2, .* has 3 ids, .* input_dim=3"
    with pytest.raises(errors.ConfigError, match=text):
      build()


def test_special_ids_of_a_data_set_are_not_scored_and_padding_not_learned():
  model = registry.build_model(
    registry.parse_config({'name': 'transformer', 'num_blocks': 1, 'width': 8}),
    task='classification',
    num_outputs=5,
    special_ids={'unknown': 3, 'padding': 0},
    **_TOKENS,
  )
  labels, mask = tf.constant([[1, 3, 4, 0], [1, 2, 4, 2]]), tf.ones([2])
  assert model.loss_weights(labels, mask).numpy().tolist() == [3, 4]
  assert model.score_weights(labels, mask).numpy().tolist() == [2, 4]


_VALUES = st.one_of(
  st.none(),
  st.booleans(),
  st.integers(),
  st.floats(),
  st.text(max_size=8),
  st.sampled_from(['batch', 'group', 'none', 'bfloat16', 'float16']),
  st.lists(st.one_of(st.integers(), st.text(max_size=3)), max_size=3),
)


@hypothesis.given(
  st.sampled_from(sorted(registry.MODELS)),
  st.sampled_from(
    ['use_bias', 'hidden_sizes', 'normalization', 'compute_dtype', 'x', 'name']
  ),
  _VALUES,
)
def test_any_option_is_read_or_refused_by_name(name, key, value):
  try:
    read_name, options = registry.parse_config({'name': name} | {key: value})
  except errors.ConfigError as error:
    assert re.search(rf'\b{key}\b', str(error))
  else:
    assert key != 'x'
    section = {'name': read_name, **config_lib.to_dict(options)}
    assert registry.parse_config(section) == (read_name, options)
