import os
import signal
import sys

import psutil
import pytest

from tests.testing import patience
from tff_algos.core import errors
from tff_algos.runtimes import child_process


def _child(command, env=None, pass_fds=()):
  return child_process.ChildProcess('toy', command, env or {}, pass_fds)


def _wait(process):
  process.wait()
  assert not process.is_running


def test_last_words_and_environment():
  process = _child(['/bin/sh', '-c', 'echo "$WORD"; exit 3'], {'WORD': 'bye'})
  process.start()
  _wait(process)
  assert process.tail() == 'bye'
  with pytest.raises(
    errors.RuntimeFailureError, match='(?s)the toy /bin/sh ended .*code 3.*bye'
  ):
    process.check_running()


def test_descriptors_are_inherited():
  read_end, write_end = os.pipe()
  process = _child(
    [sys.executable, '-Sc', f'import os; os.write({write_end}, b"here")'],
    pass_fds=[write_end],
  )
  process.start()
  os.close(write_end)
  assert os.read(read_end, 10) == b'here'
  os.close(read_end)
  process.end()


def test_end_takes_the_children_along():
  process = _child(
    [sys.executable, '-Sc', 'import os, time; os.fork(); time.sleep(60)']
  )
  process.start()
  found = psutil.Process(process.pid)
  while found.name() == 'sh' or not found.children():
    assert process.is_running
  (grandchild,) = found.children()
  process.end()
  assert not process.is_running
  patience.until(lambda: patience.is_gone(grandchild.pid))


def test_a_process_that_ends_before_the_signal_is_no_error(monkeypatch):
  process = _child(['/bin/sleep', '60'])
  process.start()
  killpg = os.killpg

  def too_late(pid, signum):
    killpg(pid, signal.SIGKILL)
    process.wait()
    killpg(pid, signum)

  monkeypatch.setattr(os, 'killpg', too_late)
  process.end()
  assert not process.is_running


def test_a_process_that_was_not_started_is_not_running():
  process = _child(['/bin/true'])
  assert not process.is_running
  assert process.pid is None
  process.end()
