"""Every fsync of a durable write is there, and each one is needed."""

import errno
import os

import pytest

from tests.testing import power_loss
from tff_algos.core import durable, errors


def _needed(tmp_path, prepare, function, recover):
  """Returns for each fsync of `function(folder)` whether it is missed."""

  def run(ignored_fsync):
    folder = tmp_path / str(ignored_fsync)
    folder.mkdir()
    prepare(folder)
    return power_loss.check(
      folder, lambda: function(folder), recover, ignored_fsync
    )

  return power_loss.needed_fsyncs(run, (AssertionError, OSError))


def test_file_is_replaced_by_a_whole_one(tmp_path):
  def replace(folder):
    with durable.replacing(folder / 'file') as file:
      file.write('after!')

  def recover(place, is_finished):
    allowed = ('after!', 'before')[: 2 - is_finished]
    assert (place / 'file').read_text() in allowed

  needed = _needed(
    tmp_path,
    lambda folder: (folder / 'file').write_text('before'),
    replace,
    recover,
  )
  assert needed == [True, True]


def test_a_file_system_may_have_no_fsync_of_folders(tmp_path, monkeypatch):
  (tmp_path / 'file').touch()

  def refuse(descriptor):
    raise OSError(errno.EINVAL, 'Invalid argument')

  monkeypatch.setattr(os, 'fsync', refuse)
  durable.sync(tmp_path)
  with pytest.raises(OSError, match='Invalid'):
    durable.sync(tmp_path / 'file')


def test_folder_is_made_with_its_parents(tmp_path):
  def recover(place, is_finished):
    assert not is_finished or (place / 'a' / 'b' / 'c').is_dir()

  needed = _needed(
    tmp_path,
    lambda folder: (folder / 'a').mkdir(),
    lambda folder: durable.make_folder(folder / 'a' / 'b' / 'c'),
    recover,
  )
  assert needed == [True, True]


def test_folder_is_published_whole(tmp_path):
  files = {'made/x': 'one', 'made/sub/y': 'two'}

  def prepare(folder):
    (folder / 'made' / 'sub').mkdir(parents=True)

  def publish(folder):
    for name, text in files.items():
      (folder / name).write_text(text)
    durable.publish(folder / 'made', folder / 'place')

  def recover(place, is_finished):
    assert not is_finished or (place / 'place').is_dir()
    if (place / 'place').is_dir():
      found = [(place / f'place{name[4:]}').read_text() for name in files]
      assert found == list(files.values())

  needed = _needed(tmp_path, prepare, publish, recover)
  # Two files, their two folders, and the folder that they are moved in.
  assert needed == [True] * 5


@pytest.mark.parametrize('failing', ['block', 'rename'])
def test_failure_keeps_the_file_that_was_there(tmp_path, monkeypatch, failing):
  path = tmp_path / 'file.txt'
  path.write_text('before')

  def refuse(*unused):
    raise OSError(errno.ENOSPC, 'No space left')

  if failing == 'rename':
    monkeypatch.setattr(os, 'replace', refuse)
  with pytest.raises(OSError, match='No space'):
    with durable.replacing(path) as file:
      file.write('after!')
      if failing == 'block':
        refuse()
  assert path.read_text() == 'before'
  assert list(tmp_path.iterdir()) == [path]


def test_what_stands_in_the_way_is_named(tmp_path):
  path = tmp_path / 'path'
  path.mkdir()
  with pytest.raises(errors.DataError, match=f'{path} is a folder.* Remove it'):
    with durable.replacing(path):
      pass
  path.rmdir()
  path.write_text('')
  for folder in (path, path / 'sub'):
    with pytest.raises(errors.DataError, match=f'{path} is a file.* Remove it'):
      durable.make_folder(folder)
  assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_another_process_makes_meanwhile_is_there(
  tmp_path, monkeypatch
):
  folder = tmp_path / 'folder'

  def make(path):
    path.mkdir()
    return True

  monkeypatch.setattr(os.path, 'lexists', make)
  durable.make_folder(folder)
  assert folder.is_dir()


def test_options_are_those_of_open(tmp_path):
  with durable.replacing(tmp_path / 'file', 'wb') as file:
    file.write(b'\r\n')
  assert (tmp_path / 'file').read_bytes() == b'\r\n'
  with durable.replacing(tmp_path / 'file', newline='\r\n') as file:
    file.write('\n')
  assert (tmp_path / 'file').read_bytes() == b'\r\n'
