import json

import numpy as np
import pytest
import tensorflow as tf

from pipelines import build_dataset
from tests.testing import raw_data
from tff_algos.core import config as config_lib
from tff_algos.core import errors
from tff_algos.data import dataset as dataset_lib
from tff_algos.data import schema
from tff_algos.experiments import exporting, session


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
  text = (path / 'assets.extra' / 'bundle.json').read_text()
  assert config_lib.config_hash(finished_run.config) in text
  assert trained[0].dataset.version in text
  assert 3 in json.loads(text).values() or '"round_num": 3' in text


@pytest.mark.slow
def test_each_export_is_a_new_version(finished_run):
  folder = _export_folder(finished_run)
  first = exporting.export(finished_run.config, finished_run.folder)
  again = exporting.export(finished_run.config, finished_run.folder)
  for one, other in zip(first, again, strict=True):
    assert int(other.name) == int(one.name) + 1
    assert other.is_dir()
  assert not list(folder.rglob('.writing*'))


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
