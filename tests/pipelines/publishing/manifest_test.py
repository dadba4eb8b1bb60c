import copy
import json

import numpy as np
import pyarrow.parquet
import pytest

from pipelines.publishing import manifest
from pipelines.publishing import staging as staging_lib
from pipelines.steps import extract, planning
from tests.testing import raw_data
from tff_algos.core import errors, records
from tff_algos.data import integrity
from tff_algos.data import schema as schema_lib

_SCHEMA = schema_lib.Schema(
  x_dtype='uint8',
  x_shape=(8, 8, 1),
  x_scale=1 / 16,
  x_offset=0.0,
  task='classification',
  num_classes=2,
  source_names=('upright', 'rotated_90'),
)
_PLAN = planning.Plan(
  client_ids=('client_0', 'client_1', 'unseen_0'),
  groups=('participating', 'participating', 'unseen'),
  mixtures=np.array([[0.1, 0.9], [0.9, 0.1], [0.5, 0.5]]),
  roles=np.zeros(0, np.int8),
  owners=np.zeros((2, 0), np.int32),
)


def _shard(counts, histogram):
  """Returns the facts of a shard with equal splits."""
  return {
    'files': {},
    'counts': dict.fromkeys(schema_lib.SPLITS, counts),
    'label_histogram': dict.fromkeys(schema_lib.SPLITS, histogram),
  }


_FACTS = {
  'clients': [
    _shard([3, 4], [[1, 2], [4, 0]]),
    _shard([5], [[0, 5]]),
  ],
  'held_out': [
    {
      'files': {},
      'counts': {'held_out': [6]},
      'label_histogram': {'held_out': [[2, 4]]},
    }
  ]
  * 2,
}


def _describe(config):
  return manifest.describe_recipe(config, extract.create_source(config))


def test_version_is_a_function_of_the_recipe():
  config = raw_data.digits_config()
  version = manifest.name_version(_describe(config))
  assert len(version) == 16
  assert version == manifest.name_version(_describe(raw_data.digits_config()))
  others = [
    raw_data.digits_config(seed=4),
    raw_data.digits_config(num_shards=1),
    raw_data.digits_config(splits={}),
  ]
  names = {manifest.name_version(_describe(other)) for other in others}
  assert len(names | {version}) == 4


def test_version_does_not_depend_on_the_order_of_keys():
  """A config is read from Python, from JSON or from a published manifest."""
  described = _describe(raw_data.digits_config())

  def turned(value):
    if not isinstance(value, dict):
      return value
    return {key: turned(value[key]) for key in reversed(value)}

  assert list(turned(described)) != list(described)
  assert manifest.name_version(turned(described)) == manifest.name_version(
    described
  )


def test_version_depends_on_the_raw_data(tmp_path):
  versions = set()
  for num_rows in (60, 61):
    raw_data.write_csv(tmp_path, num_rows)
    described = _describe(raw_data.csv_config(tmp_path))
    versions.add(manifest.name_version(described))
  assert len(versions) == 2


def test_client_table(tmp_path):
  path = tmp_path / 'clients.parquet'
  manifest.write_clients(path, _PLAN, _FACTS['clients'])
  rows = pyarrow.parquet.read_table(path).to_pylist()
  assert [row['client_id'] for row in rows] == list(_PLAN.client_ids)
  assert [(row['shard'], row['position']) for row in rows] == [
    (0, 0),
    (0, 1),
    (1, 0),
  ]
  assert rows[2] == {
    'client_id': 'unseen_0',
    'group': 'unseen',
    'shard': 1,
    'position': 0,
    'mixture': [0.5, 0.5],
    'num_train_examples': 5,
    'train_label_histogram': [0, 5],
    'num_validation_examples': 5,
    'validation_label_histogram': [0, 5],
    'num_test_examples': 5,
    'test_label_histogram': [0, 5],
  }


def test_client_table_without_mixtures(tmp_path):
  path = tmp_path / 'clients.parquet'
  manifest.write_clients(path, _PLAN._replace(mixtures=None), _FACTS['clients'])
  rows = pyarrow.parquet.read_table(path).to_pylist()
  assert {row['mixture'] for row in rows} == {None}


_PLANTED = _PLAN._replace(
  planted=planning.Planted(
    clusters=np.array([0, 1, 0], np.int32),
    label_mixtures=np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]),
    facts={'class_groups': [[0], [1]]},
  )
)


def test_client_table_says_what_was_planted(tmp_path):
  path = tmp_path / 'clients.parquet'
  manifest.write_clients(path, _PLANTED, _FACTS['clients'])
  rows = pyarrow.parquet.read_table(path).to_pylist()
  assert [row['cluster_id'] for row in rows] == [0, 1, 0]
  assert rows[2]['label_mixture'] == [0.5, 0.5]
  manifest.write_clients(path, _PLAN, _FACTS['clients'])
  names = pyarrow.parquet.read_table(path).column_names
  assert not {'cluster_id', 'label_mixture'} & set(names)


def test_manifest_says_what_was_planted(tmp_path):
  made = [
    manifest.build_manifest({}, _SCHEMA, plan, _FACTS, folder=tmp_path)
    for plan in (_PLAN, _PLANTED)
  ]
  assert 'planted' not in made[0]
  assert made[1]['planted'] == {'class_groups': [[0], [1]]}


def test_shared_tests_are_counted(tmp_path):
  staging = staging_lib.Staging(tmp_path)
  staging.work.mkdir()
  staging.version.mkdir()
  for i, shard in enumerate(_FACTS['clients']):
    path = staging.work / f'clients-{i:05d}.json'
    path.write_text(json.dumps(shard))
  facts = manifest.gather_facts(staging, _PLAN)
  assert facts == {'clients': _FACTS['clients'], 'held_out': []}
  shared = np.array([[7, 0], [0, 5], [7, 5]])
  plan = _PLAN._replace(shared_test=shared)
  facts = manifest.gather_facts(staging, plan)
  assert [s['counts']['test'] for s in facts['clients']] == [[7, 5], [12]]
  assert facts['clients'][1]['label_histogram']['test'] == [[7, 5]]
  assert facts['clients'][1]['counts']['train'] == [5]
  facts |= {'held_out': _FACTS['held_out']}
  made = manifest.build_manifest(
    {}, _SCHEMA, plan, facts, folder=staging.version
  )
  assert made['num_examples']['test'] == {'participating': 12, 'unseen': 12}
  assert made['shared_test'] == 'held_out_by_class'


@pytest.mark.parametrize('fact', ['counts', 'label_histogram'])
@pytest.mark.parametrize(
  ('kind', 'split'),
  [('clients', 'train'), ('clients', 'test'), ('held_out', 'held_out')],
)
def test_fact_that_a_shard_lacks_is_missed(tmp_path, kind, split, fact):
  facts = copy.deepcopy(_FACTS)
  del facts[kind][0][fact][split]
  with pytest.raises(KeyError, match=split):
    manifest.build_manifest({}, _SCHEMA, _PLAN, facts, folder=tmp_path)


def test_manifest_adds_up(tmp_path):
  (tmp_path / 'clients.parquet').write_bytes(b'table')
  described = {'recipe': {'seed': 0}, 'schema_version': 1}
  made = manifest.build_manifest(
    described,
    _SCHEMA,
    _PLAN,
    _FACTS,
    folder=tmp_path,
    counters={'raw_examples': 9},
  )
  assert made['num_clients'] == {'participating': 2, 'unseen': 1}
  assert made['num_examples']['train'] == {'participating': 7, 'unseen': 5}
  assert made['num_held_out'] == [6, 6]
  assert made['label_histogram']['test'] == [5, 7]
  assert made['held_out_label_histogram'] == [[2, 4], [2, 4]]
  assert made['files'] == {
    'clients.parquet': records.describe_file(tmp_path / 'clients.parquet')
  }
  assert made['counters'] == {'raw_examples': 9}
  assert made['recipe'] == {'seed': 0}


@pytest.mark.parametrize('num_classes', [0, 2])
def test_manifest_reads_back(tmp_path, num_classes):
  folder = tmp_path / manifest.name_version({'schema_version': 1})
  folder.mkdir()
  histogram = [[]] if num_classes == 0 else [[1, 2]]
  facts = {
    'clients': [_shard([3], histogram)],
    'held_out': _FACTS['held_out'],
  }
  plan = _PLAN._replace(client_ids=('a',), groups=('participating',))
  made = manifest.build_manifest(
    {'schema_version': 1}, _SCHEMA, plan, facts, folder=folder
  )
  manifest.write_manifest(folder / 'manifest.json', made)
  assert integrity.read_manifest(folder) == made


def test_published_version_never_changes():
  published = {'version': 'v', 'files': 1, 'schema': 2, 'checksum': 'a'}
  manifest.check_same(published, dict(published))
  with pytest.raises(errors.DataError, match=r'different .* \(files\), and a'):
    manifest.check_same(published, published | {'files': 3, 'checksum': 'b'})
