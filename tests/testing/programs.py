"""Runs the binaries as real processes, without paying for imports each time.

One process imports TensorFlow, TFF and Beam, and forks a child for every
program; the child then runs `python -m <module> <arguments>` as Python does:
its own standard streams, signals, exit handlers and exit status.
"""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil

ROOT = pathlib.Path(__file__).parents[2]
_PATIENCE_SECONDS = 240.0
_POLL_SECONDS = 0.02


class Program:
  """One running or finished program.

  Attributes:
    pid: Its process id.
    returncode: None while it runs; minus the signal that ended it.
  """

  def __init__(self, launcher: 'Launcher', pid: int, folder: pathlib.Path):
    self._launcher = launcher
    self._folder = folder
    self.pid = pid
    self.returncode: int | None = None

  @property
  def stdout(self) -> str:
    return (self._folder / 'stdout').read_text()

  @property
  def stderr(self) -> str:
    return (self._folder / 'stderr').read_text()

  @property
  def said(self) -> list[str]:
    """Returns the lines of stderr; a progress bar redraws its line."""
    lines = self.stderr.replace('\r', '\n').splitlines()
    is_bar = re.compile('round/s|s/round').search
    return [line for line in lines if line.strip() and not is_bar(line)]

  @property
  def complaints(self) -> list[str]:
    """Returns what it said that is neither information nor a warning."""
    return [line for line in self.said if not re.match(r'[IW]\d{4} ', line)]

  def poll(self) -> int | None:
    if self.returncode is None:
      self.returncode = self._launcher.poll(self.pid)
    return self.returncode

  def send_signal(self, signum: int) -> None:
    if self.poll() is None:
      os.kill(self.pid, signum)

  def wait(self, timeout_seconds: float = _PATIENCE_SECONDS) -> 'Program':
    """Waits for the end; kills the program if that takes too long."""
    deadline = time.monotonic() + timeout_seconds
    while self.poll() is None:
      if time.monotonic() > deadline:
        self.send_signal(signal.SIGKILL)
        raise AssertionError(f'still running, and said {self.stderr!r}')
      time.sleep(_POLL_SECONDS)
    return self

  def temporary_files(self) -> list[str]:
    """Returns what it left in its folder for temporary files."""
    return sorted(os.listdir(self._folder / 'tmp'))

  def processes(self) -> list[psutil.Process]:
    """Returns the processes that it started and that still run."""
    marker = str(self._folder / 'tmp')
    found = []
    for process in psutil.process_iter():
      with contextlib.suppress(psutil.Error):
        if process.environ().get('TMPDIR') == marker:
          found.append(process)
    return found


class Launcher:
  """Starts programs; see the module."""

  def __init__(self, folder: pathlib.Path):
    self._folder = folder
    self._programs: list[Program] = []
    self._process = subprocess.Popen(
      [sys.executable, '-m', 'tests.testing.programs'],
      cwd=ROOT,
      env={**os.environ, 'TF_CPP_MIN_LOG_LEVEL': '3'},
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      text=True,
    )

  def ask(self, **request):
    self._process.stdin.write(json.dumps(request) + '\n')
    self._process.stdin.flush()
    return json.loads(self._process.stdout.readline())

  def poll(self, pid: int) -> int | None:
    """Returns a program's exit status, None while it runs."""
    return self.ask(op='poll', pid=pid)

  def start(self, module: str, *arguments: str, **environment: str) -> Program:
    folder = self._folder / f'program_{len(self._programs)}'
    (folder / 'tmp').mkdir(parents=True)
    for name in ('stdout', 'stderr'):
      (folder / name).touch()
    pid = self.ask(
      op='start',
      module=module,
      arguments=arguments,
      folder=str(folder),
      environment={**environment, 'TMPDIR': str(folder / 'tmp')},
    )
    program = Program(self, pid, folder)
    self._programs.append(program)
    return program

  def run(self, module: str, *arguments: str, **environment: str) -> Program:
    return self.start(module, *arguments, **environment).wait()

  def close(self) -> None:
    for program in self._programs:
      program.send_signal(signal.SIGKILL)
    self._process.communicate()


@contextlib.contextmanager
def launcher(folder: pathlib.Path) -> Iterator[Launcher]:
  opened = Launcher(folder)
  try:
    yield opened
  finally:
    opened.close()


def _become(request: dict) -> None:
  """Turns this freshly forked process into the program."""
  os.setsid()
  folder = pathlib.Path(request['folder'])
  for descriptor, path, flags in (
    (0, '/dev/null', os.O_RDONLY),
    (1, folder / 'stdout', os.O_WRONLY),
    (2, folder / 'stderr', os.O_WRONLY),
  ):
    opened = os.open(path, flags)
    os.dup2(opened, descriptor)
    os.close(opened)
  os.environ.update(request['environment'])
  # As Python reads it at its start.
  folders = request['environment'].get('PYTHONPATH', '')
  sys.path[1:1] = filter(None, folders.split(os.pathsep))
  sys.argv = [request['module'], *request['arguments']]


def _serve() -> str | None:
  """Forks programs; returns a module's name in the child that is to run it."""
  requests = os.fdopen(os.dup(0))
  answers = os.fdopen(os.dup(1), 'w')
  for line in requests:
    request = json.loads(line)
    if request['op'] == 'poll':
      pid, status = os.waitpid(request['pid'], os.WNOHANG)
      answer = os.waitstatus_to_exitcode(status) if pid else None
    else:
      answer = os.fork()
      if not answer:
        requests.close()
        answers.close()
        _become(request)
        return request['module']
    answers.write(json.dumps(answer) + '\n')
    answers.flush()
  return None


def _end_quickly_if_idle(status: int) -> None:
  """Ends the process unless TensorFlow or a thread was started in it.

  Taking a freshly forked interpreter apart copies its memory, page by page: ten
  times the work of a program that finds a mistake in its flags.
  """
  import atexit
  import threading

  from tensorflow.python.eager import context

  has_started = context.context_safe() is not None and (
    context.context_safe()._context_handle is not None
  )
  if has_started or threading.active_count() > 1:
    return
  atexit._run_exitfuncs()
  sys.stdout.flush()
  sys.stderr.flush()
  os._exit(status)


def _import_all() -> None:
  import importlib

  for name in (
    'apache_beam',
    'configs.base',
    'matplotlib.pyplot',
    'sklearn.datasets',
    'tensorflow',
    'tff_algos.experiments.end_to_end',
    'tff_algos.runtimes.tff.tff_runtime',
  ):
    importlib.import_module(name)
  # A program imports TFF only for its runtime, and then does this, too. TFF's
  # own context complains at the end of every fork.
  from tff_algos.core import tff_compat

  tff_compat.refuse_default_context()


if __name__ == '__main__':
  import gc
  import logging
  import runpy
  import tempfile

  _import_all()
  gc.freeze()
  program = _serve()
  if program is not None:
    tempfile.tempdir = None
    logging.root.handlers.clear()
    try:
      runpy.run_module(program, run_name='__main__', alter_sys=True)
    except SystemExit as end:
      if isinstance(end.code, int):
        _end_quickly_if_idle(end.code)
      raise
    _end_quickly_if_idle(0)
