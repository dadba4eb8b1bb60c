import errno
import os
import pathlib
import time

import pytest

from tests.testing import forks
from tff_algos.core import errors, folder_lock
from tff_algos.training import workdir


def _hold(folder):
  """Holds the workdir until the process is killed."""
  with workdir.lock(pathlib.Path(folder)):
    forks.ready()
    time.sleep(600)


def _compete(folder):
  """Each holder takes and removes a file that must not be there already."""
  sentinel = pathlib.Path(folder) / 'held'
  end, num_refused = time.monotonic() + 0.5, 0
  while time.monotonic() < end:
    try:
      with workdir.lock(pathlib.Path(folder)):
        os.close(os.open(sentinel, os.O_CREAT | os.O_EXCL))
        sentinel.unlink()
    except errors.WorkdirBusyError:
      num_refused += 1
  print(num_refused)


def _use(folder):
  with workdir.lock(pathlib.Path(folder)):
    (pathlib.Path(folder) / 'metrics.csv').touch()


def test_lock_leaves_no_file(tmp_path):
  with workdir.lock(tmp_path):
    assert (tmp_path / '.lock').read_text() == str(os.getpid())
  assert not list(tmp_path.iterdir())


def test_lock_is_given_back_after_an_error(tmp_path):
  with pytest.raises(KeyboardInterrupt), workdir.lock(tmp_path):
    raise KeyboardInterrupt
  assert not list(tmp_path.iterdir())
  with workdir.lock(tmp_path):
    pass


def test_second_process_is_refused_and_told_who_holds_it(launcher, tmp_path):
  with forks.child(launcher, _hold, tmp_path) as pid:
    with pytest.raises(
      errors.WorkdirBusyError, match=rf'in use by process {pid};.*--workdir'
    ):
      with workdir.lock(tmp_path):
        pytest.fail('two processes hold one workdir')
    # Being refused takes nothing away from the holder.
    assert (tmp_path / '.lock').read_text() == str(pid)
    with pytest.raises(errors.WorkdirBusyError):
      with workdir.lock(tmp_path):
        pass


def test_kill_9_frees_the_lock(launcher, tmp_path):
  with forks.child(launcher, _hold, tmp_path):
    pass
  assert (tmp_path / '.lock').exists()  # Nobody could remove it.
  with workdir.lock(tmp_path):
    assert (tmp_path / '.lock').read_text() == str(os.getpid())
    with pytest.raises(errors.WorkdirBusyError, match=f'process {os.getpid()}'):
      with workdir.lock(tmp_path):
        pass
  assert not (tmp_path / '.lock').exists()


def test_other_workdirs_are_free(launcher, tmp_path):
  (tmp_path / 'other').mkdir()
  with forks.child(launcher, _hold, tmp_path), workdir.lock(tmp_path / 'other'):
    pass


@pytest.mark.slow
def test_many_processes_never_hold_it_together(launcher, tmp_path):
  children = [forks.start(launcher, _compete, tmp_path) for _ in range(6)]
  assert [(one.wait().returncode, one.stderr) for one in children] == [
    (0, '')
  ] * 6
  assert sum(int(one.stdout) for one in children) > 0


def test_unusable_folder_is_one_clear_error(tmp_path):
  (tmp_path / 'file').touch()
  for folder in (tmp_path / 'file', tmp_path / 'missing'):
    with pytest.raises(
      errors.UserError, match=rf'--workdir={folder} cannot be used: '
    ):
      with workdir.lock(folder):
        pass


def test_a_full_disk_is_no_bad_input(tmp_path, monkeypatch):
  def refuse(*_):
    raise OSError(errno.ENOSPC, 'No space left on device')

  monkeypatch.setattr(folder_lock, 'open', refuse, raising=False)
  with pytest.raises(OSError, match='No space'), workdir.lock(tmp_path):
    pass


def test_killed_at_any_moment_the_next_process_can_lock(launcher, tmp_path):
  num_kills = 0
  while forks.run_killed_at(launcher, num_kills + 1, _use, tmp_path):
    num_kills += 1
    with workdir.lock(tmp_path):
      pass
  assert num_kills >= 3
