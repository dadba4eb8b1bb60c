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
    assert not list(tmp_path.iterdir())
  assert len(os.listdir('/proc/self/fd')) == descriptors
