"""Tests of the TFF worker process: real processes, really killed."""

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time

import psutil
import pytest

from tests.testing import patience, programs
from tff_algos.core import errors
from tff_algos.runtimes import child_process
from tff_algos.runtimes.tff import local_worker

_PATIENCE_SECONDS = 20.0


@pytest.fixture
def binary(tmp_path, monkeypatch):
  """The path of the worker's program, at which there is nothing yet."""
  path = tmp_path / 'worker'
  monkeypatch.setattr(local_worker, 'find_worker_binary', lambda: path)
  return path


@pytest.fixture
def fake_worker(binary):
  """Returns a maker of worker binaries that are shell scripts."""

  def make(script: str) -> pathlib.Path:
    binary.write_text('#!/bin/sh\n' + script)
    binary.chmod(0o755)
    return binary

  return make


@pytest.fixture
def start_parent():
  """Returns a starter of programs that own a worker, and ends them all."""
  parents = []

  def start(program: str) -> tuple[subprocess.Popen, int]:
    parent = subprocess.Popen(
      [sys.executable, '-c', textwrap.dedent(program)],
      cwd=programs.ROOT,
      stdout=subprocess.PIPE,
      text=True,
      start_new_session=True,
    )
    parents.append(parent)
    line = parent.stdout.readline()
    assert line.startswith('worker '), f'the program said {line!r}'
    return parent, int(line.split()[1])

  yield start
  for parent in parents:
    parent.kill()
    parent.communicate()


_HOLD_A_WORKER = """
  import time
  from tff_algos.runtimes.tff import local_worker
  with local_worker.LocalWorker() as local:
    print('worker', local.pid, flush=True)
    time.sleep(600)
"""


def test_worker_answers_and_is_gone_after_the_block():
  with local_worker.LocalWorker() as local:
    pid = local.pid
    local.check_alive()
    host, port = local.address.split(':')
    socket.create_connection((host, int(port)), timeout=5).close()
  assert not psutil.pid_exists(pid)


def test_close_may_be_called_at_any_time_and_again():
  local = local_worker.LocalWorker()
  local.close()
  local.start()
  local.close()
  local.close()
  assert not psutil.pid_exists(local.pid)


def test_worker_starts_once_only():
  with local_worker.LocalWorker() as local:
    with pytest.raises(errors.RuntimeFailureError, match='started before'):
      local.start()
    local.check_alive()


def test_nobody_else_gets_the_port():
  with local_worker.LocalWorker() as local, local_worker.LocalWorker() as other:
    assert local.address != other.address
    port = int(local.address.split(':')[1])
    with socket.socket() as intruder, pytest.raises(OSError, match='in use'):
      intruder.bind(('127.0.0.1', port))


def test_worker_outlives_the_thread_that_started_it():
  local = local_worker.LocalWorker()
  starter = threading.Thread(target=local.start)
  starter.start()
  starter.join()
  try:
    time.sleep(0.5)  # Time for the kernel to kill it, were it going to.
    local.check_alive()
  finally:
    local.close()


def test_death_while_in_use_is_told_with_the_signal():
  with local_worker.LocalWorker() as local:
    os.kill(local.pid, signal.SIGILL)

    def error_text():
      try:
        local.check_alive()
      except errors.RuntimeFailureError as error:
        return str(error)
      return ''

    told = patience.until(error_text)
  assert re.search(r'(?s)SIGILL.*AVX.*listening on', told)


def test_check_alive_before_start():
  with pytest.raises(errors.RuntimeFailureError, match='not started'):
    local_worker.LocalWorker().check_alive()


def _children() -> set[int]:
  return {child.pid for child in psutil.Process().children(recursive=True)}


def test_worker_that_ends_at_once_is_quoted(fake_worker):
  fake_worker('echo "GLIBC_2.99 not found" >&2\nexit 3\n')
  with pytest.raises(
    errors.RuntimeFailureError, match=r'(?s)exit code 3\..*GLIBC_2\.99'
  ):
    local_worker.LocalWorker().start()


def test_worker_that_says_nothing(fake_worker):
  fake_worker('kill -9 $$\n')
  with pytest.raises(
    errors.LostProcessError, match=r'(?s)SIGKILL.*memory.*\(nothing\)'
  ):
    local_worker.LocalWorker().start()


def test_worker_that_never_answers_is_quoted_and_ended(fake_worker):
  before = _children()
  # Its child holds its output open.
  fake_worker('echo "me: $$"\nsleep 600\n')
  with pytest.raises(
    errors.LostProcessError, match=r'(?s)within 0\.5 s.*me: \d+'
  ) as caught:
    local_worker.LocalWorker(start_timeout_seconds=0.5).start()
  assert patience.is_gone(int(re.search(r'me: (\d+)', str(caught.value))[1]))
  assert _children() == before


def test_worker_that_ignores_the_request_to_end_is_killed(
  fake_worker, monkeypatch
):
  before = _children()
  monkeypatch.setattr(child_process, '_GRACE_SECONDS', 0.5)
  fake_worker('trap "" TERM\necho "me: $$"\nsleep 600\nsleep 600\n')
  with pytest.raises(errors.RuntimeFailureError, match='me:') as caught:
    local_worker.LocalWorker(start_timeout_seconds=0.5).start()
  assert patience.is_gone(int(re.search(r'me: (\d+)', str(caught.value))[1]))
  assert _children() == before


def test_talkative_worker_is_not_blocked_and_its_last_words_kept(fake_worker):
  # More than a pipe holds, and not all of it valid UTF-8.
  fake_worker(
    'head -c 300000 /dev/zero | tr "\\0" "x"\nprintf "\\377 the end"\nexit 1\n'
  )
  local = local_worker.LocalWorker()
  with pytest.raises(errors.RuntimeFailureError, match='the end') as caught:
    local.start()
  assert 8000 < len(str(caught.value)) < 9000


def test_missing_and_unexecutable_binaries_are_named(binary):
  with pytest.raises(errors.RuntimeFailureError, match='no TFF worker at'):
    local_worker.LocalWorker().start()
  binary.write_text('')
  with pytest.raises(errors.RuntimeFailureError, match='chmod'):
    local_worker.LocalWorker().start()


def test_binary_that_cannot_be_loaded_is_told(binary):
  binary.write_bytes(b'\x7fELF not really')
  binary.chmod(0o755)
  with pytest.raises(errors.RuntimeFailureError, match='Exec format error'):
    local_worker.LocalWorker().start()


@pytest.mark.parametrize('signum', [signal.SIGKILL, signal.SIGTERM])
def test_worker_dies_with_its_parent(start_parent, signum):
  parent, pid = start_parent(_HOLD_A_WORKER)
  assert psutil.pid_exists(pid)
  os.kill(parent.pid, signum)
  patience.until(lambda: patience.is_gone(pid))


def test_ctrl_c_reaches_the_parent_first(start_parent):
  # The worker must still be there when the parent's own shutdown begins.
  parent, pid = start_parent("""
    import time
    from tff_algos.runtimes.tff import local_worker
    with local_worker.LocalWorker() as local:
      try:
        # Inside, and before one long sleep: the signal may come at once.
        print('worker', local.pid, flush=True)
        while True:
          time.sleep(0.05)
      except KeyboardInterrupt:
        time.sleep(0.5)
        local.check_alive()
        print('alive at shutdown', flush=True)
  """)
  os.killpg(parent.pid, signal.SIGINT)
  said, _ = parent.communicate(timeout=_PATIENCE_SECONDS)
  assert said == 'alive at shutdown\n'
  assert parent.returncode == 0
  assert patience.is_gone(pid)


def test_ctrl_c_while_starting_leaves_nothing(start_parent, fake_worker):
  binary = fake_worker('echo started > "$0.pid"\nsleep 600\n')
  parent, _ = start_parent(f"""
    import pathlib
    from tff_algos.runtimes.tff import local_worker
    path = pathlib.Path({str(binary)!r})
    local_worker.find_worker_binary = lambda: path
    print('worker 0', flush=True)
    local_worker.LocalWorker().start()
  """)
  started = binary.with_suffix('.pid')
  patience.until(lambda: started.exists())
  children = psutil.Process(parent.pid).children(recursive=True)
  assert children
  os.killpg(parent.pid, signal.SIGINT)
  parent.communicate(timeout=_PATIENCE_SECONDS)
  assert all(patience.is_gone(child.pid) for child in children)


def test_worker_is_ended_at_exit_without_close(start_parent):
  parent, pid = start_parent("""
    from tff_algos.runtimes.tff import local_worker
    local = local_worker.LocalWorker()
    local.start()
    print('worker', local.pid, flush=True)
  """)
  # Reads to the end of stdout: a worker left behind would keep it open.
  parent.communicate(timeout=_PATIENCE_SECONDS)
  assert parent.returncode == 0
  assert patience.is_gone(pid)


def test_forked_child_does_not_end_the_worker(start_parent):
  parent, pid = start_parent("""
    import os, sys
    from tff_algos.runtimes.tff import local_worker
    with local_worker.LocalWorker() as local:
      print('worker', local.pid, flush=True)
      child = os.fork()
      if child == 0:
        local.close()
        sys.exit()
      os.waitpid(child, 0)
      local.check_alive()
      print('still alive')
  """)
  said, _ = parent.communicate(timeout=_PATIENCE_SECONDS)
  assert 'still alive' in said
  assert patience.is_gone(pid)
