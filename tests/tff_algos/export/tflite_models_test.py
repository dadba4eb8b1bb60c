"""TFLite files in TFLite's interpreter: predictions, steps and weights."""

import dataclasses
import json
from collections import OrderedDict

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import exportable
from tff_algos.core import errors
from tff_algos.core import model as model_lib
from tff_algos.export import manifest, tflite_models
from tff_algos.models import registry
from tff_algos.numerics import optimizers
from tff_algos.stages.clusters import mixtures

X = exportable.sample_inputs(6)
LABELS = {
  model_lib.CLASSIFICATION: np.array([0, 2, 1, 1, 0, 2], np.int32),
  model_lib.REGRESSION: np.linspace(-1, 2, 6, dtype=np.float32),
}
RATE = np.float32(0.25)


def export(base, model, **changes):
  arguments = exportable.client_arguments(model, sample_inputs=X, **changes)
  return tflite_models.export_tflite_models(base, **arguments)


def _convert(folder, model, weights=None):
  """Returns a file with the weights, by default initial ones."""
  if weights is None:
    weights = model.initialize(tf.constant([0, 5]))
  return tflite_models.convert(
    model, tf.nest.map_structure(np.asarray, weights), folder / 'scratch'
  )


class _Device:
  """A file in an interpreter of its own."""

  def __init__(self, content: bytes):
    self._interpreter = tf.lite.Interpreter(model_content=content)

  @property
  def signatures(self):
    return set(self._interpreter.get_signature_list())

  def __call__(self, signature, **inputs):
    return self._interpreter.get_signature_runner(signature)(**inputs)


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  base = tmp_path_factory.mktemp('tflite')
  return export(base, exportable.linear_model())


def test_every_cluster_and_client_has_a_file(folder):
  assert folder.name == '1'
  assert {path.name for path in folder.iterdir()} == {
    *('cluster_0.tflite', 'cluster_1.tflite', 'client_anna.tflite'),
    *('client_b%2F2.tflite', 'client_%C3%A7elik.tflite'),
    *('client_d%20d.tflite', manifest.EXTRA_FOLDER),
  }
  manifest.verify_files(folder)
  facts = json.loads(
    (folder / manifest.EXTRA_FOLDER / manifest.MANIFEST_FILE).read_text()
  )
  assert (facts['kind'], facts['round_num']) == ('tflite_models', 7)


def test_files_predict_as_numpy_and_as_the_savedmodel(folder, tmp_path):
  model = exportable.linear_model()
  server_state, client_states = exportable.states(model)
  for kind, states, names in (
    ('cluster', server_state.cluster_weights, range(2)),
    ('client', client_states.personalized_weights, ('anna', 'b%2F2')),
  ):
    for index, name in enumerate(names):
      device = _Device((folder / f'{kind}_{name}.tflite').read_bytes())
      answers = device('predict', x=X)
      logits = exportable.oracle_logits(states, index, X)
      np.testing.assert_allclose(answers['logits'], logits, atol=1e-5)
      np.testing.assert_allclose(
        answers['probabilities'], exportable.softmax(logits), atol=1e-5
      )
      np.testing.assert_array_equal(answers['class_id'], logits.argmax(axis=1))
  saved = exportable.export_clusters(tmp_path)
  bundle = tf.saved_model.load(str(saved))
  expected = bundle.signatures['serving_default'](
    x=tf.constant(X), cluster_id=tf.ones([6], tf.int32)
  )
  answers = _Device((folder / 'cluster_1.tflite').read_bytes())('predict', x=X)
  for name, value in expected.items():
    np.testing.assert_allclose(answers[name], value, atol=1e-5)


@pytest.mark.parametrize('task', LABELS)
def test_a_step_is_one_of_our_sgd(tmp_path, task):
  model = exportable.linear_model(task)
  weights = model.initialize(tf.constant([0, 5]))
  labels = LABELS[task]
  device = _Device(_convert(tmp_path, model, weights))
  assert not any(tmp_path.iterdir())
  for _ in range(3):
    with tf.GradientTape() as tape:
      tape.watch(weights)
      loss = tf.reduce_mean(
        model.example_losses(model.apply(weights, X), labels)
      )
    gradient = tape.gradient(loss, weights)
    sgd = optimizers.sgd(float(RATE))
    scaled = {
      name: sgd.gradient_scale(tf.constant(1.0)) * leaf
      for name, leaf in gradient.items()
    }
    weights, _ = sgd.step(
      weights, OrderedDict(scaled), (), tf.constant(1.0), None
    )
    answer = device('train', x=X, label=labels, learning_rate=RATE)
    np.testing.assert_allclose(answer['loss'], loss, atol=1e-5)
    for name, leaf in device('get_weights').items():
      np.testing.assert_allclose(leaf, weights[name], atol=1e-5)
  output = 'logits' if task == model_lib.CLASSIFICATION else 'prediction'
  expected = tf.reshape(model.apply(weights, X), [6, -1])
  np.testing.assert_allclose(
    device('predict', x=X)[output].reshape(6, -1), expected, atol=1e-5
  )


def test_weights_go_from_one_device_to_another(folder):
  anna = _Device((folder / 'client_anna.tflite').read_bytes())
  other = _Device((folder / 'cluster_0.tflite').read_bytes())
  anna('train', x=X, label=LABELS['classification'], learning_rate=RATE)
  trained = anna('get_weights')
  assert set(trained) == {'kernel', 'bias'}
  assert other('set_weights', **trained)['num_weights'] == 2
  np.testing.assert_array_equal(
    other('predict', x=X)['logits'], anna('predict', x=X)['logits']
  )
  # A file is not changed by training.
  fresh = _Device((folder / 'client_anna.tflite').read_bytes())
  assert not np.allclose(fresh('get_weights')['bias'], trained['bias'])


def _network(*names):
  """Dense layers of these names, one after the other, and an unused weight."""
  layers = [f'{name}/kernel' for name in names]

  def apply(weights, x):
    for name in layers:
      x = x @ weights[name]
    return x

  return model_lib.Model(
    'network',
    model_lib.CLASSIFICATION,
    (4,),
    4,
    lambda seed: OrderedDict(
      (name, tf.random.stateless_normal([4, 4], [int(seed[1]), i]))
      for i, name in enumerate([*layers, 'unused'])
    ),
    apply,
    vectorizes=True,
  )


def test_weights_of_names_that_tflite_takes_for_one(tmp_path):
  model = _network('fc-1', 'fc_1', 'Fc_1', '1x1', '_1x1')
  weights = model.initialize(tf.constant([0, 5]))
  device = _Device(_convert(tmp_path, model, weights))
  label = LABELS['classification']
  device('train', x=X, label=label, learning_rate=RATE)
  trained = device('get_weights')
  assert set(trained) == {
    *('fc_1_kernel', 'fc_1_kernel_2', 'Fc_1_kernel_3', 'unused'),
    *('weight_1x1_kernel', 'weight__1x1_kernel'),
  }
  np.testing.assert_array_equal(trained['unused'], weights['unused'])
  other = _Device(_convert(tmp_path, model, weights))
  assert other('set_weights', **trained)['num_weights'] == 6
  np.testing.assert_array_equal(
    other('predict', x=X)['logits'], device('predict', x=X)['logits']
  )


def test_an_error_of_the_model_is_not_blamed_on_tflite(tmp_path):
  model = exportable.linear_model()
  wrong = dataclasses.replace(model, apply=lambda weights, x: 1 / 0)
  with pytest.raises(ZeroDivisionError):
    _convert(tmp_path, wrong)


def test_an_error_that_names_no_operation_is_no_lack(tmp_path, monkeypatch):
  def refuse(_):
    raise RuntimeError('out of\n luck')

  monkeypatch.setattr(tf.lite.TFLiteConverter, 'from_saved_model', refuse)
  with pytest.raises(errors.ExportError, match='to TFLite: out of luck; docs'):
    _convert(tmp_path, exportable.linear_model())
  assert not any(tmp_path.iterdir())


def test_a_mixture_predicts_and_is_not_trained(tmp_path):
  model = exportable.linear_model()
  weights = {
    'canonical': exportable.random_weights(model, 2, seed=1),
    'membership': np.array([0.25, 0.75], np.float32),
  }
  mixture = mixtures.mixture_of_outputs(model, 2)
  device = _Device(_convert(tmp_path, mixture, weights))
  assert device.signatures == {'predict', 'get_weights', 'set_weights'}
  shares = sum(
    share
    * exportable.softmax(exportable.oracle_logits(weights['canonical'], k, X))
    for k, share in enumerate(weights['membership'])
  )
  np.testing.assert_allclose(
    device('predict', x=X)['probabilities'], shares, atol=1e-5
  )
  assert set(device('get_weights')) == {
    *('canonical_kernel', 'canonical_bias', 'membership')
  }


@pytest.mark.parametrize(
  ('options', 'facts', 'lacking'),
  [
    (
      {'name': 'character_lstm', 'hidden_size': 2},
      {'input_shape': (3,), 'input_dtype': tf.int32},
      'the operations BlockLSTM, BlockLSTMGrad',
    ),
    (
      {'name': 'logistic_regression', 'compute_dtype': 'bfloat16'},
      {'input_shape': (3,)},
      'the type bf16',
    ),
  ],
)
def test_what_tflite_lacks_is_named_and_nothing_stays(
  tmp_path, options, facts, lacking
):
  model = registry.build_model(
    registry.parse_config(options),
    task=model_lib.CLASSIFICATION,
    num_outputs=3,
    **facts,
  )
  with pytest.raises(
    errors.ExportError,
    match=f'{options["name"]!r} cannot be converted .* lacks {lacking}; docs',
  ):
    _convert(tmp_path, model)
  assert not any(tmp_path.iterdir())


def test_predictions_that_differ_are_not_published(tmp_path, monkeypatch):
  model = exportable.linear_model()
  converted = _convert(tmp_path, model)
  monkeypatch.setattr(tflite_models, 'convert', lambda *_: converted)
  base = tmp_path / 'tflite'
  with pytest.raises(errors.ExportError, match='cluster_0.tflite/logits of'):
    export(base, model)
  assert not any(base.iterdir())


_IMAGES = {'input_shape': (32, 32, 3)}
_TOKENS = {'input_shape': (4,), 'input_dtype': tf.int32}
_UNROLLED = {'hidden_size': 2, 'recurrence': 'unrolled'}
# What docs/serving.md lists: options, and facts of the data.
_CONVERTED = {
  'linear_regression': ({}, {'input_shape': (3,), 'num_outputs': 1}),
  'logistic_regression': ({}, {'input_shape': (3,)}),
  'mlp': ({'normalization': 'group'}, {'input_shape': (3,)}),
  'letters_cnn': ({}, {'input_shape': (28, 28, 1)}),
  'cifar_cnn': ({}, _IMAGES),
  'mobilenet_v2': ({}, _IMAGES),
  'resnet18': ({}, _IMAGES),
  'lenet': ({}, _IMAGES),
  'alexnet': ({'image_side': 63, 'hidden_sizes': (6,)}, _IMAGES),
  'small_cnn': ({'decomposition': {'num_atoms': 3}}, _IMAGES),
  'transformer': (
    {'num_blocks': 1, 'width': 8},
    {**_TOKENS, 'label_shape': (4,), 'special_ids': {'padding': 0}},
  ),
  'character_lstm': (_UNROLLED, _TOKENS),
  'word_lstm': (
    _UNROLLED,
    {**_TOKENS, 'vocabulary': ('a', 'b'), 'special_ids': {'padding': 0}},
  ),
}


def test_all_registered_models_are_tried():
  assert set(_CONVERTED) == set(registry.MODELS)


@pytest.mark.verify
@pytest.mark.parametrize('name', _CONVERTED)
def test_a_registered_model_predicts_and_trains_on_a_device(name, tmp_path):
  options, facts = _CONVERTED[name]
  is_regression = name == 'linear_regression'
  model = registry.build_model(
    registry.parse_config({'name': name, **options}),
    **{
      'task': model_lib.REGRESSION if is_regression else 'classification',
      'num_outputs': 3,
      **facts,
    },
  )
  weights = model.initialize(tf.constant([0, 1]))
  generator = np.random.default_rng(0)
  shape = (4, *model.input_shape)
  if model.input_dtype == tf.int32:
    x = generator.integers(0, 3, shape, np.int32)
  else:
    x = generator.normal(size=shape).astype(np.float32)
  labels = generator.integers(0, 3, (4, *model.label_shape)).astype(
    model.label_dtype.as_numpy_dtype
  )
  device = _Device(_convert(tmp_path, model, weights))
  outputs = model.apply(weights, x)
  output = 'prediction' if is_regression else 'logits'
  answer = device('predict', x=x)[output].reshape(outputs.shape)
  scale = max(1.0, np.abs(outputs).max())
  np.testing.assert_allclose(answer / scale, outputs / scale, atol=1e-5)
  with tf.GradientTape() as tape:
    tape.watch(weights)
    losses = model.example_losses(model.apply(weights, x), labels)
    counts = model.loss_weights(tf.constant(labels), tf.ones([4]))
    loss = tf.reduce_sum(losses * counts) / tf.reduce_sum(counts)
  rate = np.float32(1e-3)
  gradient = tape.gradient(loss, weights)
  trained = device('train', x=x, label=labels, learning_rate=rate)
  np.testing.assert_allclose(trained['loss'], loss, rtol=1e-4)
  stepped = device('get_weights')
  for leaf, change in gradient.items():
    expected = weights[leaf] - rate * tf.convert_to_tensor(change)
    largest = max(1.0, rate * np.abs(tf.convert_to_tensor(change)).max())
    np.testing.assert_allclose(
      stepped[leaf.replace('/', '_')] / largest, expected / largest, atol=1e-5
    )


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
  _, client_states = exportable.states(exportable.linear_model())
  client_states.personalized_weights['bias'][3, 0] = np.nan
  with pytest.raises(errors.NonFiniteError, match=r'client_d%20d\.tflite must'):
    export(
      tmp_path,
      exportable.linear_model(),
      load_states=exportable.loading(client_states),
    )
  assert not any(tmp_path.iterdir())
