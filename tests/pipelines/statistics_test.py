"""The statistics of a version against NumPy, whatever Beam runs them on."""

import json
import shutil
import tempfile

import numpy as np
import pytest

from pipelines import build_dataset, statistics
from pipelines.engines import failures
from pipelines.publishing import published, staging
from tests.testing import raw_data
from tff_algos.core import errors
from tff_algos.data import dataset as dataset_lib
from tff_algos.data import integrity, layout
from tff_algos.data import schema as schema_lib
from tff_algos.data import statistics as statistics_lib

_SYNTHETIC = {
  'source': {
    'name': 'linear_regression',
    'options': {
      'num_examples_per_source': 400,
      'num_held_out_per_source': 50,
    },
  },
  'distributions': {'kind': 'native'},
  'num_shards': 3,
}


def _measure(path, beam_options=(), **options):
  with staging.open_staging(path) as opened:
    folder = integrity.find_current(path)
    is_kept = statistics.measure(opened, folder, beam_options, **options)
  return folder, is_kept


@pytest.fixture(name='built', scope='module')
def make_built(tmp_path_factory):
  """Kind -> a dataset that is not measured, for all tests to copy."""
  paths = {}
  for kind, overrides in (('digits', {}), ('synthetic', _SYNTHETIC)):
    paths[kind] = tmp_path_factory.mktemp('built') / kind
    build_dataset.build(raw_data.digits_config(**overrides), paths[kind])
  return paths


@pytest.fixture(name='copy')
def make_copy(built, tmp_path):
  """A copy of the digits that a test may change."""
  return shutil.copytree(built['digits'], tmp_path / 'dataset')


@pytest.fixture(name='measured', scope='module', params=['digits', 'synthetic'])
def make_measured(request, built, tmp_path_factory):
  path = tmp_path_factory.mktemp('measured') / request.param
  shutil.copytree(built[request.param], path)
  before = raw_data.file_bytes(path)
  folder, is_kept = _measure(path)
  assert not is_kept
  return path, before, folder


def _files(folder):
  return {
    name: (folder / name).read_bytes()
    for name in (layout.STATISTICS, layout.CLIENT_STATISTICS)
  }


def _everyone(dataset):
  return {
    'participating': dataset.client_ids,
    'unseen': dataset.unseen_client_ids,
  }


def _concatenate(parts):
  return schema_lib.Examples(
    *(np.concatenate(columns) for columns in zip(*parts, strict=True))
  )


def _check(total, examples, schema):
  assert total['num_examples'] == examples.num_examples
  sources = np.bincount(examples.source, minlength=schema.num_sources)
  assert total['source_counts'] == sources.tolist()
  if schema.num_classes:
    labels = np.bincount(examples.y, minlength=schema.num_classes)
    assert total['label_counts'] == labels.tolist()
  columns = {'x': examples.x}
  if not schema.num_classes:
    columns['y'] = examples.y
  for name, values in columns.items():
    for moment in ('mean', 'std', 'min', 'max'):
      np.testing.assert_allclose(
        total[name][moment],
        getattr(np, moment)(values.astype(np.float64)),
        rtol=1e-12,
        atol=1e-15,
      )


def test_totals_equal_numpy(measured):
  path, _, folder = measured
  totals = json.loads((folder / layout.STATISTICS).read_text())['totals']
  with dataset_lib.FederatedDataset.open(path) as dataset:
    schema = dataset.schema
    parts = []
    for group, client_ids in _everyone(dataset).items():
      for split in schema_lib.SPLITS:
        examples = _concatenate(
          [dataset.examples(client_id, split) for client_id in client_ids]
        )
        _check(totals[group][split], examples, schema)
        parts.append(examples)
    everything = _concatenate(parts)
    for s, name in enumerate(dataset.source_names):
      _check(totals[layout.HELD_OUT][name], dataset.held_out(s), schema)
      rows = everything.source == s
      mine = schema_lib.Examples(*(column[rows] for column in everything))
      total = totals[statistics_lib.SOURCE][name]
      _check(total, mine, schema)
      np.testing.assert_allclose(
        total['features']['mean'],
        mine.x.astype(np.float64).mean(axis=0).ravel(),
        rtol=1e-12,
        atol=1e-15,
      )


def test_client_table_equals_numpy(measured):
  path, _, folder = measured
  with dataset_lib.FederatedDataset.open(path) as dataset:
    found = statistics_lib.read(folder, dataset.manifest)
    rows = found.clients.to_pylist()
    schema = dataset.schema
    assert [row['client_id'] for row in rows] == [
      client_id for ids in _everyone(dataset).values() for client_id in ids
    ]
    for row in rows:
      parts = []
      for split in schema_lib.SPLITS:
        examples = dataset.examples(row['client_id'], split)
        counts = np.bincount(examples.source, minlength=schema.num_sources)
        assert row[f'{split}_source_counts'] == counts.tolist()
        if schema.num_classes:
          counts = np.bincount(examples.y, minlength=schema.num_classes)
          assert row[f'{split}_label_counts'] == counts.tolist()
        parts.append(examples)
      x = _concatenate(parts).x.astype(np.float64)
      np.testing.assert_allclose(row['x_mean'], x.mean(), rtol=1e-11)
      np.testing.assert_allclose(row['x_std'], x.std(), rtol=1e-11)
      assert (row['x_min'], row['x_max']) == (x.min(), x.max())


def test_pieces_change_no_count(measured, monkeypatch):
  """Many pieces a shard: sums are in another order, counts are not."""
  path, _, folder = measured
  before = json.loads((folder / layout.STATISTICS).read_text())['totals']
  kept = _files(folder)
  monkeypatch.setattr(statistics, '_PIECE_VALUES', 300)
  _measure(path, force=True)
  after = json.loads((folder / layout.STATISTICS).read_text())['totals']
  for kind, by_name in before.items():
    for name, total in by_name.items():
      other = after[kind][name]
      assert other['label_counts'] == total['label_counts']
      assert other['num_examples'] == total['num_examples']
      np.testing.assert_allclose(
        other['x']['mean'], total['x']['mean'], rtol=1e-12
      )
  for name, content in kept.items():
    (folder / name).write_bytes(content)


def test_the_version_is_not_touched(measured):
  path, before, _ = measured
  after = raw_data.file_bytes(path)
  assert {name: after[name] for name in before} == before
  assert {name.rpartition('/')[2] for name in after.keys() - before.keys()} == {
    layout.STATISTICS,
    layout.CLIENT_STATISTICS,
  }
  dataset_lib.FederatedDataset.open(path).close()


def test_threads_change_no_byte(measured):
  path, _, folder = measured
  before = _files(folder)
  options = ['--direct_num_workers=2', '--direct_running_mode=multi_threading']
  assert not _measure(path, options, force=True)[1]
  assert _files(folder) == before


def test_dask_changes_no_byte(measured, monkeypatch, tmp_path):
  distributed = pytest.importorskip('distributed')
  # Dask leaves a folder where temporary files go.
  monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path))
  path, _, folder = measured
  before = _files(folder)
  with distributed.LocalCluster(
    n_workers=1, processes=False, dashboard_address=None
  ) as cluster:
    address = f'--dask_client_address={cluster.scheduler_address}'
    assert not _measure(path, ['--runner=DaskRunner', address], force=True)[1]
  assert _files(folder) == before


@pytest.mark.verify
def test_processes_change_no_byte(built, tmp_path):
  shutil.copytree(built['synthetic'], tmp_path, dirs_exist_ok=True)
  before = _files(_measure(tmp_path)[0])
  options = ['--direct_num_workers=2', '--direct_running_mode=multi_processing']
  assert _files(_measure(tmp_path, options, force=True)[0]) == before


def test_nothing_is_measured_twice(measured):
  path, _, folder = measured
  before = (folder / layout.STATISTICS).stat().st_mtime_ns
  assert _measure(path)[1]
  assert (folder / layout.STATISTICS).stat().st_mtime_ns == before


@pytest.mark.parametrize('name', [layout.STATISTICS, layout.CLIENT_STATISTICS])
def test_damaged_statistics_are_made_again(measured, name):
  path, _, folder = measured
  before = _files(folder)
  (folder / name).write_bytes(b'{}')
  assert not _measure(path)[1]
  assert _files(folder) == before


def test_failure_leaves_the_old_statistics_and_nothing_else(
  measured, monkeypatch
):
  path, _, _ = measured
  before = raw_data.file_bytes(path)

  def crash(self, source):
    raise RuntimeError('power cut')
    yield

  monkeypatch.setattr(statistics.MeasureHeldOut, 'process', crash)
  with pytest.raises(RuntimeError, match='power cut'):
    _measure(path, force=True)
  assert raw_data.file_bytes(path) == before
  assert not list(path.glob('.staging-*'))


def test_damaged_dataset_is_refused(copy):
  (shard,) = copy.glob('versions/*/train-00000*')
  shard.write_bytes(bytes(shard.stat().st_size))
  with pytest.raises(errors.DataError, match='is damaged'):
    _measure(copy)


@pytest.mark.parametrize('name', [layout.STATISTICS, layout.CLIENT_STATISTICS])
def test_a_folder_in_place_of_a_file_is_refused(copy, name):
  (integrity.find_current(copy) / name).mkdir()
  before = raw_data.file_bytes(copy)
  with pytest.raises(errors.DataError, match='where a file belongs'):
    _measure(copy)
  assert raw_data.file_bytes(copy) == before


def test_clients_without_examples(tmp_path):
  config = raw_data.digits_config(
    sizes={'law': 'uniform', 'minimum': 0, 'maximum': 0}
  )
  build_dataset.build(config, tmp_path)
  folder = _measure(tmp_path)[0]
  totals = json.loads((folder / layout.STATISTICS).read_text())['totals']
  assert totals['participating']['train']['num_examples'] == 0
  assert totals['participating']['train']['x'] is None


@pytest.mark.parametrize(
  ('step', 'words'),
  [
    (statistics.MeasureShard, 'of participating test, '),
    (statistics.MeasureHeldOut, 'of held_out upright, 0 of '),
  ],
)
def test_an_engine_that_loses_examples_is_found_out(
  copy, monkeypatch, step, words
):
  before = raw_data.file_bytes(copy)
  original = step.process

  def lose(self, number):
    if number:
      yield from original(self, number)

  monkeypatch.setattr(step, 'process', lose)
  with pytest.raises(
    errors.InfrastructureError, match=f'lost examples: {words}'
  ):
    _measure(copy)
  assert raw_data.file_bytes(copy) == before


def test_damage_that_a_worker_finds_passes_through_any_engine(copy):
  folder = integrity.find_current(copy)
  for path in folder.glob('*.array_record'):
    path.write_bytes(bytes(path.stat().st_size))
  reader = published.Reader(folder)
  for step in (
    statistics.MeasureShard(reader, None),
    statistics.MeasureHeldOut(reader, None),
  ):
    with pytest.raises(failures.StepError) as caught:
      list(step.process(0))
    found = failures.find(RuntimeError(str(caught.value)))
    assert isinstance(found, errors.DataError)
    assert 'is damaged' in str(found)
