"""Warm-up requests: their format, their inputs, and who runs them."""

import dataclasses
import functools

import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from tests.testing import exportable
from tff_algos.core import model as model_lib
from tff_algos.export import warm_up


@pytest.fixture(name='export', scope='module')
def make_export(tmp_path_factory):
  return exportable.write_all(tmp_path_factory.mktemp('export'))


def requests(folder):
  """Returns the inputs of each signature, read as TensorFlow Serving does."""
  path = folder / 'assets.extra' / 'tf_serving_warmup_requests'
  logs = [
    prediction_log_pb2.PredictionLog.FromString(record.numpy())
    for record in tf.data.TFRecordDataset(str(path))
  ]
  assert [log.WhichOneof('log_type') for log in logs] == ['predict_log'] * len(
    logs
  )
  asked = [log.predict_log.request for log in logs]
  return {
    one.model_spec.signature_name: {
      name: tf.make_ndarray(value).tolist()
      for name, value in one.inputs.items()
    }
    for one in asked
  }


def test_each_signature_of_encoded_rows_has_one(export):
  zeros = [[0.0] * exportable.NUM_FEATURES]
  found = requests(export / 'cluster_models' / '1')
  assert found['pick_cluster'] == {'x': zeros, 'label': [0]}
  for name in ('serving_default', 'predict_cluster'):
    assert found[name] == {'x': zeros, 'cluster_id': [0]}
  assert found['predict_mixture']['x'] == zeros
  assert found['predict_mixture']['mixture'] == [[0.5, 0.5]]
  assert 'predict_mixture_raw' in found
  assert found['pick_cluster_raw']['label'] == [b'c0']
  assert set(found['serving_raw']) == {*'abcd', 'cluster_id'}
  found = requests(export / 'personalized_models' / '1')
  assert found['serving_default'] == {'x': zeros, 'client_id': [b'anna']}


def _model_of_two_places(padding_label):
  """Linear, with the same logits at both places of an example."""
  model = exportable.linear_model()
  return dataclasses.replace(
    model,
    label_shape=(2,),
    padding_label=padding_label,
    apply=lambda weights, x: tf.stack([model.apply(weights, x)] * 2, axis=1),
  )


@pytest.mark.parametrize(
  ('model', 'label'),
  [
    (exportable.linear_model(model_lib.REGRESSION), [0.0]),
    (_model_of_two_places(None), [[0, 0]]),
    # Of padding alone, no example would be left to pick by.
    (_model_of_two_places(0), [[1, 1]]),
  ],
  ids=['regression', 'places', 'padding'],
)
def test_labels_have_type_and_shape_of_the_signature(tmp_path, model, label):
  exportable.export_clusters(tmp_path, model)
  found = requests(tmp_path / '1')
  assert found['pick_cluster']['label'] == label
  loaded = tf.saved_model.load(str(tmp_path / '1'))
  asked = set()

  def call(name, **inputs):
    loaded.signatures[name](**inputs)
    asked.add(name)

  calls = {name: functools.partial(call, name) for name in loaded.signatures}
  warm_up.run(tmp_path / '1', calls)
  assert asked == set(found)


def test_no_example_of_a_client_is_written(export):
  """Bundles were checked with these examples, and must not hold them."""
  for name in ('cluster_models', 'personalized_models', 'anna'):
    path = export / name / '1' / 'assets.extra' / warm_up.FILE
    content = path.read_bytes()
    for number in exportable.sample_inputs().ravel():
      assert number.tobytes() not in content


def test_run(export, tmp_path):
  folder = export / 'cluster_models' / '1'
  asked = []
  signatures = {
    name: lambda name=name, **inputs: asked.append((name, set(inputs)))
    for name in requests(folder)
  }
  warm_up.run(folder, signatures)
  assert len(asked) == len(signatures)
  assert ('pick_cluster', {'x', 'label'}) in asked
  warm_up.run(tmp_path, {})  # Has none.
