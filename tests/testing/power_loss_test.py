"""The states of a power loss, of writers that are known to be right or wrong."""

import os

import pytest

from tests.testing import power_loss


def _sync(path):
  descriptor = os.open(path, os.O_RDONLY)
  os.fsync(descriptor)
  os.close(descriptor)


def _replace(folder, *, syncs_data=True, syncs_name=True):
  """Puts a new version of a file in the place of the old one."""
  (folder / 'new').write_bytes(b'after!')
  if syncs_data:
    _sync(folder / 'new')
  os.replace(folder / 'new', folder / 'file')
  if syncs_name:
    _sync(folder)


def _states(folder, function):
  moments, _ = power_loss.record(folder, function)
  return list(power_loss.states(moments))


def _contents(states, name='file'):
  return {state.tree.get(name) for state in states}


@pytest.fixture
def folder(tmp_path):
  folder = tmp_path / 'folder'
  folder.mkdir()
  (folder / 'file').write_bytes(b'before')
  return folder


def test_file_that_is_replaced_with_care_is_old_or_new(folder):
  states = _states(folder, lambda: _replace(folder))
  assert _contents(states) == {b'before', b'after!'}
  # Before the fsync the new file may be there without its data.
  assert {b'', b'aft', b'after!', None} <= _contents(states, 'new')
  ends = [state for state in states if state.is_finished]
  assert [state.tree for state in ends] == [{'file': b'after!'}]


def test_rename_without_fsync_of_the_data_may_leave_an_empty_file(folder):
  states = _states(folder, lambda: _replace(folder, syncs_data=False))
  assert _contents(states) == {b'before', b'after!', b'', b'aft'}


def test_rename_without_fsync_of_the_folder_may_be_lost_afterwards(folder):
  states = _states(folder, lambda: _replace(folder, syncs_name=False))
  ends = [state for state in states if state.is_finished]
  assert _contents(ends) == {b'before', b'after!'}


def test_file_that_is_overwritten_may_be_empty_or_torn(folder):
  def overwrite():
    (folder / 'file').write_bytes(b'after!')
    _sync(folder / 'file')

  assert _contents(_states(folder, overwrite)) == {
    *(b'before', b'after!', b'', b'aft')
  }


def test_lines_that_are_appended_may_be_torn_but_not_those_before(folder):
  def append():
    with open(folder / 'file', 'ab') as file:
      file.write(b'+more')
      file.flush()
      os.fsync(file.fileno())

  states = _states(folder, append)
  assert _contents(states) == {b'before', b'before+m', b'before+more'}
  assert _contents(s for s in states if s.is_finished) == {b'before+more'}


def test_removed_file_may_come_back(folder):
  states = _states(folder, (folder / 'file').unlink)
  assert _contents(s for s in states if s.is_finished) == {b'before', None}


def test_new_folder_may_be_missing_with_all_that_was_synced_in_it(folder):
  def make():
    (folder / 'sub').mkdir()
    (folder / 'sub' / 'file').write_bytes(b'x')
    _sync(folder / 'sub' / 'file')
    _sync(folder / 'sub')

  ends = [state for state in _states(folder, make) if state.is_finished]
  assert [state.tree for state in ends] == [
    {'file': b'before', 'sub': None, 'sub/file': b'x'},
    {'file': b'before'},
  ]


def test_folder_is_renamed_with_all_that_is_in_it(folder):
  def move():
    (folder / 'sub').mkdir()
    (folder / 'sub' / 'a').write_bytes(b'x')
    _sync(folder / 'sub' / 'a')
    _sync(folder / 'sub')
    os.rename(folder / 'sub', folder / 'moved')
    _sync(folder)

  states = _states(folder, move)
  assert _contents(states, 'moved/a') == {None, b'x'}
  assert not any({'sub', 'moved'} <= set(state.tree) for state in states)
  assert states[-1].tree == {'file': b'before', 'moved': None, 'moved/a': b'x'}


def test_inodes_that_are_used_again_are_told_apart(folder):
  """Many file systems give a new file the number of one just removed."""

  def make():
    for content in (b'1', b'2', b'3'):
      (folder / 'new').write_bytes(content)
      (folder / 'new').unlink()

  contents = _contents(_states(folder, make), 'new')
  assert contents == {None, b'', b'1', b'2', b'3'}


def _run(tmp_path, **options):
  """Returns what checks a replacement, each time in a new folder."""

  def recover(place, is_finished):
    allowed = {b'after!'} if is_finished else {b'before', b'after!'}
    assert (place / 'file').read_bytes() in allowed

  def run(ignored_fsync):
    folder = tmp_path / str(ignored_fsync)
    folder.mkdir()
    (folder / 'file').write_bytes(b'before')
    return power_loss.check(
      folder, lambda: _replace(folder, **options), recover, ignored_fsync
    )

  return run


def test_check_misses_each_fsync_that_is_left_out(tmp_path):
  run = _run(tmp_path)
  assert power_loss.needed_fsyncs(run, (AssertionError,)) == [True, True]
  assert not list(tmp_path.glob('*.after_power_loss'))


@pytest.mark.parametrize('left_out', ['syncs_data', 'syncs_name'])
def test_failed_check_tells_the_state(tmp_path, left_out):
  with pytest.raises(AssertionError) as caught:
    _run(tmp_path, **{left_out: False})(None)
  (note,) = caught.value.__notes__
  assert note.startswith('power loss at ')
  assert 'file (' in note
