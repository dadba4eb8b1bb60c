import numpy as np
import pytest

from pipelines import build_dataset, statistics
from pipelines.publishing import staging
from tests.testing import fake_facts, raw_data, scoring
from tff_algos.core import errors
from tff_algos.data import dataset as dataset_lib
from tff_algos.data import integrity
from tff_algos.features import spec as spec_lib
from tff_algos.reports.dataset import facts as facts_lib
from tff_algos.reports.dataset import picture_rows


def _build(path, **overrides):
  """Builds and measures a dataset; returns the folder of the version."""
  build_dataset.build(raw_data.digits_config(**overrides), path)
  folder = integrity.find_current(path)
  with staging.open_staging(path) as opened:
    statistics.measure(opened, folder)
  return folder


@pytest.fixture(name='folder', scope='module')
def make_folder(tmp_path_factory):
  return _build(tmp_path_factory.mktemp('dataset'))


def test_facts_are_those_of_the_dataset(folder):
  facts = facts_lib.read(folder)
  with dataset_lib.FederatedDataset.open_folder(folder) as dataset:
    assert facts.client_ids == dataset.client_ids + dataset.unseen_client_ids
    np.testing.assert_array_equal(facts.mixture[:6], dataset.true_mixture())
    for i, client_id in enumerate(facts.client_ids):
      train = dataset.examples(client_id, 'train')
      np.testing.assert_array_equal(
        facts.labels[i], np.bincount(train.y, minlength=10)
      )
      np.testing.assert_array_equal(
        facts.sources[i], np.bincount(train.source, minlength=2)
      )
      for split, sizes in facts.sizes.items():
        assert sizes[i] == dataset.examples(client_id, split).num_examples
    np.testing.assert_array_equal(facts.samples[1].x, dataset.held_out(1).x)
  assert facts.clusters is None
  assert facts.clients['group'] == 6 * ['participating'] + 2 * ['unseen']


def test_examples_of_a_client_stand_in_for_held_out_ones(tmp_path):
  facts = facts_lib.read(_build(tmp_path, splits={'held_out_fraction': 0.0}))
  for s, examples in enumerate(facts.samples):
    assert examples.num_examples
    assert set(examples.source.tolist()) == {s}


def test_planted_clusters_are_read_where_there_are_some(tmp_path):
  groups = ((0, 1, 2), (3, 4, 5, 6, 7, 8, 9))
  folder = _build(
    tmp_path,
    distributions={},
    sizes={},
    partition={
      'law': 'class_groups',
      'num_clients': 4,
      'num_unseen_clients': 2,
      'options': {'class_groups': groups},
    },
  )
  facts = facts_lib.read(folder)
  assert facts.clients['group'] == 4 * ['participating'] + 2 * ['unseen']
  assert facts.mixture is None
  for cluster, labels in zip(facts.clusters, facts.labels, strict=True):
    assert set(np.flatnonzero(labels)) == {*groups[cluster]}


def test_a_dataset_that_was_not_measured(tmp_path):
  build_dataset.build(raw_data.digits_config(), tmp_path)
  with pytest.raises(errors.DataError, match='is missing. Measure'):
    facts_lib.read(integrity.find_current(tmp_path))


def test_classes_and_features_have_the_names_of_the_source():
  options = {
    'train_file': 'loans.csv',
    'feature_columns': ['income', 'age'],
    'classes': ['paid', 'late'],
  }
  facts = fake_facts.make(num_classes=2, x_shape=(2,), source_options=options)
  assert facts.title == 'invented: loans.csv'
  assert facts.class_names == ('paid', 'late')
  assert facts.feature_names == ('income', 'age')
  facts = fake_facts.make(num_classes=2, x_shape=(2,))
  assert facts.title == 'invented'
  assert facts.class_names == facts.feature_names == ('0', '1')
  facts.manifest['source_facts'] = {'class_names': ['n01443537', 'n01629819']}
  assert facts.class_names == ('n01443537', 'n01629819')


def test_features_have_the_names_of_raw_columns_of_one_number_each():
  columns = spec_lib.Feature('income'), spec_lib.Feature('age')
  for count, expected in ((2, ('income', 'age')), (3, ('0', '1', '2'))):
    facts = fake_facts.make(x_shape=(count,))
    facts.manifest['features'] = spec_lib.FeatureSpec(columns).to_dict()
    assert facts.feature_names == expected


def test_names_of_the_data_come_before_the_labels_chosen():
  facts = fake_facts.make(num_classes=2, source_options={'classes': [4, 0]})
  assert facts.class_names == ('4', '0')
  facts.manifest['source_facts'] = {'class_names': ['eel', 'cat']}
  assert facts.class_names == ('eel', 'cat')


@pytest.mark.parametrize(
  ('option', 'file'),
  [('train_images', 'train-images-idx3-ubyte'), ('path', 'data/loans.csv')],
)
def test_a_source_is_titled_by_its_file(option, file):
  facts = fake_facts.make(source_options={'num_classes': 10, option: file})
  assert facts.title == f'invented: {file}'


@pytest.mark.parametrize('num_labelled', [3, 0])
def test_clients_without_labels_are_left_out(tmp_path, num_labelled):
  """They have no planted mixture, by which others are ordered."""
  noise = {'kind': 'noise', 'noise_levels': (0.0, 0.5)}
  ids = scoring.CLIENT_IDS
  scoring.build_dataset_of_known_clients(
    tmp_path, ids[num_labelled:], distributions=noise
  )
  folder = integrity.find_current(tmp_path / 'dataset')
  with staging.open_staging(tmp_path / 'dataset') as opened:
    statistics.measure(opened, folder)
  facts = facts_lib.read(folder)
  assert facts.client_ids == ids[:num_labelled]
  for columns in (facts.labels, facts.sources, facts.mixture):
    assert len(columns) == num_labelled
  rows = picture_rows.similar_side_by_side(facts)
  assert sorted(rows) == [*range(num_labelled)]
