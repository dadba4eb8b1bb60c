import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from pipelines import build_dataset
from tests.testing import nights, raw_data, raw_tables
from tff_algos.core import errors
from tff_algos.data import dataset as dataset_lib
from tff_algos.data import schema
from tff_algos.experiments import experiment, exporting, session, training
from tff_algos.experiments.production import gate_record
from tff_algos.export import releases


@pytest.fixture(scope='module')
def trained(finished_run):
  """The finished run, opened, and its server state."""
  with session.open_session(finished_run.config, finished_run.folder) as opened:
    _, server_state = opened.restore()
    yield opened, server_state


def _export_folder(finished_run):
  return finished_run.folder / 'export'


def test_cluster_bundle_predicts_as_the_cluster_models(finished_run, trained):
  opened, server_state = trained
  bundle = tf.saved_model.load(
    str(_export_folder(finished_run) / 'cluster_models' / '1')
  )
  x = opened.dataset.held_out(1).x[:5]
  for cluster_id in range(2):
    weights = tf.nest.map_structure(
      lambda leaf: leaf[cluster_id],  # noqa: B023
      server_state.cluster_models,
    )
    expected = opened.algorithm.cluster_model.apply(weights, x)
    answer = bundle.signatures['serving_default'](
      x=tf.constant(x), cluster_id=tf.fill([5], np.int32(cluster_id))
    )
    np.testing.assert_array_equal(
      answer['class_id'], tf.argmax(expected, axis=1)
    )


def test_personalized_bundle_predicts_as_the_clients_models(
  finished_run, trained
):
  opened, server_state = trained
  bundle = tf.saved_model.load(
    str(_export_folder(finished_run) / 'personalized_models' / '1')
  )
  for index in (0, 11, 23):
    client_id = opened.dataset.client_ids[index]
    x = opened.dataset.examples(client_id, schema.TRAIN).x[:5]
    state = tf.nest.map_structure(
      lambda leaf: leaf[0], opened.store.load(np.array([index]))
    )
    weights = opened.algorithm.personalized_weights(
      server_state, state, tf.constant(index)
    )
    expected = opened.algorithm.personalized_model.apply(weights, x)
    answer = bundle.signatures['serving_default'](
      x=tf.constant(x), client_id=tf.fill([5], client_id)
    )
    np.testing.assert_array_equal(
      answer['class_id'], tf.argmax(expected, axis=1)
    )


def test_bundle_is_tied_to_config_round_and_dataset(finished_run, trained):
  path = _export_folder(finished_run) / 'cluster_models' / '1'
  content = json.loads((path / 'assets.extra' / 'bundle.json').read_text())
  assert content['config_hash'] == experiment.config_hash(finished_run.config)
  assert content['dataset_version'] == trained[0].dataset.version
  assert content['round_num'] == 3


def test_bundles_of_a_private_run_have_no_seed_and_no_score(
  trained_regressions, tmp_path
):
  config, source = trained_regressions
  algorithm = config.algorithm._replace(
    options=dataclasses.replace(
      config.algorithm.options, selection='weighted_full'
    )
  )
  config = dataclasses.replace(
    config,
    algorithm=algorithm,
    privacy=dataclasses.replace(config.privacy, noise_multiplier=1.0),
    training=dataclasses.replace(config.training, num_rounds=1),
    seed=918273645546372819,
  )
  (tmp_path / 'dataset').symlink_to(source / 'dataset')
  training.train(config, tmp_path)
  group = gate_record.Group('overall', 9, 0.5, 0.25, 0, 0, 0, 0, 'passed')
  with experiment.open_dataset(tmp_path) as dataset:
    subject = 1, experiment.unpublished_hash(config), dataset.version
  record = gate_record.GateRecord(
    False, ('overall: mse 0.25',), *subject, {}, {}, groups=(group,)
  )
  gate_record.write(tmp_path, record)
  exporting.export(config, tmp_path)
  for path in (tmp_path / 'export').rglob('*'):
    assert path.is_dir() or str(config.seed).encode() not in path.read_bytes()
  content = releases.read_lineage(tmp_path / 'export', 1)
  assert content['gate'] == {'blessed': False, 'champion_version': None}
  # The hash cannot be inverted by trying seeds.
  assert content['config_hash'] == experiment.config_hash(
    dataclasses.replace(config, seed=0)
  )


def test_one_client_alone(finished_run, trained):
  opened, _ = trained
  client_id = opened.dataset.client_ids[5]
  (path,) = exporting.export(
    finished_run.config, finished_run.folder, client_id=client_id
  )
  assert path.parent.name == f'client_{client_id}'
  bundle = tf.saved_model.load(str(path))
  x = opened.dataset.examples(client_id, schema.TRAIN).x[:4]
  whole = tf.saved_model.load(
    str(_export_folder(finished_run) / 'personalized_models' / '1')
  )
  np.testing.assert_array_equal(
    bundle.signatures['serving_default'](x=tf.constant(x))['class_id'],
    whole.signatures['serving_default'](
      x=tf.constant(x), client_id=tf.fill([4], client_id)
    )['class_id'],
  )


def test_unknown_client_is_refused_and_nothing_is_written(finished_run):
  before = sorted(_export_folder(finished_run).iterdir())
  with pytest.raises(errors.ExportError, match="'nobody'.*24 participating"):
    exporting.export(
      finished_run.config, finished_run.folder, client_id='nobody'
    )
  assert sorted(_export_folder(finished_run).iterdir()) == before


def test_nothing_was_trained(finished_run, digits_dataset):
  with pytest.raises(errors.CheckpointError, match='run binaries.train first'):
    exporting.export(finished_run.config, digits_dataset)
  assert not (digits_dataset / 'export').exists()


@pytest.mark.parametrize('fraction', [0.0, 0.2])
def test_samples_are_there_also_if_nothing_is_held_out(tmp_path, fraction):
  config = raw_data.digits_config(splits={'held_out_fraction': fraction})
  build_dataset.build(config, tmp_path)
  with dataset_lib.FederatedDataset.open(tmp_path) as dataset:
    samples = exporting.choose_samples(dataset)
    assert samples.shape == (8, 8, 8, 1)
    held_out = dataset.held_out(0).x[:8]
    assert np.array_equal(samples, held_out) == (fraction > 0)


@pytest.fixture(name='raw_table', scope='module')
def make_raw_table(tmp_path_factory):
  """A session of a run on raw columns, its server state and its bundles."""
  folder = tmp_path_factory.mktemp('raw')
  raw_tables.write(folder, raw_tables.rows())
  config = nights.parse(folder, 'ppfl', training={'num_rounds': 1})
  config = dataclasses.replace(config, dataset=raw_tables.config(folder))
  build_dataset.build(config.dataset, folder / 'dataset')
  training.train(config, folder)
  with session.open_session(config, folder) as opened:
    round_num, server_state = opened.restore()
    bundles = exporting.write_bundles(
      opened, round_num, server_state, folder / 'export'
    )
    yield opened, server_state, bundles


def _raw_columns(client_id):
  """Returns the raw rows of a client as inputs of a bundle."""
  rows = [row for row in raw_tables.rows() if row['who'] == client_id]
  numbers = {
    name: np.float32([row[name] or np.nan for row in rows])
    for name in ('age', 'income')
  }
  texts = {name: [row[name] for row in rows] for name in ('color', 'note')}
  return {k: tf.constant(v) for k, v in (numbers | texts).items()}


def _examples(dataset, client_id):
  """Returns the examples of a client in all of its splits."""
  return np.concatenate(
    [dataset.examples(client_id, split).x for split in schema.SPLITS]
  )


def _check_answers(outputs, expected):
  """Finds each among the answers; the examples were shuffled and split.

  Some of the client's rows are held out of its splits. Products of some
  processors differ in the last bit with the number of rows.
  """
  answers = outputs['probabilities'].numpy()
  gaps = np.abs(expected.numpy()[:, np.newaxis] - answers).max(axis=-1)
  assert gaps.min(axis=1).max() < 2e-7
  assert len(expected)


def test_raw_rows_get_the_answers_of_evaluation(raw_table):
  """By cluster, mixture and client, in float32."""
  opened, server_state, bundles = raw_table
  clusters, personalized = (
    tf.saved_model.load(str(bundles[name])).signatures
    for name in ('cluster_models', 'personalized_models')
  )
  algorithm, dataset = opened.algorithm, opened.dataset
  own, cluster = algorithm.personalized_model, algorithm.cluster_model
  for index, client_id in enumerate(dataset.client_ids[:2]):
    columns, x = _raw_columns(client_id), _examples(dataset, client_id)
    num_rows = len(columns['age'])
    state = tf.nest.map_structure(
      lambda leaf: leaf[0], opened.store.load(np.array([index]))
    )
    predict = tf.function(
      lambda model, weights, x: tf.nn.softmax(model.apply(weights, x)),
      autograph=False,
    )
    weights = algorithm.personalized_weights(
      server_state, state, tf.constant(index)
    )
    _check_answers(
      personalized['serving_raw'](
        client_id=tf.fill([num_rows], client_id), **columns
      ),
      predict(own, weights, x),
    )
    mean, deviation = (
      tf.constant(np.repeat(one, num_rows, axis=0))
      for one in dataset.client_statistics((client_id,))
    )
    columns |= {'client_mean': mean, 'client_deviation': deviation}
    weights = tf.nest.map_structure(
      lambda leaf: leaf[1], algorithm.cluster_weights(server_state)
    )
    _check_answers(
      clusters['serving_raw'](
        cluster_id=tf.fill([num_rows], np.int32(1)), **columns
      ),
      predict(cluster, weights, x),
    )
    membership = tf.constant([0.25, 0.75])
    weights = algorithm.newcomers.weights(
      tf.nest.map_structure(tf.convert_to_tensor, server_state), membership
    )
    _check_answers(
      clusters['predict_mixture_raw'](
        mixture=tf.tile(membership[tf.newaxis], [num_rows, 1]), **columns
      ),
      predict(own, weights, x),
    )
