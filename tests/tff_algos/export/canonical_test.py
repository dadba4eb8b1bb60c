"""Equal models are equal files, whatever the process did before."""

import shutil

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from tests.testing import exportable
from tff_algos.export import canonical, manifest

_MODELS = ('cluster_models', 'personalized_models', 'anna')


@pytest.fixture(name='exports', scope='module')
def make_exports(tmp_path_factory):
  """Two exports, between which the counter of the process gains a digit."""
  first, second = (tmp_path_factory.mktemp(name) for name in ('a', 'b'))
  exportable.export_all(first)
  for _ in range(20_000):
    tf.Graph()  # It takes a number.
  exportable.export_all(second)
  return first, second


@pytest.mark.parametrize('model', _MODELS)
def test_equal_models_are_equal_files(exports, model):
  first, second = exports
  assert manifest.bundle_sha256(first / model / '1') == (
    manifest.bundle_sha256(second / model / '1')
  )
  files = manifest.read_manifest(first / model / '1')['files']
  assert 'saved_model.pb' in files and 'fingerprint.pb' not in files


def test_names_are_counted_from_0(exports, tmp_path):
  """And a second time nothing changes."""
  folder = shutil.copytree(
    exports[0] / 'personalized_models' / '1', tmp_path / '1'
  )
  before = (folder / 'saved_model.pb').read_bytes()
  assert b'key_value_init0' in before
  canonical.canonicalize(folder)
  assert (folder / 'saved_model.pb').read_bytes() == before


def test_a_new_name_may_be_the_old_one_of_another(tmp_path):
  content = saved_model_pb2.SavedModel()
  graph = content.meta_graphs.add()
  for number in (1, 3, 5):
    name = f'__inference_f_{number}'
    graph.graph_def.library.function.add().signature.name = name
    function = graph.object_graph_def.concrete_functions[name]
    function.bound_inputs.append(number)
  (tmp_path / 'saved_model.pb').write_bytes(content.SerializeToString())
  canonical.canonicalize(tmp_path)
  content.ParseFromString((tmp_path / 'saved_model.pb').read_bytes())
  found = content.meta_graphs[0].object_graph_def.concrete_functions
  assert {name: list(one.bound_inputs) for name, one in found.items()} == {
    f'__inference_f_{rank}': [number] for rank, number in enumerate((1, 3, 5))
  }


def test_tables_of_two_bundles_are_not_shared(exports, tmp_path):
  """Both name it alike; each must find its own clients, in any order."""
  first = exports[0] / 'personalized_models' / '1'
  loaded = tf.saved_model.load(str(first)).signatures['serving_default']
  exportable.export_clients(tmp_path, client_ids=exportable.CLIENT_IDS[::-1])
  _, states = exportable.states(exportable.linear_model())
  other = tf.saved_model.load(str(tmp_path / '1')).signatures['serving_default']
  x = exportable.sample_inputs()
  for predict, index in ((loaded, 1), (other, 2), (loaded, 1)):
    answer = predict(client_id=tf.fill([len(x)], 'b/2'), x=tf.constant(x))
    expected = exportable.oracle_logits(states.personalized_weights, index, x)
    np.testing.assert_allclose(answer['logits'], expected, rtol=1e-5, atol=1e-6)
