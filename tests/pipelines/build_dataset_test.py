import json
import shutil

import numpy as np
import pytest

from pipelines import build_dataset
from pipelines.publishing import versions
from pipelines.sources import digits
from pipelines.steps import handover, write
from tests.testing import raw_data, raw_tables
from tff_algos.core import cache_folder, errors
from tff_algos.core import config as config_lib
from tff_algos.data import dataset as dataset_lib
from tff_algos.data import schema as schema_lib
from tff_algos.stores import objects as objects_lib


@pytest.fixture(name='built', scope='module')
def make_built(tmp_path_factory):
  """The digits, built once for all tests to read."""
  folder = tmp_path_factory.mktemp('built') / 'dataset'
  return build_dataset.build(raw_data.digits_config(), folder)


@pytest.fixture(name='copy')
def make_copy(built, tmp_path):
  """A copy that a test may change."""
  return shutil.copytree(built.path, tmp_path / 'dataset')


def _example_ids(dataset, client_ids, split):
  """Returns the ids of examples that clients have, from the raw records."""
  ids = []
  for client_id in client_ids:
    row = dataset._row[client_id]
    stored = dataset._read_stored(
      f'{split}-{dataset._shard[row]:05d}-of-'
      f'{dataset.manifest["num_shards"]:05d}.array_record',
      int(dataset._position[row]),
    )
    ids += zip(
      (row.tobytes() for row in stored.example_id),
      stored.source.tolist(),
      strict=True,
    )
  return ids


def _held_out_ids(dataset):
  ids = set()
  for s in range(dataset.schema.num_sources):
    stored = dataset._read_stored(
      f'held_out-{s:05d}-of-{dataset.schema.num_sources:05d}.array_record', 0
    )
    ids |= {row.tobytes() for row in stored.example_id}
  return ids


def test_preview_is_the_schema_that_is_built(built):
  schema, spec = build_dataset.preview(raw_data.digits_config())
  with dataset_lib.FederatedDataset.open(built.path) as dataset:
    assert schema == dataset.schema
    assert spec == dataset.feature_spec


def test_pixels_are_standardized(built, tmp_path):
  config = raw_data.digits_config(pixel_mean=0.25, pixel_std=0.5)
  shown = build_dataset.build(config, tmp_path)
  with (
    dataset_lib.FederatedDataset.open(built.path) as plain,
    dataset_lib.FederatedDataset.open(shown.path) as standardized,
  ):
    assert plain.client_ids == standardized.client_ids
    for source_index in (0, 1):
      x = plain.held_out(source_index).x
      found = standardized.held_out(source_index).x
      np.testing.assert_allclose(found, (x - 0.25) / 0.5, atol=1e-6)
      assert x.min() == 0 and found.min() == -0.5 and found.max() == 1.5


def test_numbers_are_not_pixels(tmp_path):
  config = raw_data.csv_config(tmp_path, pixel_mean=0.1)
  with pytest.raises(errors.ConfigError, match='pixel_mean=0.1.*8-bit images'):
    build_dataset.preview(config)


@pytest.mark.parametrize(
  ('feature', 'x_shape'),
  [
    ({'name': 'a', 'missing': 'indicator'}, (2,)),
    ({'name': 'a', 'type': 'category'}, None),
    ({'name': 'a', 'type': 'text', 'encoding': 'ids', 'length': 3}, None),
  ],
)
def test_preview_of_raw_columns(tmp_path, feature, x_shape):
  config = raw_data.with_options(
    raw_data.csv_config(tmp_path), features=(feature,), feature_columns=()
  )
  if x_shape:
    schema, _ = build_dataset.preview(config)
    assert schema.x_shape == x_shape
  else:
    with pytest.raises(errors.DataError, match='learned from the examples'):
      build_dataset.preview(config)


def test_round_trip_gives_back_the_raw_examples(tmp_path):
  raw_data.write_csv(tmp_path, 60)
  config = raw_data.csv_config(
    tmp_path, splits={'held_out_fraction': 0.2, 'test_ratio': 0.3}
  )
  result = build_dataset.build(config, tmp_path / 'dataset')
  seen = []
  with dataset_lib.FederatedDataset.open(result.path) as dataset:
    parts = [
      dataset.examples(client_id, split)
      for client_id in dataset.client_ids
      for split in schema_lib.SPLITS
    ]
    parts.append(dataset.held_out(0))
    for part in parts:
      for (a, b), y in zip(part.x, part.y, strict=True):
        np.testing.assert_allclose(b, a / 7, rtol=1e-6)
        assert y == a % 2
        seen.append(int(a))
  assert len(seen) == len(set(seen))  # Nothing is dealt twice.
  assert 50 <= len(seen) <= 60  # Equal sizes leave a remainder.


def test_splits_are_disjoint_in_every_rotation(built):
  with dataset_lib.FederatedDataset.open(built.path) as dataset:
    everyone = dataset.client_ids + dataset.unseen_client_ids
    ids = {
      split: _example_ids(dataset, everyone, split)
      for split in schema_lib.SPLITS
    }
    images = {split: {i for i, _ in pairs} for split, pairs in ids.items()}
    images['held_out'] = _held_out_ids(dataset)
    for split in schema_lib.SPLITS:
      # Without replacement: an image once at most in each distribution.
      assert len(ids[split]) == len(set(ids[split])) > 0
    names = list(images)
    for i, first in enumerate(names):
      for second in names[i + 1 :]:
        assert not images[first] & images[second]


def test_official_test_split_is_held_out(tmp_path):
  arrays = raw_data.write_mnist_like(tmp_path, 50, 10)
  # An image of the test split is in the training split as well.
  train = arrays['train-images-idx3-ubyte']
  train[3] = arrays['t10k-images-idx3-ubyte'][5]
  raw_data.write_idx(tmp_path / 'train-images-idx3-ubyte', train)
  config = raw_data.digits_config(
    source={'name': 'idx', 'options': {'folder': str(tmp_path)}},
    sizes={'law': 'equal'},
    splits={},
  )
  result = build_dataset.build(config, tmp_path / 'dataset')
  assert result.manifest['num_held_out'] == [10, 10]
  assert result.manifest['counters']['left_out_copies_of_test_examples'] == 1
  told = '60 read, 0 malformed, 1 left out as copies of test examples'
  assert told in build_dataset.summarize(result)
  with dataset_lib.FederatedDataset.open(result.path) as dataset:
    np.testing.assert_array_equal(
      np.sort(dataset.held_out(0).y),
      np.sort(arrays['t10k-labels-idx1-ubyte']),
    )
    ids = _example_ids(dataset, dataset.client_ids, 'train')
    assert not {i for i, _ in ids} & _held_out_ids(dataset)


def test_synthetic_regressions(tmp_path):
  config = raw_data.digits_config(
    source={
      'name': 'linear_regression',
      'options': {
        'num_examples_per_source': 400,
        'num_held_out_per_source': 200,
        'separation': 165.0,
      },
    },
    distributions={'kind': 'native'},
    splits={},
  )
  result = build_dataset.build(config, tmp_path / 'dataset')
  thetas = np.array(result.manifest['source_facts']['thetas'])
  with dataset_lib.FederatedDataset.open(result.path) as dataset:
    for s in range(2):
      held_out = dataset.held_out(s)
      assert held_out.num_examples == 200
      residual = held_out.x @ thetas[s] - held_out.y
      # 200 squares of N(0, 1): mean 1, 5 deviations are 0.5.
      assert abs(np.mean(residual**2) - 1) < 0.5
    for client_id in dataset.client_ids:
      train = dataset.examples(client_id, 'train')
      predicted = np.sum(train.x * thetas[train.source], axis=1)
      assert np.all(np.abs(predicted - train.y) < 6)
      assert train.y.dtype == np.float32


def test_config_that_never_can_be_met_reads_nothing(tmp_path, monkeypatch):
  def read(*unused):
    raise AssertionError('read')

  monkeypatch.setattr(digits.Digits, 'read', read)
  config = raw_data.digits_config(
    partition={'law': 'linear', 'num_clients': 3}, distributions={}
  )
  with pytest.raises(errors.ConfigError, match='mixes exactly 2'):
    build_dataset.build(config, tmp_path)
  assert not list(tmp_path.iterdir())


def test_client_without_examples_is_legal(tmp_path):
  config = raw_data.digits_config(
    sizes={'law': 'uniform', 'minimum': 0, 'maximum': 0}
  )
  result = build_dataset.build(config, tmp_path / 'dataset')
  with dataset_lib.FederatedDataset.open(result.path) as dataset:
    examples = dataset.examples('client_00000', 'train')
    assert examples.x.shape == (0, 8, 8, 1)
    assert examples.y.shape == examples.source.shape == (0,)
    assert not dataset.num_examples('train').any()


def test_dead_letters(tmp_path):
  bad = ('?,1,no,ann', '1,2,maybe,ann', 'nan,2,no,ann', '1')
  raw_data.write_csv(tmp_path, 60, bad)
  with pytest.raises(
    errors.DataError,
    match=r'4 of 64 raw examples are malformed, allowed .* 0\. Most frequent: '
    r"column 'a': not a finite number \(2\).* The first is line 62 of "
    r'table\.csv\..*The dead letters are in .*quarantine/',
  ) as caught:
    build_dataset.build(raw_data.csv_config(tmp_path), tmp_path / 'dataset')
  (refused,) = (tmp_path / 'dataset').rglob('*.jsonl')
  assert str(refused) in str(caught.value)
  config = raw_data.csv_config(tmp_path, max_dead_letter_fraction=0.1)
  result = build_dataset.build(config, tmp_path / 'dataset')
  assert result.manifest['counters']['dead_letters'] == 4
  (published,) = result.path.glob('versions/*/dead_letters-*.jsonl')
  assert published.read_text() == refused.read_text()
  letters = [json.loads(line) for line in refused.read_text().splitlines()]
  assert [(one['line'], one['column'], one['value']) for one in letters] == [
    (62, 'a', "'?'"),
    (63, 'y', "'maybe'"),
    (64, 'a', "'nan'"),
    (65, None, None),
  ]
  assert letters[1]['row'] == {'a': '1', 'b': '2', 'y': 'maybe', 'who': 'ann'}


def test_blank_client_id_is_a_dead_letter(tmp_path):
  raw_data.write_csv(tmp_path, 60, ('1,2,no, ', '1,2,no,'))
  natural = {'partition': {'law': 'natural'}, 'max_dead_letter_fraction': 0.05}
  config = raw_data.csv_config(tmp_path, **natural)
  result = build_dataset.build(config, tmp_path / 'dataset')
  (published,) = result.path.glob('versions/*/dead_letters-*.jsonl')
  letters = [json.loads(line) for line in published.read_text().splitlines()]
  assert [one['line'] for one in letters] == [62, 63]
  assert 'client id is missing' in letters[0]['reason']
  with dataset_lib.FederatedDataset.open(result.path) as dataset:
    assert dataset.client_ids == tuple(f'person_{i}' for i in range(4))
  # Nobody asks for clients where the partition makes its own.
  iid = raw_data.csv_config(tmp_path)
  build_dataset.build(iid, tmp_path / 'dataset')


def test_dead_letters_are_kept_when_the_partition_is_refused(tmp_path):
  raw_data.write_csv(tmp_path, 60, ('?,2,no,ann',))
  config = raw_data.csv_config(
    tmp_path,
    partition={'law': 'natural', 'num_clients': 9},
    max_dead_letter_fraction=0.5,
  )
  with pytest.raises(errors.PartitionError, match='dead letters are in'):
    build_dataset.build(config, tmp_path / 'dataset')
  (kept,) = (tmp_path / 'dataset').rglob('*.jsonl')
  assert json.loads(kept.read_text())['line'] == 62


def test_overlapping_windows_do_not_leak_between_splits_by_time(tmp_path):
  """Windows of three rows: features of adjacent rows share two."""
  rows = [f'{i},{i + 2},{("no", "yes")[i % 2]},p_{i % 2}' for i in range(40)]
  (tmp_path / 'table.csv').write_text('\n'.join(['a,b,y,who', *rows]))
  splits = {'test_ratio': 0.5, 'held_out_fraction': 0.25, 'split_by': 'time'}
  config = raw_data.csv_config(
    tmp_path,
    partition={'law': 'natural'},
    splits={**splits, 'time_gap': 2.5},
  )
  config = raw_data.with_options(config, time_column='a')
  result = build_dataset.build(config, tmp_path / 'dataset')
  assert result.manifest['counters']['left_out_by_time_gap'] == 6
  with dataset_lib.FederatedDataset.open(result.path) as dataset:
    train, test = (
      np.concatenate([dataset.examples(c, split).x for c in dataset.client_ids])
      for split in ('train', 'test')
    )
    held_out = dataset.held_out(0).x
  assert sorted(train[:, 0]) == list(range(20))
  assert sorted(test[:, 0]) == list(range(23, 30))
  assert sorted(held_out[:, 0]) == list(range(33, 40))


def test_no_examples_at_all(tmp_path):
  raw_data.write_csv(tmp_path, 0)
  with pytest.raises(errors.DataError, match='has no examples'):
    build_dataset.build(raw_data.csv_config(tmp_path), tmp_path / 'dataset')


def test_partition_that_cannot_be_met_leaves_nothing(tmp_path):
  config = raw_data.digits_config(
    sizes={'law': 'uniform', 'minimum': 500, 'maximum': 500}
  )
  with pytest.raises(errors.PartitionError, match='only .* exist. Lower'):
    build_dataset.build(config, tmp_path)
  assert not list(tmp_path.iterdir())


def test_same_recipe_is_not_built_twice(built, copy):
  first = built
  other = build_dataset.build(raw_data.digits_config(seed=4), copy)
  again = build_dataset.build(raw_data.digits_config(), copy)
  assert (first.reused, other.reused, again.reused) == (False, False, True)
  assert again.version == first.version != other.version
  assert again.manifest == first.manifest
  with dataset_lib.FederatedDataset.open(copy) as dataset:
    assert dataset.version == first.version


def test_options_of_beam_are_checked_if_nothing_is_to_be_built(built):
  flags = ['--no_such_option=3']
  with pytest.raises(errors.ConfigError, match='no_such_option'):
    build_dataset.build(raw_data.digits_config(), built.path, flags)


def test_damaged_version_is_built_again(built, copy):
  before = raw_data.file_bytes(copy)
  (shard,) = copy.glob('versions/*/train-00000*')
  shard.write_bytes(bytes(shard.stat().st_size))
  again = build_dataset.build(raw_data.digits_config(), copy)
  assert not again.reused
  assert again.version == built.version
  assert raw_data.file_bytes(copy) == before


def test_summary_names_what_there_is(built):
  text = build_dataset.summarize(built)
  for part in ('6 participating, 2 unseen', 'train', 'rotated_90', '0 malform'):
    assert part in text
  assert 'left out' not in text
  planted = {'num_clients_left_out': 3, 'num_examples_left_out': 4}
  manifest = {**built.manifest, 'planted': planted}
  text = build_dataset.summarize(built._replace(manifest=manifest))
  assert text.endswith(
    'left out by partition.options: 3 clients with 4 examples'
  )


def test_configs_of_the_manifest_build_the_same_version(built):
  recipe = built.manifest['recipe']
  again = config_lib.from_dict(type(raw_data.digits_config()), recipe)
  assert again == raw_data.digits_config()


def test_force_builds_again_and_changes_nothing(built, copy):
  before = raw_data.file_bytes(copy)
  inodes = {path.stat().st_ino for path in copy.rglob('*.array_record')}
  again = build_dataset.build(
    raw_data.digits_config(),
    copy,
    publication=versions.Publication(force=True),
  )
  assert (again.reused, again.version) == (False, built.version)
  assert raw_data.file_bytes(copy) == before
  # What is open somewhere is not replaced.
  assert inodes == {path.stat().st_ino for path in copy.rglob('*.array_record')}


def test_force_finds_out_code_that_gives_other_bytes(copy, monkeypatch):
  before = raw_data.file_bytes(copy)
  monkeypatch.setattr(write, '_WRITER_OPTIONS', 'group_size:2')
  with pytest.raises(errors.DataError, match=r'different .* \(files\)'):
    build_dataset.build(
      raw_data.digits_config(),
      copy,
      publication=versions.Publication(force=True),
    )
  assert raw_data.file_bytes(copy) == before


def test_dates_find_their_versions(tmp_path):
  def build(seed, as_of):
    return build_dataset.build(
      raw_data.digits_config(seed=seed),
      tmp_path,
      publication=versions.Publication(as_of=as_of),
    )

  monday, tuesday = build(0, '2026-11-16'), build(1, '2026-11-17')
  again = build(0, '2026-11-16')
  assert (again.reused, again.version) == (True, monday.version)
  assert not again.is_current
  for as_of, version in (
    (None, tuesday.version),
    ('2026-11-16T23:00:00', monday.version),
    ('2026-11-20', tuesday.version),
  ):
    with dataset_lib.FederatedDataset.open(tmp_path, as_of=as_of) as dataset:
      assert dataset.version == version


def test_old_versions_go_unless_they_are_open(tmp_path):
  def build(seed):
    return build_dataset.build(
      raw_data.digits_config(seed=seed),
      tmp_path,
      publication=versions.Publication(
        as_of=f'2026-11-1{seed}', keep_versions=1
      ),
    )

  first = build(0)
  with dataset_lib.FederatedDataset.open(tmp_path) as dataset:
    second = build(1)
    assert not second.removed
    assert dataset.examples(dataset.client_ids[0], 'train').num_examples
  assert build(2).removed == (first.version, second.version)
  with pytest.raises(errors.DataError, match='no longer there: .*removes old'):
    dataset_lib.FederatedDataset.open(tmp_path, as_of='2026-11-10')


def test_shard_that_an_engine_leaves_out_is_missed(tmp_path, monkeypatch):
  original = write.ShardWriter.write

  def leave_out(self, kind, index, piece):
    if (kind, index) != ('clients', 1):
      original(self, kind, index, piece)

  monkeypatch.setattr(write.ShardWriter, 'write', leave_out)
  with pytest.raises(errors.InfrastructureError, match='wrote 1 of 2 shards'):
    build_dataset.build(raw_data.digits_config(), tmp_path)
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize('is_link', [False, True])
def test_a_raw_file_that_goes_during_a_build(tmp_path, monkeypatch, is_link):
  raw_data.write_csv(tmp_path)
  config = raw_data.with_options(
    raw_data.csv_config(tmp_path), path=str(tmp_path / '*.csv')
  )
  original = handover.read_surveys

  def read_surveys(*args):
    (tmp_path / 'table.csv').unlink()
    if is_link:
      (tmp_path / 'table.csv').symlink_to('nothing')
    return original(*args)

  monkeypatch.setattr(handover, 'read_surveys', read_surveys)
  with pytest.raises(errors.InfrastructureError, match='changed during the bu'):
    build_dataset.build(config, tmp_path / 'dataset')


@pytest.mark.parametrize('change', ['arrives', 'changes', 'goes', 'shrinks'])
def test_raw_files_that_change_during_a_build(tmp_path, monkeypatch, change):
  """Else the rows of other positions would go to other clients."""
  raw_data.write_csv(tmp_path)
  config = raw_data.with_options(
    raw_data.csv_config(tmp_path), path=str(tmp_path / '*.csv')
  )
  first, table = (tmp_path / name for name in ('a.csv', 'table.csv'))
  if change == 'goes':
    first.write_text('a,b,y,who\n')
  original = handover.read_surveys

  def read_surveys(*args):
    if change == 'goes':
      first.unlink()
    elif change == 'arrives':
      first.write_text('a,b,y,who\n99,1,no,eve\n')
    else:
      rows = table.read_text().splitlines(keepends=True)
      kept = rows[:0:-1] if change == 'changes' else rows[1:30]
      table.write_text(''.join([*rows[:1], *kept]))
    return original(*args)

  changed = 'table.csv' if change in ('changes', 'shrinks') else 'a.csv'
  with monkeypatch.context() as patched:
    patched.setattr(handover, 'read_surveys', read_surveys)
    with pytest.raises(
      errors.InfrastructureError, match=f'changed during the build: {changed}'
    ):
      build_dataset.build(config, tmp_path / 'dataset')
  assert not [*(tmp_path / 'dataset').iterdir()]
  result = build_dataset.build(config, tmp_path / 'dataset')
  number = {'arrives': 61, 'shrinks': 29}.get(change, 60)
  assert result.manifest['counters']['raw_examples'] == number


def test_steps_hand_over_in_a_store(tmp_path, monkeypatch):
  monkeypatch.setenv(cache_folder.VARIABLE, str(tmp_path / 'cache'))
  raw_tables.write(tmp_path, raw_tables.rows())
  config = raw_tables.config(tmp_path)
  build_dataset.build(config, tmp_path / 'local')
  place = objects_lib.Objects('memory://by_store')
  place.upload(tmp_path / 'table.csv', 'raw/table.csv')
  moved = raw_data.with_options(config, path=f'{place.address}/raw/table.csv')
  uploaded = []

  def upload(self, path, name, original=objects_lib.Objects.upload):
    uploaded.append(name)
    original(self, path, name)

  monkeypatch.setattr(objects_lib.Objects, 'upload', upload)
  flags = [f'--temp_location={place.address}/tmp/']
  build_dataset.build(moved, tmp_path / 'by_store', flags)
  assert {name.rpartition('-0000')[0] or name for name in uploaded} == {
    *(f'work/{name}' for name in ('survey', 'dead', 'plan', 'columns')),
    *('work/client_statistics', 'work/features.json', 'work/pieces'),
    *('work/clients', 'work/held_out'),
    *(f'version/{split}-00000-of' for split in schema_lib.SPLITS),
    'version/held_out-00000-of',
  }
  assert raw_data.file_bytes(tmp_path / 'by_store') == (
    raw_data.file_bytes(tmp_path / 'local')
  )
  assert [*place.list()] == ['raw/table.csv']
