"""The bundles of known clients, against NumPy."""

import dataclasses
import hashlib
import json
from collections import OrderedDict

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import exportable
from tff_algos.core import errors
from tff_algos.core import model as model_lib
from tff_algos.export import client_states, manifest, personalized_models
from tff_algos.models import precision
from tff_algos.stages.clusters import mixtures

X = exportable.sample_inputs(6)
IDS = exportable.CLIENT_IDS


def export(base, model, personalized_weights=None, **changes):
  arguments = {
    'algorithm': exportable.algorithm(model, personalized_weights),
    'sample_inputs': X,
    **changes,
  }
  return exportable.export_clients(base, model, **arguments)


def serving_default(folder):
  loaded = tf.saved_model.load(str(folder))

  def call(**inputs):
    inputs = {key: tf.constant(value) for key, value in inputs.items()}
    outputs = loaded.signatures['serving_default'](**inputs)
    return {key: value.numpy() for key, value in outputs.items()}

  return call


@pytest.fixture(scope='module')
def fed_soft_folder(tmp_path_factory):
  return export(tmp_path_factory.mktemp('own'), exportable.linear_model())


@pytest.fixture(scope='module')
def fed_soft(fed_soft_folder):
  return serving_default(fed_soft_folder)


def own_oracle():
  """Returns NumPy's outputs, `[num_clients, batch, num_outputs]`."""
  _, states = exportable.states(exportable.linear_model())
  return np.stack(
    [
      exportable.oracle_logits(states.personalized_weights, i, X)
      for i in range(len(IDS))
    ]
  )


def test_a_bfloat16_model_is_served_in_float32_with_its_own_numbers(tmp_path):
  model = precision.compute_in(exportable.linear_model(), 'bfloat16')
  outputs = serving_default(export(tmp_path, model))(
    client_id=[IDS[2]] * 6, x=X
  )
  _, states = exportable.states(model)
  weights = tf.nest.map_structure(
    lambda leaf: tf.constant(leaf[2]), states.personalized_weights
  )
  expected = tf.function(model.apply)(weights, tf.constant(X))
  assert outputs['logits'].dtype == np.float32
  np.testing.assert_array_equal(outputs['logits'], expected)
  error = np.abs(outputs['logits'] - own_oracle()[2]).max()
  assert 1e-4 < error < 0.1


@pytest.mark.parametrize(
  'rows', [[0] * 6, [3] * 6, [0, 1, 2, 3, 0, 1], [2, 2, 1, 2, 1, 1]]
)
def test_rows_are_predicted_by_their_client(fed_soft, rows):
  outputs = fed_soft(client_id=[IDS[i] for i in rows], x=X)
  logits = own_oracle()[rows, np.arange(6)]
  np.testing.assert_allclose(outputs['logits'], logits, rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(
    outputs['probabilities'], exportable.softmax(logits), rtol=1e-5, atol=1e-6
  )
  np.testing.assert_array_equal(outputs['class_id'], logits.argmax(axis=1))


def test_weights_are_computed_from_both_states_in_the_graph(tmp_path):
  model = exportable.linear_model(model_lib.REGRESSION)
  folder = export(tmp_path, model, exportable.mixed_weights)
  outputs = serving_default(folder)(client_id=[IDS[2]] * 3 + [IDS[1]] * 3, x=X)
  state, _ = exportable.states(model)
  # A mixture of linear models is the linear model of the mixture.
  values = np.stack(
    [
      exportable.oracle_logits(state.cluster_weights, k, X)[:, 0]
      for k in range(exportable.NUM_CLUSTERS)
    ]
  )
  shares = state.membership[[2, 2, 2, 1, 1, 1]]
  np.testing.assert_allclose(
    outputs['prediction'],
    np.einsum('bk,kb->b', shares, values),
    rtol=1e-5,
    atol=1e-6,
  )


def test_only_what_is_used_is_stored(fed_soft_folder, tmp_path):
  # The client states also hold NaN importance weights, which nothing reads:
  # they are neither stored nor in the way.
  assert not tf.saved_model.load(str(fed_soft_folder)).states
  facts = manifest.read_manifest(fed_soft_folder)['client_states']
  assert facts == [
    {'dtype': 'float32', 'shape': [3]},
    {'dtype': 'float32', 'shape': [4, 3]},
  ]
  folder = export(tmp_path, exportable.linear_model(), exportable.mixed_weights)
  shapes = sorted(tuple(v.shape) for v in tf.saved_model.load(folder).states)
  assert shapes == [(2, 3), (2, 4, 3), (4, 2)]
  assert not list((folder / 'assets').iterdir())


@pytest.mark.parametrize(
  ('client_id', 'shown'),
  [
    ('nobody', 'unknown client id nobody;'),
    ('', 'unknown client id ;'),
    ('çelim', 'unknown client id çelim;'),
    (b'\xff\xfe', 'unknown client id \ufffd\ufffd;'),
    ('y' * 1000, f'unknown client id {"y" * 100};'),
  ],
)
def test_unknown_client_is_refused(fed_soft, client_id, shown):
  with pytest.raises(tf.errors.InvalidArgumentError, match=shown):
    fed_soft(client_id=['anna', client_id], x=X[:2])


def test_ids_must_match_the_rows(fed_soft):
  text = 'client_id must have one row for each example: it has 1, and the number of examples is 6'
  with pytest.raises(tf.errors.InvalidArgumentError, match=text):
    fed_soft(client_id=['anna'], x=X)


def test_no_rows_give_no_predictions(fed_soft):
  outputs = fed_soft(client_id=np.array([], object), x=X[:0])
  assert outputs['logits'].shape == (0, exportable.NUM_CLASSES)


def test_client_ids_are_listed(fed_soft_folder):
  path = fed_soft_folder / manifest.EXTRA_FOLDER / manifest.CLIENT_IDS_FILE
  assert tuple(json.loads(path.read_text())) == IDS
  assert manifest.read_manifest(fed_soft_folder)['num_clients'] == len(IDS)


@pytest.mark.parametrize(
  ('client_id', 'name'),
  [
    ('anna', 'client_anna'),
    ('b/2', 'client_b%2F2'),
    # Six bytes in the name for each letter.
    ('ø' * 40, f'client_{"%C3%B8" * 40}'),
    ('ø' * 41, f'client_{hashlib.sha256(("ø" * 41).encode()).hexdigest()}'),
  ],
  ids=['short', 'quoted', 'long', 'too_long'],
)
def test_names_of_files_are_short_enough(client_id, name):
  assert personalized_models.client_name(client_id) == name
  assert len(name) < 255


def test_clients_without_state(tmp_path):
  folder = export(
    tmp_path,
    exportable.linear_model(),
    exportable.mixed_weights,
    load_states=lambda indices: (),
  )
  assert serving_default(folder)(client_id=['anna'], x=X[:1])


def test_one_client_alone(tmp_path):
  model = exportable.linear_model()
  server_state, client_states = exportable.states(model)
  folder = personalized_models.export_client_model(
    tmp_path,
    exportable.algorithm(model),
    server_state,
    IDS[2],
    2,
    tf.nest.map_structure(lambda leaf: leaf[2], client_states),
    X,
    exportable.PROVENANCE,
  )
  outputs = serving_default(folder)(x=X)
  np.testing.assert_allclose(
    outputs['logits'], own_oracle()[2], rtol=1e-5, atol=1e-6
  )
  # It holds this client's 4 x 3 kernel and 3 biases, and nobody else's.
  reader = tf.train.load_checkpoint(str(folder / 'variables' / 'variables'))
  shapes = reader.get_variable_to_shape_map()
  weights = sorted(s for k, s in shapes.items() if k.startswith('weights'))
  assert weights == [[3], [4, 3]]


@pytest.mark.parametrize('task', ['classification', 'regression'])
def test_a_mixture_of_outputs_is_served_to_all_and_alone(tmp_path, task):
  """As of FedEM: the components are stored once, the memberships stacked."""
  model = exportable.linear_model(task)
  server_state, client_states = exportable.states(model)

  def mixture_weights(server_state, client_state, client_index):
    del client_state
    return OrderedDict(
      canonical=server_state.cluster_weights,
      membership=tf.gather(server_state.membership, client_index),
    )

  algorithm = dataclasses.replace(
    exportable.algorithm(model, mixture_weights),
    personalized_model=mixtures.mixture_of_outputs(model, 2),
  )
  folder = export(tmp_path / 'all', model, algorithm=algorithm)
  rows = np.array([2, 2, 1, 0, 1, 3])
  outputs = serving_default(folder)(client_id=[IDS[i] for i in rows], x=X)
  alone = personalized_models.export_client_model(
    tmp_path / 'alone',
    algorithm,
    server_state,
    IDS[2],
    2,
    tf.nest.map_structure(lambda leaf: leaf[2], client_states),
    X,
    exportable.PROVENANCE,
  )
  values = np.stack(
    [
      exportable.oracle_logits(server_state.cluster_weights, k, X)
      for k in (0, 1)
    ]
  )
  name = 'prediction'
  if task == model_lib.CLASSIFICATION:
    values, name = exportable.softmax(values), 'probabilities'

  def mixed(clients):
    shares = server_state.membership[clients]
    return np.einsum('bk,kbc->bc', shares, values).reshape(outputs[name].shape)

  tolerance = {'rtol': 1e-5, 'atol': 1e-6}
  np.testing.assert_allclose(outputs[name], mixed(rows), **tolerance)
  np.testing.assert_allclose(
    serving_default(alone)(x=X)[name], mixed([2] * 6), **tolerance
  )
  assert manifest.read_manifest(folder)['model'] == 'mixture_of_2_linear'


def test_bundle_that_serves_one_client_otherwise_is_not_published(tmp_path):
  """In a graph, and for the third client alone."""

  def weights(server_state, client_state, client_index):
    own = exportable.own_weights(server_state, client_state, client_index)
    if not tf.inside_function():
      return own
    factor = tf.where(client_index == 2, 2.0, 1.0)
    return tf.nest.map_structure(lambda leaf: factor * leaf, own)

  with pytest.raises(errors.ExportError, match='differs from the model in mem'):
    export(tmp_path, exportable.linear_model(), weights)
  assert not list(tmp_path.iterdir())


def test_states_of_other_clients_are_refused(tmp_path):
  model = exportable.linear_model()
  _, states = exportable.states(model)
  with pytest.raises(
    errors.ExportError, match='client states must have 2 rows'
  ):
    export(
      tmp_path, model, client_ids=('a', 'b'), load_states=lambda indices: states
    )
  assert not list(tmp_path.iterdir())


def test_states_are_loaded_a_block_at_a_time(tmp_path, monkeypatch):
  model = exportable.linear_model()
  load, sizes = exportable.loading(exportable.states(model)[1]), []
  state = client_states.state_of(load, 0)
  num_bytes = sum(leaf.nbytes for leaf in tf.nest.flatten(state))
  monkeypatch.setattr(client_states, '_BLOCK_BYTES', 3 * num_bytes)
  folder = export(
    tmp_path,
    model,
    load_states=lambda indices: sizes.append(len(indices)) or load(indices),
  )
  assert max(sizes) == 3 < len(IDS)
  outputs = serving_default(folder)(client_id=IDS, x=X[: len(IDS)])
  expected = [
    exportable.oracle_logits(load(range(len(IDS)))[0], index, X[index])
    for index in range(len(IDS))
  ]
  np.testing.assert_allclose(outputs['logits'], expected, rtol=1e-5, atol=1e-6)


def test_nan_in_a_used_state_is_refused(tmp_path):
  model = exportable.linear_model()
  _, client_states = exportable.states(model)
  client_states.personalized_weights['kernel'][1, 0, 0] = np.inf
  with pytest.raises(errors.ExportError, match='client states must be finite'):
    export(tmp_path, model, load_states=exportable.loading(client_states))


def test_session_predicts_as_tensorflow_serving_does(fed_soft_folder):
  """TensorFlow Serving runs the saved graph in a session, tables and all."""
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    graph = tf.compat.v1.saved_model.load(
      session, [tf.saved_model.SERVING], str(fed_soft_folder)
    )
    signature = graph.signature_def['serving_default']
    feeds = {
      signature.inputs['client_id'].name: ['çelik', 'anna'],
      signature.inputs['x'].name: X[:2],
    }
    logits = session.run(signature.outputs['logits'].name, feeds)
    feeds[signature.inputs['client_id'].name] = ['anna', 'bob']
    with pytest.raises(tf.errors.InvalidArgumentError, match='client id bob'):
      session.run(signature.outputs['logits'].name, feeds)
  np.testing.assert_allclose(
    logits, own_oracle()[[2, 0], [0, 1]], rtol=1e-5, atol=1e-6
  )
