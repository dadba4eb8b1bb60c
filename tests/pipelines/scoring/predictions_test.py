"""Tables of predictions and what is said about them."""

import dataclasses
import json
import pathlib

import numpy as np
import pytest
from pyarrow import parquet

from pipelines.publishing import manifest as manifest_lib
from pipelines.publishing import staging
from pipelines.scoring import bundles, model_choice, predictions
from tff_algos.core import sealed_json
from tff_algos.data import layout


def _client(position, labels, predicted, regression=False):
  dtype = np.float32 if regression else np.int32
  return predictions.ScoredClient(
    position=position,
    client_id=f'client {position}',
    group='participating',
    model='cluster' if position else 'personalized',
    cluster_id=position - 1,
    chosen_by='assignment' if position else 'client_id',
    label=np.array(labels, dtype),
    prediction=np.array(predicted, dtype),
    probability=None if regression else np.full(len(labels), 0.5, np.float32),
  )


def test_one_row_an_example():
  table = predictions.to_table(
    [_client(0, [2, 1], [2, 0]), _client(2, [1], [1])], num_classes=3
  )
  assert table.to_pylist() == [
    {
      'client_id': f'client {client}',
      'group': 'participating',
      'position': position,
      'prediction': predicted,
      'label': label,
      'probability': 0.5,
      'correct': predicted == label,
      'model': 'cluster' if client else 'personalized',
      'cluster_id': 1 if client else None,
      'chosen_by': 'assignment' if client else 'client_id',
    }
    for client, position, label, predicted in (
      (0, 0, 2, 2),
      (0, 1, 1, 0),
      (2, 0, 1, 1),
    )
  ]


def test_regression():
  table = predictions.to_table([_client(0, [1], [1.5], True)], num_classes=0)
  assert str(table.schema.field('prediction').type) == 'float'
  assert 'correct' not in table.column_names


@pytest.mark.parametrize('num_classes', [0, 3])
def test_no_example_has_the_same_columns(num_classes):
  full = predictions.to_table(
    [_client(0, [1], [1], not num_classes)], num_classes
  )
  empty = predictions.to_table([], num_classes)
  assert len(empty) == 0
  assert empty.schema == full.schema


def _write(tmp_path, shards, num_classes):
  with staging.open_staging(tmp_path) as opened:
    writer = predictions.WriteShard(opened, len(shards), num_classes)
    for shard, clients in enumerate(shards):
      list(writer.process((shard, clients)))
    described = {'code_version': 1}
    manifest = predictions.write_manifest(opened, described, 'v1')
    staging.publish(opened, tmp_path, 'v1')
  return manifest, layout.version_folder(tmp_path, 'v1')


def test_version_is_a_function_of_what_decides_the_predictions():
  """Else what was scored before would be taken for what is asked for now."""
  config = model_choice.ScoringConfig()
  bundle = bundles.Bundle(
    model='cluster',
    version=1,
    folder=pathlib.Path('one'),
    manifest={'round_num': 3, 'config_hash': 'c0ffee'},
    sha256='1234',
  )
  source = {'version': 'v1', 'checksum': 'abcd'}

  def name(source=source, bundle=bundle, config=config, assignments=(0, 1)):
    described = predictions.describe(
      source,
      [bundle],
      config,
      dict(zip(('anna', 'eve'), assignments, strict=True)),
    )
    return manifest_lib.name_version(described)

  names = {
    name(),
    name(source=source | {'checksum': 'abce'}),
    # Exported again under the number of a version that was removed.
    name(bundle=bundle._replace(sha256='1235')),
    name(config=dataclasses.replace(config, split='validation')),
    name(assignments=(1, 0)),
  }
  assert len(names) == 5
  assert name(bundle=bundle._replace(folder=pathlib.Path('two'))) == name()


def test_shards_are_sorted_and_counted(tmp_path):
  first, second = _client(0, [2, 1], [2, 0]), _client(2, [1], [1])
  manifest, folder = _write(tmp_path, [[second, None, first], [None]], 3)
  assert manifest['counts'] == {
    'clients': 2,
    'clients_by_assignment': 1,
    'clients_by_client_id': 1,
    'examples': 3,
  }
  assert manifest['accuracy'] == 2 / 3
  assert predictions.read_published(folder) == manifest
  # Parquet readers take the folder as one table.
  rows = parquet.read_table(folder).to_pylist()
  assert [row['client_id'] for row in rows] == ['client 0'] * 2 + ['client 2']


def test_a_class_whose_probability_is_nan_is_not_correct(tmp_path):
  """The largest of probabilities that are NaN is that of class 0."""
  client = _client(0, [0, 0, 1, -1], [0, 0, 1, 0])
  client.probability[:] = [np.nan, 0.5, np.nan, np.nan]
  manifest, folder = _write(tmp_path, [[client]], 3)
  assert parquet.read_table(folder)['correct'].to_pylist() == [
    *(False, True, False, None)
  ]
  assert manifest['accuracy'] == 1 / 3


def test_mean_squared_error(tmp_path):
  manifest, _ = _write(tmp_path, [[_client(0, [1, 2], [4, 2], True)]], 0)
  assert manifest['mean_squared_error'] == 4.5
  assert 'accuracy' not in manifest


def test_nothing_to_score(tmp_path):
  manifest, _ = _write(tmp_path, [[None]], 3)
  assert manifest['counts'] == {'clients': 0, 'examples': 0}
  assert 'accuracy' not in manifest


@pytest.mark.parametrize('what', ['manifest', 'format', 'content', 'missing'])
def test_damaged_predictions_are_not_taken(tmp_path, what):
  _, folder = _write(tmp_path, [[_client(0, [1], [1])]], 3)
  path = folder / predictions.MANIFEST
  if what == 'manifest':
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {'accuracy': 0.3}))
  elif what == 'format':
    content = json.loads(path.read_text())
    del content['files']
    sealed_json.write(path, content)
  elif what == 'content':
    (shard,) = folder.glob('*.parquet')
    shard.write_bytes(shard.read_bytes()[:-1] + b'x')
  else:
    path.unlink()
  assert predictions.read_published(folder) is None


def test_damaged_predictions_are_no_reason_to_build_a_dataset(tmp_path, caplog):
  _, folder = _write(tmp_path, [[_client(0, [1], [1])]], 3)
  (shard,) = folder.glob('*.parquet')
  shard.unlink()
  assert predictions.read_published(folder) is None
  assert caplog.messages == [f'Scoring {folder} again: {shard} is missing']


def test_no_predictions(tmp_path):
  assert predictions.read_published(tmp_path / 'none') is None
