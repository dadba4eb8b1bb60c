"""Files that change while a server runs."""

import pytest

from tff_algos.core import errors
from tff_algos.serving import watched


@pytest.fixture(name='path')
def make_path(tmp_path):
  path = tmp_path / 'number'
  path.write_text('1')
  return path


def read(path):
  try:
    return int(path.read_text())
  except (OSError, ValueError) as error:
    raise errors.UserError(f'no number: {error}') from error


def test_files_are_read_when_they_change(path):
  times = []

  def count():
    times.append(read(path))
    return times[-1]

  number = watched.Watched('number', [path], count)
  assert [number.current() for _ in range(3)] == [1, 1, 1]
  path.write_text('20')
  assert [number.current() for _ in range(3)] == [20, 20, 20]
  assert times == [1, 20]


def test_what_was_before_holds_while_they_are_damaged(path, caplog):
  number = watched.Watched('number', [path], lambda: read(path))
  path.write_text('x')
  assert [number.current() for _ in range(3)] == [1, 1, 1]
  assert caplog.text.count('The number before are used on: no number') == 1
  path.unlink()
  assert number.current() == 1
  assert 'No such file' in caplog.text
  path.write_text('30')
  assert number.current() == 30


def test_what_was_before_holds_while_the_disk_fails(path, caplog):
  number = watched.Watched('number', [path], lambda: int(path.read_text()))
  path.unlink()
  assert number.current() == 1
  assert 'number before are used on: [Errno 2] No such file' in caplog.text


def test_what_is_refused_is_tried_again(path):
  """A read may fail for another reason than the files, and succeed later."""
  is_ready = []

  def look():
    if read(path) > 1 and not is_ready:
      raise errors.UserError('not yet')
    return read(path)

  number = watched.Watched('number', [path], look)
  path.write_text('20')
  assert number.current() == 1
  is_ready.append(True)
  assert number.current() == 20


def test_damaged_from_the_start(path):
  path.write_text('x')
  with pytest.raises(errors.UserError, match='no number'):
    watched.Watched('number', [path], lambda: read(path))
