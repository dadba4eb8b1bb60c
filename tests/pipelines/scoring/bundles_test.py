"""Exported bundles: found, checked, and asked client by client."""

import contextlib
import dataclasses
import json
import shutil
import threading
from concurrent import futures

import numpy as np
import pytest

from pipelines.engines import failures
from pipelines.publishing import staging as staging_lib
from pipelines.scoring import bundles, model_choice
from tests.testing import exportable
from tff_algos.core import errors
from tff_algos.data import schema as schema_lib

_X = exportable.sample_inputs(11)
_Y = np.zeros(11, np.int32)
_PICK = model_choice.Choice('cluster', -1, 'lowest_loss')
_SCHEMA = schema_lib.Schema(
  x_dtype='float32',
  x_shape=(exportable.NUM_FEATURES,),
  x_scale=1.0,
  x_offset=0.0,
  task='classification',
  num_classes=exportable.NUM_CLASSES,
  source_names=('all',),
)


@pytest.fixture(name='export', scope='module')
def make_export(tmp_path_factory):
  return exportable.write_all(tmp_path_factory.mktemp('export'))


@pytest.fixture(name='loaded', scope='module')
def make_loaded(export):
  found = _find(export)
  staging = staging_lib.Staging(export)
  return bundles.BundleHandler(found, 4, staging).load_model()


def _find(
  export,
  assignments=None,
  schema=_SCHEMA,
  features=exportable.FEATURES.spec,
  **options,
):
  config = model_choice.ScoringConfig(**options)
  return bundles.find(export, config, assignments or {}, schema, features)


def test_personalized_model(loaded):
  """Eleven rows, four at a time."""
  choice = model_choice.Choice('personalized', 0, 'client_id')
  answer = loaded.answer(bundles.Request('b/2', choice, _X, _Y), max_rows=4)
  _, states = exportable.states(exportable.linear_model())
  expected = exportable.oracle_logits(states.personalized_weights, 1, _X)
  np.testing.assert_allclose(
    answer.outputs['logits'], expected, rtol=1e-5, atol=1e-6
  )
  assert answer.cluster_id == -1


@pytest.mark.parametrize('cluster_id', [0, 1])
def test_cluster_model(loaded, cluster_id):
  choice = model_choice.Choice('cluster', cluster_id, 'assignment')
  answer = loaded.answer(bundles.Request('x', choice, _X, _Y), max_rows=100)
  server_state, _ = exportable.states(exportable.linear_model())
  expected = exportable.oracle_logits(
    server_state.cluster_weights, cluster_id, _X
  )
  np.testing.assert_allclose(
    answer.outputs['logits'], expected, rtol=1e-5, atol=1e-6
  )
  assert answer.cluster_id == cluster_id


def test_a_cluster_is_picked_in_parts():
  """By the mean over labels; the mean of the parts' means is another."""
  asked = []

  class Model:
    def predict(self, signature_name, inputs):
      assert signature_name == 'pick_cluster'
      asked.append(len(inputs['x']))
      return {'mean_loss': np.float32([means[len(asked) - 1]])}

  loaded = bundles.LoadedBundles({'cluster': Model()}, padding_label=0)
  means = [[1.0, 2.0], [4.0, 1.0]]
  assert loaded.pick(_X[:5], _Y[:5], max_rows=4) == 0
  assert asked == [4, 1]
  # Labels: one, none, and two places of one example.
  labels = np.array([[7, 0], [0, 0], [0, 0], [0, 0], [7, 7]])
  asked, means = [], [[1.0, 3.0], [3.0, 2.5]]
  assert loaded.pick(_X[:5], labels, max_rows=2) == 0
  assert asked == [2, 1]
  asked, means = [], [[1.0, 3.0], [3.0, 1.5]]
  assert loaded.pick(_X[:5], labels, max_rows=2) == 1
  asked, means = [], [[np.inf, 3.0], [0.0, 9.0]]
  assert loaded.pick(_X[:5], labels, max_rows=2) == 1
  with pytest.raises(errors.RequestError, match='has a loss'):
    loaded.pick(_X[:5], np.zeros((5, 2)), max_rows=2)


@pytest.mark.parametrize('cluster_id', [0, 1])
def test_cluster_is_picked_by_labelled_examples(loaded, cluster_id):
  server_state, _ = exportable.states(exportable.linear_model())
  x = exportable.sample_inputs(40)
  # What the cluster's own model says is right.
  y = exportable.oracle_logits(server_state.cluster_weights, cluster_id, x)
  y = y.argmax(axis=1).astype(np.int32)
  request = bundles.Request('x', _PICK, _X, _Y, x, y)
  assert loaded.answer(request, max_rows=4).cluster_id == cluster_id


def test_errors_of_the_models_pass_through_any_engine(export, tmp_path):
  copy = tmp_path / 'export'
  shutil.copytree(export, copy)
  found = _find(copy)
  handler = bundles.BundleHandler(found, 4, staging_lib.Staging(copy))
  loaded = handler.load_model()
  choice = model_choice.Choice('personalized', 0, 'client_id')
  with pytest.raises(failures.StepError) as caught:
    handler.run_inference([bundles.Request('nobody', choice, _X, _Y)], loaded)
  error = failures.find(RuntimeError(str(caught.value)))
  assert isinstance(error, errors.RequestError) and 'nobody' in str(error)
  (found[0].folder / 'saved_model.pb').unlink()
  with pytest.raises(failures.StepError) as caught:
    handler.load_model()
  error = failures.find(RuntimeError(str(caught.value)))
  assert isinstance(error, errors.ExportError)


def test_one_thread_at_a_time_asks_a_model():
  both, overlaps = threading.Barrier(2), []

  class Model:
    def predict(self, signature_name, inputs):
      del signature_name
      with contextlib.suppress(threading.BrokenBarrierError):
        overlaps.append(both.wait(timeout=0.5))
      return {'class_id': inputs['cluster_id']}

  loaded = bundles.LoadedBundles({'cluster': Model()})
  choice = model_choice.Choice('cluster', 1, 'default')
  request = bundles.Request('x', choice, _X, _Y)
  with futures.ThreadPoolExecutor(2) as pool:
    answers = list(pool.map(loaded.answer, [request] * 2, [100] * 2))
  assert not overlaps
  assert [answer.cluster_id for answer in answers] == [1, 1]


def test_handler_answers_each_request_of_a_batch(export, loaded):
  handler = bundles.BundleHandler(_find(export), 4, staging_lib.Staging(export))
  choices = [model_choice.Choice('cluster', i, 'assignment') for i in (1, 0)]
  batch = [
    bundles.Request(f'client {i}', choice, _X[: 3 + i], _Y[: 3 + i])
    for i, choice in enumerate(choices)
  ]
  results = handler.run_inference(batch, loaded)
  assert [result.example for result in results] == batch
  for request, result in zip(batch, results, strict=True):
    alone = loaded.answer(request, max_rows=4)
    for name, value in alone.outputs.items():
      np.testing.assert_array_equal(result.inference.outputs[name], value)
  assert handler.get_num_bytes(batch) == 4 * 4 * (3 + 4)


def test_newest_versions_that_are_needed_are_found(export):
  personalized, cluster = _find(export)
  assert bundles.client_ids([cluster]) == frozenset()
  assert bundles.client_ids([personalized, cluster]) == {*exportable.CLIENT_IDS}
  assert (personalized.version, cluster.version) == (1, 1)
  (only,) = _find(export, personalized=False)
  assert only.model == 'cluster'
  (only,) = _find(export, otherwise='refuse')
  assert only.model == 'personalized'


def test_no_model_may_be_used(export):
  with pytest.raises(errors.ConfigError, match='no client can be scored'):
    _find(export, personalized=False, otherwise='refuse')


def test_missing_bundles(tmp_path):
  with pytest.raises(errors.ExportError, match='no personalized models at'):
    _find(tmp_path)
  (tmp_path / 'cluster_models').mkdir()
  with pytest.raises(errors.ExportError, match='no version of the cluster mod'):
    _find(tmp_path, personalized=False)


@pytest.fixture(name='copy')
def make_copy(export, tmp_path):
  """A copy that a test may change."""
  return shutil.copytree(export, tmp_path / 'export')


def test_damaged_bundle(copy):
  path = copy / 'cluster_models' / '1' / 'saved_model.pb'
  path.write_bytes(path.read_bytes() + b'x')
  with pytest.raises(errors.ExportError, match='has changed since'):
    _find(copy)


def test_newest_version_scores(copy):
  """By number: 10 is newer than 9."""
  for version in ('9', '10'):
    shutil.copytree(
      copy / 'cluster_models' / '1', copy / 'cluster_models' / version
    )
  (bundle,) = _find(copy, personalized=False)
  assert (bundle.version, bundle.folder.name) == (10, '10')


@pytest.mark.parametrize(
  ('change', 'words'),
  [
    ({'x_shape': (5,)}, r'its input_shape is \[4\], the dataset needs \[5\]'),
    ({'num_classes': 4}, 'its num_classes is 3, the dataset needs 4'),
    (
      {'task': 'regression', 'num_classes': 0},
      "its task is 'classification', the dataset needs 'regression'",
    ),
  ],
)
def test_bundle_for_other_examples(export, change, words):
  schema = dataclasses.replace(_SCHEMA, **change)
  with pytest.raises(errors.ExportError, match=words):
    _find(export, schema=schema)


def test_bundle_for_features_of_another_scale(export):
  """Their shape is the same."""
  first, *others = exportable.FEATURES.spec.features
  spec = dataclasses.replace(
    exportable.FEATURES.spec,
    features=(dataclasses.replace(first, encoding='standardize'), *others),
    fitted={'a': {'mean': 1.5, 'variance': 4.0}},
  )
  words = (
    r'personalized_models/1 does not go.*\(here\) differ.*\(there\) in '
    'features.a.encoding: standardize there, plain here. Build'
  )
  with pytest.raises(errors.ExportError, match=words):
    _find(export, features=spec)


def test_data_without_a_label_column_is_scored(export):
  spec = dataclasses.replace(exportable.FEATURES.spec, label='')
  assert len(_find(export, features=spec)) == 2


def test_bundle_without_a_feature_spec_is_scored_with_a_warning(copy, caplog):
  path = copy / 'cluster_models' / '1' / 'assets.extra' / 'bundle.json'
  content = json.loads(path.read_text())
  del content['features']
  path.write_text(json.dumps(content))
  assert _find(copy, personalized=False)
  assert 'cluster_models/1 was exported without a feature spec' in caplog.text


def test_unknown_clusters(export):
  with pytest.raises(errors.ExportError, match="'cluster_2'.*has 2 clusters"):
    _find(export, otherwise='cluster_2')
  with pytest.raises(errors.ExportError, match="'eve' names cluster 9"):
    _find(export, {'anna': 1, 'eve': 9})


def test_signatures(loaded):
  found = loaded.signatures()
  outputs = {
    'class_id': ('int32', (-1,)),
    'logits': ('float32', (-1, 3)),
    'probabilities': ('float32', (-1, 3)),
  }
  assert found['personalized'] == {
    'serving_default': {
      'inputs': {'client_id': ('string', (-1,)), 'x': ('float32', (-1, 4))},
      'outputs': outputs,
    },
    'serving_raw': {
      'inputs': {
        'client_id': ('string', (-1,)),
        **{name: ('float32', (-1,)) for name in 'abcd'},
      },
      'outputs': {**outputs, 'class_name': ('string', (-1,))},
    },
    'classify': {
      'inputs': {'inputs': ('string', (-1,))},
      'outputs': {
        'classes': ('string', (-1, 3)),
        'scores': ('float32', (-1, 3)),
      },
    },
  }
  assert found['cluster'].keys() == {
    'serving_default',
    'predict_cluster',
    'predict_mixture',
    'pick_cluster',
    'serving_raw',
    'predict_mixture_raw',
    'pick_cluster_raw',
    'classify',
  }
