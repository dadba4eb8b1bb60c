import pytest

from pipelines.steps import raw_copies
from tests.testing import raw_data
from tff_algos.core import cache_folder, errors
from tff_algos.stores import objects as objects_lib
from tff_algos.stores import plain_copy

_PLACE = 'memory://raw_copies_test/tables'


def test_tables_of_one_folder_are_one_copy(tmp_path, monkeypatch):
  monkeypatch.setenv(cache_folder.VARIABLE, str(tmp_path / 'cache'))
  objects_lib.Objects(_PLACE).write('a.csv', b'1')
  objects_lib.Objects(_PLACE).write('test.csv', b'2')
  objects_lib.Objects(_PLACE).write('production/HEAD.json', b'{}')
  config = raw_data.csv_config(tmp_path)
  places = {'path': f'{_PLACE}/*.csv', 'test_path': f'{_PLACE}/test.csv'}
  given = raw_data.with_options(config, **places)
  with raw_copies.held(given) as (local, (copy,)):
    assert copy.address == _PLACE
    assert {path.name for path in copy.folder.iterdir()} == {
      'a.csv',
      'test.csv',
    }
    # Another program writes in an inner folder.
    objects_lib.Objects(_PLACE).write('production/HEAD.json', b'{"lease": 1}')
    with plain_copy.held_elsewhere(copy):
      pass
    assert local == raw_data.with_options(
      config,
      path=str(copy.folder / '*.csv'),
      test_path=str(copy.folder / 'test.csv'),
    )


def test_a_folder_is_copied_with_its_inner_folders(tmp_path, monkeypatch):
  monkeypatch.setenv(cache_folder.VARIABLE, str(tmp_path / 'cache'))
  objects_lib.Objects(f'{_PLACE}/images').write('train/cat/1.png', b'1')
  source = {'name': 'idx', 'options': {'folder': f'{_PLACE}/images'}}
  config = raw_data.digits_config(source=source)
  with raw_copies.held(config) as (_, (copy,)):
    assert (copy.folder / 'train/cat/1.png').exists()


def test_raw_data_of_this_machine_are_not_copied(tmp_path):
  config = raw_data.csv_config(tmp_path)
  with raw_copies.held(config) as held:
    assert held == (config, ())


def test_an_address_without_data(tmp_path, monkeypatch):
  monkeypatch.setenv(cache_folder.VARIABLE, str(tmp_path))
  config = raw_data.with_options(
    raw_data.csv_config(tmp_path), path='memory://nothing/a.csv'
  )
  with pytest.raises(errors.DataError, match='nothing is at memory://nothing'):
    with raw_copies.held(config):
      pass
