import json

import pyarrow
import pytest
from pyarrow import parquet

from tff_algos.core import errors, records
from tff_algos.data import layout, statistics

_MANIFEST = {'checksum': 'abc'}


@pytest.fixture(name='folder')
def make_folder(tmp_path):
  path = tmp_path / layout.CLIENT_STATISTICS
  parquet.write_table(pyarrow.table({'client_id': ['ann', 'bob']}), path)
  _write(
    tmp_path,
    {
      'statistics_version': statistics.STATISTICS_VERSION,
      'manifest_checksum': 'abc',
      'files': {path.name: records.describe_file(path)},
      'totals': {'source': {'a': {'num_examples': 3}}},
    },
  )
  return tmp_path


def _write(folder, content):
  (folder / layout.STATISTICS).write_text(json.dumps(content))


def _change(folder, **entries):
  content = json.loads((folder / layout.STATISTICS).read_text())
  _write(folder, content | entries)


def test_read(folder):
  found = statistics.read(folder, _MANIFEST)
  assert found.totals['source']['a']['num_examples'] == 3
  assert found.clients['client_id'].to_pylist() == ['ann', 'bob']
  assert found.sha256 == records.file_sha256(folder / layout.STATISTICS)


def test_missing(tmp_path):
  with pytest.raises(errors.DataError, match='is missing. Measure .*card'):
    statistics.read(tmp_path, _MANIFEST)


@pytest.mark.parametrize('text', ['', '[]', '{}', '{"totals": 3'])
def test_not_statistics(folder, text):
  (folder / layout.STATISTICS).write_text(text)
  with pytest.raises(errors.DataError, match='is damaged'):
    statistics.read(folder, _MANIFEST)


def test_a_folder_is_no_statistics(tmp_path):
  (tmp_path / layout.STATISTICS).mkdir()
  with pytest.raises(errors.DataError, match='cannot be read: Is a dir'):
    statistics.read(tmp_path, _MANIFEST)


@pytest.mark.parametrize(
  'entries', [{'statistics_version': 999}, {'manifest_checksum': 'other'}]
)
def test_of_something_else(folder, entries):
  _change(folder, **entries)
  with pytest.raises(errors.DataError, match='another version'):
    statistics.read(folder, _MANIFEST)


def test_damaged_table(folder):
  (folder / layout.CLIENT_STATISTICS).write_bytes(b'PAR1')
  with pytest.raises(errors.DataError, match='is damaged: .*binaries.card'):
    statistics.read(folder, _MANIFEST)
  (folder / layout.CLIENT_STATISTICS).unlink()
  with pytest.raises(errors.DataError, match='parquet is missing'):
    statistics.read(folder, _MANIFEST)
