import errno
import fcntl
import os

import pytest

from tff_algos.core import errors, folder_lock


def test_a_folder_is_locked_within_the_block(tmp_path):
  with folder_lock.exclusive(tmp_path, 'another is there'):
    with pytest.raises(
      errors.WorkdirBusyError, match='^another is there. Wait for it.$'
    ):
      with folder_lock.exclusive(tmp_path, 'another is there'):
        pass
  descriptors = len(os.listdir('/proc/self/fd'))
  with folder_lock.exclusive(tmp_path, 'another is there'):
    pass
  assert not list(tmp_path.iterdir())
  assert len(os.listdir('/proc/self/fd')) == descriptors


def test_the_lock_is_of_a_file_open_for_writing(tmp_path):
  """The kind that NFS sends to other machines, also of those that share it."""
  for lock in (folder_lock.exclusive, folder_lock.shared):
    with lock(tmp_path, '') as file:
      assert file.writable() and file.readable()
      with open(tmp_path / folder_lock.FILE) as other:
        with pytest.raises(BlockingIOError):
          fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_file_system_without_locks_is_named(tmp_path, monkeypatch):
  def refuse(file, kind):
    raise OSError(errno.ENOLCK, 'No locks available')

  monkeypatch.setattr(fcntl, 'flock', refuse)
  with pytest.raises(errors.UserError, match='be locked: No locks available'):
    with folder_lock.exclusive(tmp_path, ''):
      pass


def test_those_that_share_it_leave_the_file_of_the_others(tmp_path):
  with folder_lock.shared(tmp_path, ''):
    with folder_lock.shared(tmp_path, ''):
      pass
    with pytest.raises(errors.WorkdirBusyError):
      with folder_lock.exclusive(tmp_path, 'another reads'):
        pass
  with folder_lock.exclusive(tmp_path, 'another reads'):
    with pytest.raises(errors.WorkdirBusyError):
      with folder_lock.shared(tmp_path, 'another writes'):
        pass
