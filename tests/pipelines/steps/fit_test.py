import json

import numpy as np
import pytest
import tensorflow as tf

from pipelines import build_dataset, statistics
from pipelines.publishing import staging as staging_lib
from pipelines.sources import base
from pipelines.steps import fit
from tests.testing import raw_data, raw_tables
from tff_algos.core import errors
from tff_algos.data import dataset as dataset_lib
from tff_algos.data import layout
from tff_algos.features import preprocessing


def _build(
  folder,
  table=None,
  output='dataset',
  options=None,
  pipeline_options=(),
  **more,
):
  """Builds a dataset of a table; `options` are those of its source."""
  raw_tables.write(folder, table or raw_tables.rows())
  config = raw_data.with_options(
    raw_tables.config(folder, **more), **(options or {})
  )
  return build_dataset.build(config, folder / output, pipeline_options)


@pytest.fixture(scope='module')
def built(tmp_path_factory):
  folder = tmp_path_factory.mktemp('raw')
  result = _build(folder)
  with dataset_lib.FederatedDataset.open(result.path) as dataset:
    yield folder, result, dataset


def _train_incomes(dataset, client_id):
  """Returns a client's incomes, from what the dataset stores."""
  mean, deviation = dataset.client_statistics((client_id,))
  x = dataset.examples(client_id, 'train').x
  return x[:, 2] * deviation[0] + mean[0]


def test_fitted_on_the_training_part_of_participating_clients(built):
  """Age, income and words of all others are left out of the statistics."""
  _, _, dataset = built
  spec = dataset.feature_spec
  incomes = np.concatenate(
    [_train_incomes(dataset, client_id) for client_id in dataset.client_ids]
  )
  fitted = spec.fitted['income']
  np.testing.assert_allclose(fitted['mean'], incomes.mean(), rtol=1e-5)
  np.testing.assert_allclose(fitted['variance'], incomes.var(), rtol=1e-4)
  by_income = {float(row['income']): row for row in raw_tables.rows()}
  rows = [by_income[round(float(income))] for income in incomes]
  ages = [float(row['age']) for row in rows if row['age']]
  assert len(ages) < len(rows) < len(by_income)
  np.testing.assert_allclose(spec.fitted['age']['mean'], np.mean(ages))
  np.testing.assert_allclose(spec.fitted['age']['variance'], np.var(ages))
  colors = [row['color'] for row in rows]
  ranked = sorted(set(colors), key=lambda color: (-colors.count(color), color))
  assert spec.fitted['color'] == {'vocabulary': ranked[:2]}


def test_each_client_by_its_own_training_examples(built):
  _, _, dataset = built
  for client_id in (*dataset.client_ids, *dataset.unseen_client_ids):
    incomes = dataset.examples(client_id, 'train').x[:, 2]
    np.testing.assert_allclose(incomes.mean(), 0, atol=1e-4)
    np.testing.assert_allclose(incomes.std(), 1, rtol=1e-4)
    mean, _ = dataset.client_statistics((client_id,))
    number = int(client_id.removeprefix('person_'))
    assert 1000 * (1 + number) < mean[0, 0] < 1000 * (1 + number) + 60


def test_examples_are_the_encoded_rows(built):
  """Every stored example is what the spec's encoder makes of its row."""
  _, _, dataset = built
  encoder = preprocessing.Preprocessing(dataset.feature_spec)
  for client_id in dataset.client_ids:
    mean, deviation = dataset.client_statistics((client_id,))
    rows = [one for one in raw_tables.rows() if one['who'] == client_id]
    columns = {
      'age': [float(one['age'] or 'nan') for one in rows],
      'income': [float(one['income']) for one in rows],
      **{name: [one[name] for one in rows] for name in ('color', 'note')},
      'client_mean': np.repeat(mean, len(rows), 0),
      'client_deviation': np.repeat(deviation, len(rows), 0),
    }
    encoded = encoder.model_input(
      {name: tf.constant(values) for name, values in columns.items()}
    ).numpy()
    known = {row.tobytes() for row in encoded}
    for split in ('train', 'test'):
      found = dataset.examples(client_id, split).x
      assert {row.tobytes() for row in found} <= known


def test_blocks_and_engines_change_no_byte(built, monkeypatch):
  folder, result, _ = built
  monkeypatch.setattr(base, 'BLOCK_SIZE', 7)
  again = _build(
    folder, output='again', pipeline_options=['--direct_num_workers=2']
  )
  files = {**again.manifest['files']}
  assert files == result.manifest['files']
  assert again.manifest['features']['fitted'].keys() == {
    *('age', 'income', 'color', 'note')
  }


def test_fitted_values_of_an_earlier_dataset(built, tmp_path, monkeypatch):
  folder, result, dataset = built
  other = [{**row, 'age': '99'} for row in raw_tables.rows()]
  with monkeypatch.context() as patch:
    patch.delattr(fit.column_statistics, 'add')  # Only clients are measured.
    given = _build(tmp_path, other, fitted_from=str(folder / 'dataset'))
  assert given.manifest['features'] == result.manifest['features']
  taken = fit.read_given(
    str(folder / 'dataset'), dataset.feature_spec.unfitted()
  )
  assert given.manifest['recipe']['fitted_from'] == taken.digest()
  # Statistics of clients are part of the name, where there are some.
  spec = dataset.feature_spec
  assert fit.Given(spec, {}).digest() == spec.digest() != taken.digest()
  anew = _build(tmp_path, other, output='anew')
  assert anew.manifest['features'] != result.manifest['features']
  assert anew.version != given.version


def test_nothing_is_measured_if_all_is_given(tmp_path, monkeypatch):
  features = [one for one in raw_tables.FEATURES if one['name'] != 'income']
  options = {'features': features}
  first = _build(tmp_path, options=options)
  monkeypatch.delattr(fit.MeasureBlock, 'process')
  again = _build(
    tmp_path, output='again', options=options, fitted_from=str(first.path)
  )
  assert again.version != first.version
  assert again.manifest['files'] == first.manifest['files']
  assert again.manifest['features'] == first.manifest['features']


def test_clients_are_encoded_as_models_of_the_earlier_dataset_were(
  built, tmp_path
):
  """Where new rows have other levels, also after a night without training rows.

  In the second night two clients have no label, one has one row, which does not
  train, and one is absent, which is measured anew when it returns.
  """
  folder, result, dataset = built
  third = [
    {**row, 'income': str(10 * int(row['income']))} for row in raw_tables.rows()
  ]
  second = [
    {
      **row,
      'y': '' if row['who'] in ('person_0', 'person_1') else row['y'],
      'who': 'newcomer' if row['who'] == 'person_4' else row['who'],
    }
    for i, row in enumerate(third)
    if row['who'] != 'person_2' or i == 2
  ]
  known = [f'person_{i}' for i in range(4)]
  before = folder / 'dataset'
  for table, measured in ((second, 'newcomer'), (third, 'person_4')):
    (tmp_path / measured).mkdir()
    again = _build(
      tmp_path / measured,
      table,
      fitted_from=str(before),
      keep_unlabelled=True,
      splits={'split_by': 'client', 'test_ratio': 0.25},
    )
    with dataset_lib.FederatedDataset.open(again.path) as found:
      for of_first, here in zip(
        dataset.client_statistics(known),
        found.client_statistics(known),
        strict=True,
      ):
        np.testing.assert_array_equal(here, of_first)
      mean, _ = found.client_statistics((measured,))
      assert 50_000 < mean[0, 0] < 51_000
      if measured == 'newcomer':
        assert found.unlabelled_client_ids == ('person_0', 'person_1')
        assert not found.examples('person_2', 'train').num_examples
    assert again.manifest['features'] == result.manifest['features']
    before = again.path


def test_fitted_values_of_other_features_are_refused(built, tmp_path):
  folder, *_ = built
  fitted_from = str(folder / 'dataset')
  raw_data.write_csv(tmp_path)
  config = raw_data.csv_config(tmp_path, fitted_from=fitted_from)
  with pytest.raises(errors.ConfigError, match='no features to be fitted'):
    build_dataset.build(config, tmp_path / 'dataset')
  options = {'features': raw_tables.FEATURES[1:]}
  with pytest.raises(errors.ConfigError, match='other features'):
    _build(tmp_path, options=options, fitted_from=fitted_from)
  options = {'classes': ('no', 'yes', 'maybe')}
  with pytest.raises(
    errors.ConfigError, match=r'classes.*source\.options\.classes sets'
  ):
    _build(tmp_path, options=options, fitted_from=fitted_from)


def test_rows_that_cannot_be_encoded_are_dead_letters(tmp_path):
  table = raw_tables.rows()
  table[3] = {**table[3], 'age': 'old'}
  table[8] = {**table[8], 'income': '?'}
  result = _build(tmp_path, table, max_dead_letter_fraction=0.1)
  assert result.manifest['counters']['dead_letters'] == 2
  (path,) = (tmp_path / 'dataset').glob('versions/*/dead_letters-*')
  letters = path.read_text()
  assert "'old'" in letters and 'not a number' in letters
  assert 'missing; allow it' in letters


def test_unlabelled_clients_are_kept_to_be_scored(tmp_path):
  table = raw_tables.rows()
  for i, row in enumerate(table):
    if row['who'] in ('person_0', 'person_3') or i == 11:
      row['y'] = ''
  result = _build(tmp_path, table, keep_unlabelled=True)
  assert result.manifest['counters']['left_out_without_label'] == 1
  assert 'unlabelled' in result.manifest['num_clients']
  with dataset_lib.FederatedDataset.open(result.path) as dataset:
    assert dataset.unlabelled_client_ids == ('person_0', 'person_3')
    assert len(dataset.client_ids) == 2
    assert dataset.num_examples('test', 'unlabelled').tolist() == [12, 12]
    assert dataset.num_examples('train', 'unlabelled').tolist() == [0, 0]
    assert set(dataset.examples('person_0', 'test').y.tolist()) == {-1}
  assert '2 without labels' in build_dataset.summarize(result)
  with staging_lib.open_staging(result.path) as staging:
    folder = layout.version_folder(result.path, result.version)
    statistics.measure(staging, folder)
  totals = json.loads((folder / 'statistics.json').read_text())['totals']
  (counted,) = totals['source'].values()
  # The labelled rows that are not held out.
  assert counted['num_examples'] == 60 - 24 - 1 - 4
  assert result.manifest['num_held_out'] == [4]


@pytest.mark.parametrize(
  ('options', 'name'),
  [({}, "'no'"), ({'features': (), 'feature_columns': ('income',)}, '0')],
)
def test_one_class_alone_is_refused(tmp_path, options, name):
  table = [{**row, 'y': 'no'} for row in raw_tables.rows()]
  with pytest.raises(
    errors.DataError, match=f'60 examples are of one class, {name}:'
  ):
    _build(tmp_path, table, options=options)


def test_a_dataset_without_any_label(built, tmp_path):
  folder, *_ = built
  result = _build(
    tmp_path,
    options={'label_column': ''},
    partition={'law': 'natural'},
    fitted_from=str(folder / 'dataset'),
    keep_unlabelled=True,
  )
  assert result.manifest['num_clients']['unlabelled'] == 5
  assert result.manifest['num_clients']['participating'] == 0
