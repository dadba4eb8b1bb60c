"""Datasets of experiments, and their cards."""

import pytest

from tests.testing import raw_data, unrendered
from tff_algos.core import cache_folder, errors
from tff_algos.data import layout
from tff_algos.experiments import datasets
from tff_algos.stores import objects as objects_lib


@pytest.fixture(autouse=True, scope='module')
def cheap():
  with unrendered.blank_pictures():
    yield


def test_raw_data_in_a_store_give_the_same_dataset(tmp_path, monkeypatch):
  monkeypatch.setenv(cache_folder.VARIABLE, str(tmp_path / 'cache'))
  raw_data.write_csv(tmp_path)
  local = raw_data.csv_config(tmp_path)
  place = 'memory://bucket/tables'
  objects_lib.Objects(place).upload(tmp_path / 'table.csv', 'table.csv')
  other = raw_data.with_options(local, path=f'{place}/table.csv')
  for name, config in (('local', local), ('other', other)):
    datasets.build(config, tmp_path / name)
  assert raw_data.file_bytes(tmp_path / 'local') == (
    raw_data.file_bytes(tmp_path / 'other')
  )


def test_a_dataset_that_is_elsewhere_is_not_built_here(tmp_path):
  layout.write_address(tmp_path / 'dataset', 's3://bucket/digits')
  for step in (
    lambda: datasets.build(raw_data.digits_config(), tmp_path),
    lambda: datasets.write_card(tmp_path),
  ):
    with pytest.raises(
      errors.ConfigError, match='take --workdir=s3://bucket/d'
    ):
      step()


@pytest.fixture(name='workdir', scope='module')
def make_workdir(cheap, tmp_path_factory):
  folder = tmp_path_factory.mktemp('run')
  datasets.build(raw_data.digits_config(), folder)
  datasets.write_card(folder)
  return folder


def _card(workdir):
  (path,) = workdir.glob(f'dataset/versions/*/{layout.CARD}')
  return path


@pytest.mark.parametrize('name', [layout.CARD, layout.STATISTICS])
def test_what_is_missing_is_made_again_with_the_same_bytes(workdir, name):
  before = raw_data.file_bytes(workdir)
  _card(workdir).with_name(name).unlink()
  datasets.write_card(workdir)
  assert raw_data.file_bytes(workdir) == before


def test_a_card_of_other_statistics_is_drawn_again(workdir):
  before = raw_data.file_bytes(workdir)
  _card(workdir).write_text('<!-- card 0 of statistics 123 -->')
  datasets.write_card(workdir)
  assert raw_data.file_bytes(workdir) == before


def test_force_makes_it_again_with_the_same_bytes(workdir):
  before = raw_data.file_bytes(workdir)
  inode = _card(workdir).stat().st_ino
  datasets.write_card(workdir, force=True)
  assert raw_data.file_bytes(workdir) == before
  assert _card(workdir).stat().st_ino != inode


def test_a_version_that_is_not_the_current_one(tmp_path):
  datasets.build(raw_data.digits_config(), tmp_path)
  version = (tmp_path / 'dataset' / layout.CURRENT).read_text().strip()
  datasets.build(raw_data.digits_config(seed=4), tmp_path)
  path = datasets.write_card(tmp_path, version=version)
  assert path.parent.name == version
  assert version in path.read_text()
  assert _card(tmp_path) == path  # There is no other.


def test_a_workdir_that_is_linked_to_a_version(workdir, tmp_path):
  """As the run of a night: its card is written, and no version built there."""
  card = _card(workdir)
  (tmp_path / 'dataset').symlink_to(card.parent)
  before = raw_data.file_bytes(workdir)
  card.unlink()
  assert datasets.write_card(tmp_path).samefile(card)
  for _ in range(2):  # The version may be there, or removed since.
    with pytest.raises(errors.ConfigError, match='dataset is for one version'):
      datasets.build(raw_data.digits_config(seed=4), tmp_path)
    (tmp_path / 'dataset').unlink()
    (tmp_path / 'dataset').symlink_to(card.parent.with_name('removed'))
  assert raw_data.file_bytes(workdir) == before


def test_a_version_that_was_removed(workdir):
  with pytest.raises(errors.DataError, match="has no version 'no'; it was rem"):
    datasets.write_card(workdir, version='no')


def test_no_dataset(tmp_path):
  with pytest.raises(errors.DataError, match='Make one with binaries.preproc'):
    datasets.write_card(tmp_path)
  assert not list(tmp_path.iterdir())
