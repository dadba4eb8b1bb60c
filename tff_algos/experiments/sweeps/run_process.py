"""A run of a sweep in a process of its own.

The process resumes the run, or executes it, exactly as `runs.make`; it ends
with the process that started it, also if that one is killed.
"""

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import sys
import traceback
from typing import Any, NamedTuple

from absl import logging

from pipelines.engines import failures
from tff_algos.core import plugins
from tff_algos.experiments import experiment, runtime_cache
from tff_algos.experiments.sweeps import runs
from tff_algos.runtimes import child_process

_PROGRAM = 'tff_algos.experiments.sweeps.run_process'
_DONE = 'done'
# To save the last whole round after SIGTERM. Killed later, nothing is lost but
# the rounds since the last checkpoint.
_GRACE_SECONDS = 30.0
# Characters; less than a socket's buffer, as nobody reads until the exit.
_LONGEST_ANSWER = 50_000
# A warning or an error in absl's log.
_WARNING = re.compile(r'^[WE]\d{4} .*?\] (.*)', re.MULTILINE)


class Task(NamedTuple):
  """A run, as JSON-ready values.

  Attributes:
    workdir: Folder of the sweep, absolute.
    run: Folder of the run, relative to `workdir`.
    config: The experiment, nested values.
    plugins: Plug-ins that the config needs.
  """

  workdir: str
  run: str
  config: dict[str, Any]
  plugins: tuple[str, ...] = ()

  @property
  def folder(self) -> pathlib.Path:
    """Returns the folder of the run."""
    return pathlib.Path(self.workdir, self.run)

  @property
  def num_rounds(self) -> int:
    """Returns the number of rounds of the run."""
    return self.config['training']['num_rounds']


class RunProcess:
  """The process of one run."""

  def __init__(self, task: Task, num_threads: int):
    """Starts the process.

    Args:
      task: The run.
      num_threads: Threads of TensorFlow, the cores that it keeps busy.

    Raises:
      RuntimeFailureError: If it cannot be started.
    """
    self._run = task.run
    self._socket, theirs = socket.socketpair()
    with theirs:
      self._process = child_process.ChildProcess(
        'process of a run,',
        [sys.executable, '-m', _PROGRAM, str(theirs.fileno())],
        env={
          # It imports what this process does.
          'PYTHONPATH': os.pathsep.join(path or '.' for path in sys.path),
          'TF_CPP_MIN_LOG_LEVEL': '3',
          'TF_NUM_INTEROP_THREADS': str(num_threads),
        },
        pass_fds=[theirs.fileno()],
        grace_seconds=_GRACE_SECONDS,
      )
      self._process.start()
    self._socket.sendall(json.dumps(task).encode())
    self._socket.shutdown(socket.SHUT_WR)

  def poll(self) -> str | None:
    """Returns None while it runs; then `read_failure`'s text.

    Raises:
      RuntimeFailureError: If the process was lost, such as killed.
    """
    if self._process.is_running:
      return None
    text = ''
    # Reset if it ended before it read its task.
    with contextlib.suppress(ConnectionResetError):
      with self._socket.makefile() as answer:
        text = answer.read()
    if not text:
      self._process.check_running()
    for line in _WARNING.findall(self._process.tail()):
      logging.warning('%s: %s', self._run, line)
    return text

  def terminate(self) -> None:
    """Asks it to save the last whole round and to exit; does not wait."""
    self._process.terminate()

  def end(self) -> None:
    """Waits for the exit after `terminate`, and kills it if that is late."""
    self._process.end()
    self._socket.close()


def read_failure(text: str) -> BaseException | None:
  """Returns the error of an ended process; None if the run is finished.

  Args:
    text: Result of `RunProcess.poll`.

  Returns:
    A user error or an error of the disk; RuntimeError with the stack trace for
    a bug.
  """
  if text == _DONE:
    return None
  told = RuntimeError(f'a run failed in its process:\n{text}')
  return failures.find(told) or told


def _execute(task: Task) -> str:
  """Executes a run in this process; returns `_DONE` or the stack trace."""
  try:
    with failures.carried(), runtime_cache.KeptRuntime() as kept:
      plugins.load(task.plugins)
      runs.make(
        experiment.parse_plain(task.config),
        task.folder,
        pathlib.Path(task.workdir, 'datasets'),
        kept,
        shows_progress=False,
      )
  except Exception:
    return traceback.format_exc()[-_LONGEST_ANSWER:]
  return _DONE


def _main() -> None:
  # As Ctrl-C: training saves the last whole round.
  signal.signal(signal.SIGTERM, signal.default_int_handler)
  logging.use_absl_handler()
  logging.set_verbosity(logging.WARNING)
  with socket.socket(fileno=int(sys.argv[1])) as connection:
    with connection.makefile() as request:
      task = Task(*json.load(request))
    try:
      connection.sendall(_execute(task).encode())
    except KeyboardInterrupt:
      sys.exit(128 + signal.SIGTERM)


if __name__ == '__main__':
  _main()
