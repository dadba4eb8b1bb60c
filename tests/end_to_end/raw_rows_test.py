"""From raw rows to answers: a table is trained on, and asked for raw rows."""

import dataclasses
import pathlib
from typing import Any, NamedTuple

import httpx
import numpy as np
import pytest
import tensorflow as tf
from pyarrow import parquet

from configs import own_data
from pipelines import build_dataset
from pipelines import options as pipeline_options
from pipelines.scoring import batch_inference, model_choice
from tests.testing import raw_tables
from tff_algos.core import errors
from tff_algos.experiments import experiment as experiment_lib
from tff_algos.experiments import exporting, session, training
from tff_algos.export import bundle as bundle_lib
from tff_algos.features import preprocessing
from tff_algos.serving import models as models_lib
from tff_algos.serving import server, server_config

pytestmark = pytest.mark.verify

_FEATURES = (
  {'name': 'age', 'missing': 'indicator'},
  {'name': 'income', 'encoding': 'log'},
  {'name': 'color', 'type': 'category', 'size': 2},
  {'name': 'note', 'type': 'text', 'size': 3},
)


def _config(folder):
  values = own_data.get_config('fed_em', source='table', model='mlp')
  values.dataset.source.options.update(
    path=str(folder / 'table.csv'),
    label_column='y',
    client_column='who',
    classes=('no', 'yes'),
    features=_FEATURES,
  )
  values.name = 'raw rows'
  values.model.hidden_sizes = (3,)
  values.algorithm.update(num_clusters=2, cohort_size=3)
  values.training.update(num_rounds=1, evaluation_interval=1)
  values.runtime.name = 'debug'
  return experiment_lib.parse(values)


class Run(NamedTuple):
  """A finished run that is served.

  Attributes:
    config: Config of the run.
    folder: Its workdir.
    opened: Session, its last checkpoint restored.
    state: Server state.
    http: Client of a server of the exported models.
  """

  config: experiment_lib.ExperimentConfig
  folder: pathlib.Path
  opened: session.Session
  state: Any
  http: httpx.Client

  def ask(self, model, rows, signature='serving_raw', **inputs):
    """Returns the answers to raw or encoded rows, by output."""
    body = {'signature_name': signature, 'inputs': {**rows, **inputs}}
    reply = self.http.post(f'/v1/models/{model}:predict', json=body)
    assert reply.status_code == 200, reply.text
    return {
      name: np.array(values) for name, values in reply.json()['outputs'].items()
    }


@pytest.fixture(name='run', scope='module')
def make_run(tmp_path_factory):
  folder = tmp_path_factory.mktemp('raw')
  raw_tables.write(folder, raw_tables.rows())
  config = _config(folder)
  build_dataset.build(config.dataset, folder / 'dataset')
  training.train(config, folder)
  exporting.export(config, folder)
  with (
    session.open_session(config, folder) as opened,
    server.running(
      models_lib.ModelStore(folder / 'export'),
      server_config.ServerConfig(rest_api_port=0, port=0),
    ) as ports,
    httpx.Client(
      base_url=f'http://127.0.0.1:{ports.rest_api_port}', timeout=30
    ) as http,
  ):
    _, state = opened.restore('last')
    yield Run(config, folder, opened, state, http)


def _test_rows(dataset, client_id):
  """Returns the raw test rows of a client as JSON, and what is stored."""
  encoder = preprocessing.Preprocessing(dataset.feature_spec)
  raw = {}
  for row in raw_tables.rows():
    if row['who'] == client_id:
      columns = {
        'age': float(row['age']) if row['age'] else None,
        'income': float(row['income']),
        'color': row['color'],
        'note': row['note'],
      }
      tensors = {
        name: tf.constant([np.nan if value is None else value])
        for name, value in columns.items()
      }
      raw[encoder.model_input(tensors).numpy().tobytes()] = columns
  x = dataset.examples(client_id, 'test').x
  rows = [raw[one.tobytes()] for one in x]
  return {name: [row[name] for row in rows] for name in rows[0]}, x


def _check_same_bits(answers, expected):
  for name, values in expected.items():
    found = answers[name].astype(values.dtype)
    np.testing.assert_array_equal(found, values, name)


def test_cluster_models_answer_as_in_evaluation(run):
  algorithm, dataset = run.opened.algorithm, run.opened.dataset
  stacked = algorithm.cluster_weights(run.state)
  for k, client_id in enumerate(dataset.client_ids[:2]):
    rows, x = _test_rows(dataset, client_id)
    ids = [k] * len(x)
    answers = run.ask('cluster_models', rows, cluster_id=ids)
    weights = tf.nest.map_structure(lambda leaf: leaf[k], stacked)  # noqa: B023
    model = algorithm.cluster_model
    _check_same_bits(answers, bundle_lib.expected_outputs(model, weights, x))
    names = np.array(['no', 'yes'])[answers['class_id']]
    assert answers['class_name'].tolist() == names.tolist()


def test_personalized_models_answer_as_in_evaluation(run):
  algorithm, dataset = run.opened.algorithm, run.opened.dataset
  for index, client_id in enumerate(dataset.client_ids):
    rows, x = _test_rows(dataset, client_id)
    ids = [client_id] * len(x)
    answers = run.ask('personalized_models', rows, client_id=ids)
    (client_state,) = [
      tf.nest.map_structure(
        lambda leaf: leaf[0], run.opened.store.load([index])
      )
    ]
    weights = algorithm.personalized_weights(
      run.state, client_state, tf.constant(index)
    )
    model = algorithm.personalized_model
    _check_same_bits(answers, bundle_lib.expected_outputs(model, weights, x))


def test_mixtures_answer_as_for_encoded_rows(run):
  rows, x = _test_rows(run.opened.dataset, run.opened.dataset.client_ids[0])
  mixture = [[0.25, 0.75]] * len(x)
  model = 'cluster_models'
  answers = run.ask(model, rows, 'predict_mixture_raw', mixture=mixture)
  encoded = run.ask(
    model, {'x': x.tolist()}, 'predict_mixture', mixture=mixture
  )
  _check_same_bits(answers, encoded)
  assert np.ptp(answers['probabilities']) > 0


def test_labels_by_name_pick_the_cluster(run):
  dataset = run.opened.dataset
  rows, x = _test_rows(dataset, dataset.client_ids[1])
  y = dataset.examples(dataset.client_ids[1], 'test').y
  names = [('no', 'yes')[label] for label in y]
  picked = run.ask('cluster_models', rows, 'pick_cluster_raw', label=names)
  encoded = run.ask(
    'cluster_models', {'x': x.tolist()}, 'pick_cluster', label=y.tolist()
  )
  _check_same_bits(picked, encoded)


def _score(run, folder, rows, **source):
  """Scores a dataset of other rows with the models of the run."""
  raw_tables.write(folder, rows)
  options = {**run.config.dataset.source.options, **source}
  config = dataclasses.replace(
    run.config.dataset,
    source=dataclasses.replace(
      run.config.dataset.source,
      options={**options, 'path': str(folder / 'table.csv')},
    ),
    partition=pipeline_options.PartitionConfig('natural'),
    keep_unlabelled=True,
    fitted_from=str(run.folder / 'dataset') if not source else '',
  )
  build_dataset.build(config, folder / 'dataset')
  return batch_inference.score(
    folder / 'dataset',
    run.folder / 'export',
    folder / 'predictions',
    model_choice.ScoringConfig(otherwise='cluster_0'),
  )


def test_unlabelled_clients_are_scored(run, tmp_path):
  rows = raw_tables.rows()
  for row in rows:
    row['y'] = '' if row['who'] in ('person_0', 'person_1') else row['y']
  result = _score(run, tmp_path, rows)
  counts = result.manifest['counts']
  assert counts['unlabelled_examples'] == 24
  table = parquet.read_table(result.folder).to_pylist()
  assert len(table) == counts['examples'] > 24
  for row in table:
    is_unlabelled = row['client_id'] in ('person_0', 'person_1')
    assert (row['label'] is None) == is_unlabelled
    assert (row['correct'] is None) == is_unlabelled
    assert row['group'] == 'unlabelled' or not is_unlabelled
  correct = [row['correct'] for row in table if row['correct'] is not None]
  assert result.manifest['accuracy'] == np.mean(correct)


def test_data_of_another_scale_are_refused(run, tmp_path):
  """A column in another unit is named, before those of other training rows."""
  rows = [{**row, 'income': row['income'] + '00'} for row in raw_tables.rows()]
  with pytest.raises(
    errors.ExportError,
    match=r'encoding .* in fitted\.income\.mean: .* there, .* here',
  ):
    _score(run, tmp_path, rows, label_unit='')
