"""pytest in a forked process, with a time limit and nothing left behind."""

import ctypes
import os
import pathlib
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence

import psutil

TIMED_OUT = 124
OUTPUT = 'pytest_output.txt'
_DIED = 125
# Of prctl(2).
_SET_PARENT_DEATH_SIGNAL = 1
_SET_CHILD_SUBREAPER = 36


def start(
  tree: pathlib.Path, tests: Sequence[str], limit_seconds: float
) -> int:
  """Forks a supervisor that runs pytest in a tree; returns its process id.

  Its exit status is pytest's, `TIMED_OUT`, or a larger one if pytest died. To
  stop it and all that it started, send `SIGTERM`.

  Args:
    tree: Copy of the project; the file `OUTPUT` is written there.
    tests: Arguments of pytest.
    limit_seconds: pytest and its descendants are killed then.
  """
  pid = os.fork()
  if pid == 0:
    status = _DIED
    try:
      status = _supervise(tree, tests, limit_seconds)
    finally:
      os._exit(status)
  return pid


def _supervise(
  tree: pathlib.Path, tests: Sequence[str], limit_seconds: float
) -> int:
  """Returns the exit status, when no descendant is left."""
  os.setsid()
  signal.signal(signal.SIGTERM, _stop)
  signal.signal(signal.SIGALRM, _stop)
  # Orphans below become its children, in whatever session they are.
  ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1)
  ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)
  temporary = tree.with_name(f'{tree.name}.tmp')
  try:
    temporary.mkdir()
    signal.setitimer(signal.ITIMER_REAL, limit_seconds)
    pid = os.fork()
    if pid == 0:
      _run_pytest(tree, temporary, tests)
    exit_code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return exit_code if exit_code >= 0 else _DIED
  except TimeoutError:
    return TIMED_OUT
  finally:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    _kill_descendants()
    shutil.rmtree(temporary, ignore_errors=True)


def _stop(*unused_arguments) -> None:
  raise TimeoutError


def _kill_descendants() -> None:
  while descendants := psutil.Process().children(recursive=True):
    for process in descendants:
      try:
        process.kill()
      except psutil.NoSuchProcess:
        pass
    os.wait()


def _run_pytest(
  tree: pathlib.Path, temporary: pathlib.Path, tests: Sequence[str]
) -> None:
  """Turns this freshly forked process into pytest; does not return."""
  status = _DIED
  try:
    for descriptor, path, flags in (
      (0, os.devnull, os.O_RDONLY),
      (1, tree / OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    ):
      os.dup2(os.open(path, flags), descriptor)
    os.dup2(1, 2)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    # A .pyc as old and as long as the mutated file would hide the mutation.
    sys.dont_write_bytecode = True
    os.environ.update(
      PYTHONDONTWRITEBYTECODE='1',
      TMPDIR=str(temporary),
      HYPOTHESIS_STORAGE_DIRECTORY=str(temporary / 'hypothesis'),
    )
    tempfile.tempdir = None
    os.chdir(tree)
    sys.path[0] = str(tree)
    for name in [name for name in sys.modules if name.split('.')[0] == 'tests']:
      del sys.modules[name]
    import pytest

    options = ['-x', '-q', '-p', 'no:cacheprovider']
    options += ['-m', 'verify or not verify']  # Tests of both tiers.
    sys.argv = ['pytest', *options, *tests]
    status = int(pytest.main([*options, *tests]))
    sys.stdout.flush()
    sys.stderr.flush()
  finally:
    os._exit(status)
