import gzip
import lzma
import os
import pathlib
from unittest import mock

import pytest

from pipelines.sources import files
from tff_algos.core import errors


@pytest.mark.parametrize(
  ('ending', 'pack'),
  [('', bytes), ('.gz', gzip.compress), ('.xz', lzma.compress)],
)
def test_file_is_found_and_unpacked(tmp_path, ending, pack):
  (tmp_path / ('data' + ending)).write_bytes(pack(b'content'))
  path = files.find(str(tmp_path), 'data')
  assert files.read_bytes(path) == b'content'


def test_missing_file_names_all_that_would_do(tmp_path):
  with pytest.raises(errors.DataError, match='data, data.gz, data.xz'):
    files.find(str(tmp_path), 'data')
  assert files.find_optional(str(tmp_path), 'data') is None


@pytest.mark.parametrize(
  ('ending', 'pack'), [('.gz', gzip.compress), ('.xz', lzma.compress)]
)
def test_cut_off_file(tmp_path, ending, pack):
  path = tmp_path / ('data' + ending)
  path.write_bytes(pack(b'content' * 100)[:-12])
  with pytest.raises(errors.DataError, match='data.* cannot be read'):
    files.read_bytes(path)


@pytest.mark.parametrize('ending', ['.gz', '.xz'])
def test_file_of_garbage(tmp_path, ending):
  path = tmp_path / ('data' + ending)
  path.write_bytes(b'neither')
  with pytest.raises(errors.DataError, match='cannot be read'):
    files.read_bytes(path)


def test_disk_that_fails():
  """A retry may succeed: it is no damaged file."""
  with pytest.raises(OSError, match='Input/output error'):
    files.read_bytes(pathlib.Path('/proc/self/mem'))


def test_text(tmp_path):
  path = tmp_path / 'data.gz'
  path.write_bytes(gzip.compress('café\r\n'.encode('latin-1')))
  assert files.read_text(path, 'latin-1') == 'café\r\n'
  with pytest.raises(errors.DataError, match='not UTF-8 text.*0xe9'):
    files.read_text(path)


def test_text_without_its_byte_order_mark(tmp_path):
  path = tmp_path / 'data.csv'
  path.write_bytes('\ufeffcity,\ufeff\r\n'.encode())
  assert files.read_text(path) == 'city,\ufeff\r\n'


def test_name_that_is_no_pattern(tmp_path):
  path = tmp_path / 'visits [2026].csv'
  path.write_text('')
  assert files.match(str(tmp_path), path.name) == [path]
  (tmp_path / 'visits 2.csv').write_text('')
  assert files.match(str(tmp_path), 'visits [2].csv') == [
    tmp_path / 'visits 2.csv'
  ]


def test_hidden_files_match_no_pattern(tmp_path):
  for name in ('a.csv', '._a.csv'):
    (tmp_path / name).write_text('')
  for pattern in ('*', '*.csv', '**.csv'):
    assert files.match(str(tmp_path), pattern) == [tmp_path / 'a.csv']


def test_a_disk_that_fails_is_no_missing_file(tmp_path, monkeypatch):
  monkeypatch.setattr(os, 'listdir', mock.Mock(side_effect=OSError(5, 'x')))
  with pytest.raises(OSError, match='Errno 5'):
    files.match(str(tmp_path), '*.csv')


def test_file_that_is_there_plain_and_compressed(tmp_path):
  for name in ('day 1.csv', 'day 2.csv', 'day 2.csv.gz'):
    (tmp_path / name).write_text('')
  assert len(files.match(str(tmp_path), '*.csv')) == 2
  words = r'day 2.csv and .*day 2.csv.gz are one file, .* pattern .\*'
  with pytest.raises(errors.DataError, match=words):
    files.match(str(tmp_path), '*')


def test_folder_in_place_of_a_file(tmp_path):
  """Such as Spark writes: a folder of parts with the name of a table."""
  (tmp_path / 'visits.parquet').mkdir()
  words = r'visits.parquet is a folder.*visits.parquet/\*.parquet'
  for open_one in (files.match, files.find):
    with pytest.raises(errors.DataError, match=words):
      open_one(str(tmp_path), 'visits.parquet')
  packed = tmp_path / 'visits.parquet.gz'
  packed.write_bytes(b'')
  assert files.find(str(tmp_path), 'visits.parquet') == packed
