import concurrent.futures

import pytest

from tff_algos.core import errors
from tff_algos.data import layout


def test_processes_write_an_address_at_once(tmp_path):
  path = tmp_path / 'dataset'
  with concurrent.futures.ThreadPoolExecutor(8) as pool:
    writes = [
      pool.submit(layout.write_address, path, 's3://bucket/my run')
      for _ in range(100)
    ]
    while not all(write.done() for write in writes):
      assert layout.read_address(path) in (None, 's3://bucket/my run')
  assert not [write.exception() for write in writes if write.exception()]
  assert layout.read_address(path) == 's3://bucket/my run'
  assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
  'content', ['', 'client,x\na,1\n', 's3://a,b\n1,2', 'x' * 9999]
)
def test_other_files_hold_no_address(tmp_path, content):
  (tmp_path / 'table.csv').write_text(content)
  assert layout.read_address(tmp_path / 'table.csv') is None
  assert layout.read_address(tmp_path) is None


def test_a_pointer_names_a_version(tmp_path):
  path = tmp_path / layout.CURRENT
  with pytest.raises(FileNotFoundError):
    layout.read_pointer(path)
  path.write_text('v1\n')
  assert layout.read_pointer(path) == 'v1'


@pytest.mark.parametrize('content', [b'', b' \n', b'\xff\xfe', None])
def test_a_damaged_pointer_is_named(tmp_path, content):
  path = tmp_path / layout.CURRENT
  if content is None:
    path.mkdir()
  else:
    path.write_bytes(content)
  with pytest.raises(errors.DataError, match=f'{path} is damaged: .* Write it'):
    layout.read_pointer(path)
