import dataclasses

import pytest

from pipelines.steps import raw_copies
from tests.testing import raw_data
from tff_algos.core import cache_folder, errors
from tff_algos.stores import objects as objects_lib

_PLACE = 'memory://raw_copies_test/tables'


def _at(config, **places):
  options = {**config.source.options, **places}
  source = dataclasses.replace(config.source, options=options)
  return dataclasses.replace(config, source=source)


def test_tables_of_one_folder_are_one_copy(tmp_path, monkeypatch):
  monkeypatch.setenv(cache_folder.VARIABLE, str(tmp_path / 'cache'))
  objects_lib.Objects(_PLACE).write('a.csv', b'1')
  objects_lib.Objects(_PLACE).write('test.csv', b'2')
  config = raw_data.csv_config(tmp_path)
  places = {'path': f'{_PLACE}/*.csv', 'test_path': f'{_PLACE}/test.csv'}
  with raw_copies.held(_at(config, **places)) as (local, (copy,)):
    assert copy.address == _PLACE and (copy.folder / 'a.csv').exists()
    assert local == _at(
      config,
      path=str(copy.folder / '*.csv'),
      test_path=str(copy.folder / 'test.csv'),
    )


def test_raw_data_of_this_machine_are_not_copied(tmp_path):
  config = raw_data.csv_config(tmp_path)
  with raw_copies.held(config) as held:
    assert held == (config, ())


def test_an_address_without_data(tmp_path, monkeypatch):
  monkeypatch.setenv(cache_folder.VARIABLE, str(tmp_path))
  config = _at(raw_data.csv_config(tmp_path), path='memory://nothing/a.csv')
  with pytest.raises(errors.DataError, match='nothing is at memory://nothing'):
    with raw_copies.held(config):
      pass
