"""Signatures of raw columns, against those of the encoded input."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from tests.testing import exportable
from tff_algos.core import errors
from tff_algos.core import model as model_lib
from tff_algos.export import bundle as bundle_lib
from tff_algos.export import (
  manifest,
  personalized_models,
  prediction,
  raw_inputs,
  raw_signatures,
)
from tff_algos.features import preprocessing
from tff_algos.features import spec as spec_lib

_CLASSES = ('no', 'yes', 'çok')
_F = spec_lib.Feature
TABLE = spec_lib.FeatureSpec(
  (
    _F('age (years)', missing='indicator'),
    _F('income', encoding='log', missing='mean'),
    _F('height', encoding='min_max'),
    _F('class', encoding='bucketize'),
    _F('job', 'category'),
    _F('zip', 'category', 'hash', size=5),
    _F('text', 'text'),
  ),
  fitted={
    'age (years)': {'mean': 41.3, 'variance': 77.0},
    'income': {'mean': 6.1, 'variance': 1.7},
    'height': {'minimum': 1.1, 'maximum': 2.2},
    'class': {'boundaries': [0.5, 1.5]},
    'job': {'vocabulary': ['baker', 'çay']},
    'text': {'vocabulary': ['good', 'bad', "don't"], 'idf': [0.7, 1.1, 1.9]},
  },
  classes=_CLASSES,
  label='y',
)
ROWS = {
  'age (years)': np.float32([31, np.nan, 55.5]),
  'income': np.float32([0, 1e9, np.nan]),
  'height': np.float32([1.75, 0.1, 3e30]),
  'class': np.float32([0.5, -3, 7]),
  'job': np.array(['çay', '', 'unseen'], object),
  'zip': np.array(['123', '', 'ñ'], object),
  'text': np.array(["Good, BAD? don't!", '', b'\xff good'], object),
}
_RNG = np.random.default_rng(5)
_PIXELS = [
  _RNG.integers(256, size=size, dtype=np.uint8)
  for size in ((4, 4, 3), (9, 5, 3), (4, 4, 3))
]
_WORDS = {'vocabulary': ['a', 'b', 'ç']}
# Name -> spec, and three rows of its columns.
CASES = {
  'image': (
    spec_lib.FeatureSpec(
      (_F('image', 'image', shape=(4, 4, 3)),), scale=1 / 255, offset=-0.5
    ),
    {
      'image': np.array(
        [
          tf.io.encode_png(_PIXELS[0]).numpy(),
          tf.io.encode_jpeg(_PIXELS[1]).numpy(),
          tf.io.encode_png(_PIXELS[2]).numpy(),
        ],
        object,
      )
    },
  ),
  'tokens': (
    spec_lib.FeatureSpec(
      (_F('tokens', 'tokens', length=4),),
      fitted={'tokens': _WORDS},
      special_ids={'padding': 0, 'unknown': 1},
      dtype='int32',
    ),
    {
      'tokens': np.array(
        [['a', 'ç', '', ''], ['b', 'zz', 'a', ''], ['a'] * 4], object
      )
    },
  ),
  'tensor': (
    spec_lib.FeatureSpec(
      (_F('x', 'tensor', shape=(2, 3)),), dtype='uint8', scale=1 / 255
    ),
    {'x': _RNG.integers(256, size=(3, 2, 3), dtype=np.uint8)},
  ),
  'windows': (
    spec_lib.FeatureSpec(
      (_F('u', length=3), _F('v', encoding='by_client', length=3)),
      fitted={
        'u': {'mean': 1.0, 'variance': 2.0},
        'v': {'mean': 3.0, 'variance': 4.0},
      },
    ),
    {
      'u': _RNG.normal(size=(3, 3)).astype(np.float32),
      'v': _RNG.normal(3, 2, size=(3, 3)).astype(np.float32),
    },
  ),
  'text ids': (
    spec_lib.FeatureSpec(
      (_F('text', 'text', 'ids', length=3, split='characters'),),
      fitted={'text': _WORDS},
    ),
    {'text': np.array(['ÇA!', '', 'bbbbbb'], object)},
  ),
}


def flat_model(
  spec: spec_lib.FeatureSpec, task: str = model_lib.CLASSIFICATION
) -> model_lib.Model:
  """A linear model of the flattened input of a spec."""
  output = spec.output()
  num_outputs = len(_CLASSES) if task == model_lib.CLASSIFICATION else 1

  def apply(weights, x):
    rows = tf.reshape(tf.cast(x, tf.float32), [tf.shape(x)[0], -1])
    return rows @ weights['kernel'] + weights['bias']

  return dataclasses.replace(
    exportable.linear_model(task),
    input_shape=output.shape,
    num_outputs=num_outputs,
    apply=apply,
    input_dtype=tf.int32 if output.dtype == 'int32' else tf.float32,
  )


_STATISTICS = {
  'client_mean': np.float32([[0], [2.5], [3], [-7]]),
  'client_deviation': np.float32([[1], [0.3], [2], [1e3]]),
}


def export(folder, kind, spec):
  """Exports one kind of bundle; returns its folder."""
  model = flat_model(spec)
  zeros = np.zeros([2, *model.input_shape], model.input_dtype.as_numpy_dtype)
  statistics = _STATISTICS if spec.by_client else {}
  if kind != 'client':
    export_all = {
      'cluster': exportable.export_clusters,
      'personalized': exportable.export_clients,
    }[kind]
    features = raw_signatures.Features(spec, **statistics)
    return export_all(folder, model, sample_inputs=zeros, features=features)
  server_state, client_states = exportable.states(model)
  own = {name: value[1:2] for name, value in statistics.items()}
  return personalized_models.export_client_model(
    folder,
    exportable.algorithm(model),
    server_state,
    exportable.CLIENT_IDS[1],
    1,
    tf.nest.map_structure(lambda leaf: leaf[1], client_states),
    zeros,
    exportable.PROVENANCE,
    raw_signatures.Features(spec, **own),
  )


def call(signature, inputs):
  outputs = signature(**{k: tf.constant(v) for k, v in inputs.items()})
  return {name: value.numpy() for name, value in outputs.items()}


def encode(spec, columns):
  """Returns the model's input as the pipeline makes it."""
  inputs = {name: tf.constant(value) for name, value in columns.items()}
  return preprocessing.Preprocessing(spec).model_input(inputs).numpy()


def arguments_of(folder):
  """Returns column -> input of the signatures."""
  columns = manifest.read_manifest(folder)['raw_columns']
  return {column: argument for argument, column in columns.items()}


def check_same(raw, encoded, classes=_CLASSES):
  raw = dict(raw)
  if classes and 'class_id' in raw:
    names = [name.decode() for name in raw.pop('class_name')]
    assert names == [classes[i] for i in raw['class_id']]
  assert raw.keys() == encoded.keys()
  for name, value in encoded.items():
    np.testing.assert_array_equal(raw[name], value)


@pytest.fixture(name='tables', scope='module')
def make_tables(tmp_path_factory):
  """Kind of bundle -> (its folder, its signatures), of a table."""
  base = tmp_path_factory.mktemp('tables')
  folders = {
    kind: export(base / kind, kind, TABLE)
    for kind in ('cluster', 'personalized', 'client')
  }
  return {
    kind: (folder, tf.saved_model.load(str(folder)).signatures)
    for kind, folder in folders.items()
  }


@pytest.mark.parametrize(
  ('kind', 'name', 'raw_name', 'others'),
  [
    (
      'cluster',
      'serving_default',
      'serving_raw',
      {'cluster_id': np.int32([1, 0, 1])},
    ),
    (
      'cluster',
      'predict_mixture',
      'predict_mixture_raw',
      {'mixture': np.float32([[0.5, 0.5], [0, 1], [0.25, 0.75]])},
    ),
    (
      'personalized',
      'serving_default',
      'serving_raw',
      {'client_id': np.array(['çelik', 'anna', 'd d'], object)},
    ),
    ('client', 'serving_default', 'serving_raw', {}),
  ],
)
def test_raw_rows_get_the_bits_of_encoded_ones(
  tables, kind, name, raw_name, others
):
  folder, signatures = tables[kind]
  arguments = arguments_of(folder)
  assert arguments['age (years)'] == 'age__years_'
  assert arguments['class'] == 'class_2'
  rows = {arguments[column]: value for column, value in ROWS.items()}
  check_same(
    call(signatures[raw_name], rows | others),
    call(signatures[name], {'x': encode(TABLE, ROWS)} | others),
  )


def test_cluster_is_picked_by_the_names_of_classes(tables):
  folder, signatures = tables['cluster']
  rows = {arguments_of(folder)[k]: value for k, value in ROWS.items()}
  labels = np.array(['çok', 'no', 'yes'], object)
  check_same(
    call(signatures['pick_cluster_raw'], rows | {'label': labels}),
    call(
      signatures['pick_cluster'],
      {'x': encode(TABLE, ROWS), 'label': np.int32([2, 0, 1])},
    ),
  )
  text = 'label must be one of the classes no, yes, çok, got maybe in row 1'
  labels[1] = 'maybe'
  with pytest.raises(tf.errors.InvalidArgumentError, match=text):
    call(signatures['pick_cluster_raw'], rows | {'label': labels})


def test_names_of_other_inputs_and_names_that_differ_in_case(tmp_path):
  numbers = ('Age', 'age', 'Label', 'Client_mean')
  spec = spec_lib.FeatureSpec(
    (*(_F(name) for name in numbers), _F('x', 'category')),
    fitted={
      **{name: {'mean': 0.0, 'variance': 1.0} for name in numbers},
      'x': {'vocabulary': ['a', 'b']},
    },
    classes=_CLASSES,
  )
  folder = export(tmp_path, 'cluster', spec)
  rows = {name: np.float32([i, -i]) for i, name in enumerate(numbers)}
  rows['x'] = np.array(['b', 'c'], object)
  arguments = arguments_of(folder)
  assert arguments == {
    **{'Age': 'Age', 'age': 'age_2', 'Label': 'Label_2'},
    **{'Client_mean': 'Client_mean_2', 'x': 'x'},
  }
  signatures = tf.saved_model.load(str(folder)).signatures
  raw = {arguments[name]: value for name, value in rows.items()}
  encoded = {'x': encode(spec, rows)}
  ids = {'cluster_id': np.int32([0, 1])}
  check_same(
    call(signatures['serving_raw'], raw | ids),
    call(signatures['serving_default'], encoded | ids),
  )
  check_same(
    call(
      signatures['pick_cluster_raw'],
      raw | {'label': np.array(['no', 'yes'], object)},
    ),
    call(signatures['pick_cluster'], encoded | {'label': np.int32([0, 1])}),
  )


def test_the_manifest_has_the_spec(tables):
  folder, _ = tables['personalized']
  content = manifest.read_manifest(folder)
  assert spec_lib.FeatureSpec.from_dict(content['features']) == TABLE
  assert content['features_sha'] == TABLE.digest()
  assert content['raw_signatures'] == ['serving_raw']
  assert content['features']['classes'] == list(_CLASSES)


@pytest.mark.parametrize(
  ('column', 'row', 'value', 'text'),
  [
    ('height', 1, np.nan, 'column height must be finite, got nan in row 1'),
    (
      'age (years)',
      2,
      -np.inf,
      r'age \(years\) must be finite, or missing \(NaN\), got -inf in row 2',
    ),
    (
      'income',
      1,
      -0.25,
      'income must be finite and >= 0, because its logarithm is taken, or '
      r'missing \(NaN\), got -0.25 in row 1',
    ),
  ],
)
def test_bad_numbers_are_refused(tables, column, row, value, text):
  folder, signatures = tables['client']
  columns = {**ROWS, column: ROWS[column].copy()}
  columns[column][row] = value
  arguments = arguments_of(folder)
  with pytest.raises(tf.errors.InvalidArgumentError, match=text):
    call(
      signatures['serving_raw'], {arguments[k]: v for k, v in columns.items()}
    )


def test_columns_of_different_lengths_are_refused(tables):
  folder, signatures = tables['personalized']
  rows = {arguments_of(folder)[k]: v for k, v in ROWS.items()}
  text = (
    r'column job must have one row for each row of column age \(years\): it '
    r'has 2 and column age \(years\) has 3'
  )
  ids = np.array(['anna'] * 3, object)
  with pytest.raises(tf.errors.InvalidArgumentError, match=text):
    call(
      signatures['serving_raw'],
      {**rows, 'client_id': ids, 'job': rows['job'][:2]},
    )
  with pytest.raises(
    tf.errors.InvalidArgumentError, match='client_id must hav'
  ):
    call(signatures['serving_raw'], {**rows, 'client_id': ids[:1]})


def test_what_was_sent_is_named_though_columns_follow_from_it(tmp_path):
  spec, rows = CASES['windows']
  folder = export(tmp_path, 'personalized', spec)
  signatures = tf.saved_model.load(str(folder)).signatures
  with pytest.raises(
    tf.errors.InvalidArgumentError, match='client_id must hav.* has 1, .* is 3'
  ):
    call(signatures['serving_raw'], {**rows, 'client_id': ['anna']})


def test_equal_models_are_equal_files(tables, tmp_path):
  """Keras has a counter for the names of its layers."""
  again = export(tmp_path, 'client', TABLE)
  assert manifest.bundle_sha256(again) == manifest.bundle_sha256(
    tables['client'][0]
  )


def test_no_rows_give_no_predictions(tables):
  folder, signatures = tables['client']
  rows = {arguments_of(folder)[k]: v[:0] for k, v in ROWS.items()}
  outputs = call(signatures['serving_raw'], rows)
  assert outputs['logits'].shape == (0, 3)


def in_memory(spec, task=model_lib.CLASSIFICATION):
  """Returns the function of `x`, and the raw ones made of it."""
  model = flat_model(spec, task)
  weights = tf.nest.map_structure(
    lambda leaf: tf.constant(leaf[0]),
    exportable.states(model)[0].cluster_weights,
  )
  function = bundle_lib.signature_function(
    lambda x: prediction.name_outputs(model, model.apply(weights, x)),
    prediction.features_spec(model),
  )
  raw = raw_signatures.RawSignatures(
    model,
    raw_signatures.Features(spec),
    {'serving_default': raw_signatures.Signature(function)},
  )
  return function, raw.functions


def serialize(columns):
  """Returns a `tf.train.Example` a row; NaN is a missing feature."""
  examples = []
  for row in zip(*columns.values(), strict=True):
    example = tf.train.Example()
    for name, value in zip(columns, row, strict=True):
      values = np.ravel(value)
      feature = example.features.feature[name]
      if values.dtype.kind == 'f' and np.isnan(values).all():
        del example.features.feature[name]
      elif values.dtype.kind == 'f':
        feature.float_list.value.extend(values)
      elif values.dtype.kind in 'iu':
        feature.int64_list.value.extend(values.tolist())
      else:
        texts = [v.encode() if isinstance(v, str) else v for v in values]
        feature.bytes_list.value.extend(texts)
    examples.append(example.SerializeToString())
  return np.array(examples, object)


@pytest.mark.parametrize(
  'case', ['image', 'tokens', 'tensor', 'windows', 'text ids']
)
def test_each_kind_of_column_and_examples_of_it(case):
  spec, rows = CASES[case]
  if spec.by_client:
    rows = rows | {k: v[:3] for k, v in _STATISTICS.items()}
  function, raw = in_memory(spec)
  expected = call(function, {'x': encode(spec, rows)})
  check_same(call(raw['serving_raw'], rows), expected, classes=())
  answer = call(raw['classify'], {'inputs': serialize(rows)})
  np.testing.assert_array_equal(answer['scores'], expected['probabilities'])
  assert answer['classes'].tolist() == [[b'0', b'1', b'2']] * 3


def test_examples_of_a_table(tables):
  folder, signatures = tables['personalized']
  ids = np.array(['çelik', 'anna', 'd d'], object)
  expected = call(
    signatures['serving_default'],
    {'x': encode(TABLE, ROWS), 'client_id': ids},
  )
  inputs = serialize(ROWS | {'client_id': ids})
  answer = call(signatures['classify'], {'inputs': inputs})
  assert answer.keys() == {'classes', 'scores'}
  np.testing.assert_array_equal(answer['scores'], expected['probabilities'])
  names = [[name.encode() for name in _CLASSES]] * 3
  assert answer['classes'].tolist() == names
  content = saved_model_pb2.SavedModel()
  content.ParseFromString((folder / 'saved_model.pb').read_bytes())
  methods = {
    name: definition.method_name
    for name, definition in content.meta_graphs[0].signature_def.items()
  }
  assert methods['classify'] == 'tensorflow/serving/classify'
  assert methods['serving_raw'] == 'tensorflow/serving/predict'
  without = serialize(
    {k: v for k, v in (ROWS | {'client_id': ids}).items() if k != 'job'}
  )
  with pytest.raises(tf.errors.InvalidArgumentError, match='job.*is required'):
    call(signatures['classify'], {'inputs': without})


def test_clusters_and_ranges_of_whole_numbers_in_examples(tables):
  _, signatures = tables['cluster']
  inputs = serialize(ROWS | {'cluster_id': np.int64([0, 2**40, 1])})
  text = 'cluster_id must be from -2147483648 to 2147483647, got 1099511627776'
  with pytest.raises(tf.errors.InvalidArgumentError, match=text):
    call(signatures['classify'], {'inputs': inputs})


def test_regression():
  function, raw = in_memory(TABLE, model_lib.REGRESSION)
  expected = call(function, {'x': encode(TABLE, ROWS)})['prediction']
  arguments = raw_inputs.argument_names(ROWS)
  rows = {arguments[name]: value for name, value in ROWS.items()}
  outputs = call(raw['serving_raw'], rows)
  assert outputs.keys() == {'prediction'}
  np.testing.assert_array_equal(outputs['prediction'], expected)
  answer = call(raw['regress'], {'inputs': serialize(ROWS)})
  assert answer.keys() == {'outputs'} and 'classify' not in raw
  np.testing.assert_array_equal(answer['outputs'], expected)


@pytest.mark.parametrize(
  ('spec', 'text'),
  [
    (CASES['windows'][0], r'encodes \[3, 2\], the model takes \[19\]'),
    (TABLE.unfitted(), 'encodes nothing, as it is not fitted'),
    (
      dataclasses.replace(TABLE, classes=('a', 'b')),
      'names 2 classes, the mod',
    ),
  ],
)
def test_a_spec_of_another_model_is_refused(spec, text):
  model = flat_model(TABLE)
  with pytest.raises(errors.ExportError, match=text):
    raw_signatures.RawSignatures(model, raw_signatures.Features(spec), {})


def test_statistics_of_clients_are_in_the_bundle(tmp_path):
  spec, rows = CASES['windows']
  ids = np.array(['çelik', 'b/2', 'd d'], object)
  index = [2, 1, 3]
  own = {name: value[index] for name, value in _STATISTICS.items()}
  folder = export(tmp_path / 'all', 'personalized', spec)
  signatures = tf.saved_model.load(str(folder)).signatures
  encoded = encode(spec, rows | own)
  check_same(
    call(signatures['serving_raw'], rows | {'client_id': ids}),
    call(signatures['serving_default'], {'x': encoded, 'client_id': ids}),
    classes=(),
  )
  with pytest.raises(tf.errors.InvalidArgumentError, match='client id eve'):
    call(signatures['serving_raw'], rows | {'client_id': ['eve'] * 3})
  folder = export(tmp_path / 'one', 'client', spec)
  signatures = tf.saved_model.load(str(folder)).signatures
  own = {name: value[[1] * 3] for name, value in _STATISTICS.items()}
  check_same(
    call(signatures['serving_raw'], rows),
    call(signatures['serving_default'], {'x': encode(spec, rows | own)}),
    classes=(),
  )
  # Not those of the others.
  reader = tf.train.load_checkpoint(str(folder / 'variables' / 'variables'))
  shapes = reader.get_variable_to_shape_map()
  assert [1, 1] in shapes.values() and [4, 1] not in shapes.values()


def test_new_clients_send_their_statistics(tmp_path):
  spec, rows = CASES['windows']
  folder = export(tmp_path, 'cluster', spec)
  signatures = tf.saved_model.load(str(folder)).signatures
  own = {name: value[[1] * 3] for name, value in _STATISTICS.items()}
  ids = {'cluster_id': np.int32([0, 1, 1])}
  check_same(
    call(signatures['serving_raw'], rows | own | ids),
    call(signatures['serving_default'], {'x': encode(spec, rows | own)} | ids),
    classes=(),
  )
  own['client_deviation'][2] = 0
  text = 'client_deviation must be > 0 and finite, got 0 in row 2'
  with pytest.raises(tf.errors.InvalidArgumentError, match=text):
    call(signatures['serving_raw'], rows | own | ids)


def test_images_in_a_session_as_tensorflow_serving_runs_it(tmp_path):
  spec, rows = CASES['image']
  folder = export(tmp_path, 'client', spec)
  signatures = tf.saved_model.load(str(folder)).signatures
  expected = call(signatures['serving_default'], {'x': encode(spec, rows)})
  check_same(call(signatures['serving_raw'], rows), expected, classes=())
  damaged = rows['image'].copy()
  damaged[1] = damaged[1][:-20]
  text = 'pixels, 1,032 for each byte: the image in row 1 cannot'
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    graph = tf.compat.v1.saved_model.load(
      session, [tf.saved_model.SERVING], str(folder)
    )
    signature = graph.signature_def['serving_raw']
    image = signature.inputs['image'].name
    logits = signature.outputs['logits'].name
    np.testing.assert_array_equal(
      session.run(logits, {image: rows['image']}), expected['logits']
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match=text):
      session.run(logits, {image: damaged})
  for content in (b'', b'text', rows['image'][0][:40]):
    damaged[1] = content
    with pytest.raises(tf.errors.InvalidArgumentError, match=text):
      call(signatures['serving_raw'], {'image': damaged})
