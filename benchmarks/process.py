"""A contender's process, seen from the harness: started, asked, ended."""

import contextlib
import json
import os
import pathlib
import select
import signal
import subprocess
from collections.abc import Mapping
from typing import Any

import psutil

from benchmarks import errors, watched
from benchmarks.contenders import registry

_GRACE_SECONDS = 5.0
_PATIENCE_SECONDS = 900.0
_TAIL_CHARACTERS = 3000


class ContenderProcess:
  """One contender on one workload; use it as a context manager.

  Attributes:
    label: What error texts call it.
  """

  def __init__(
    self,
    label: str,
    contender: registry.Contender,
    folder: pathlib.Path,
    log: pathlib.Path,
    form: Mapping[str, Any],
  ):
    """Prepares the process; entering starts it.

    Args:
      label: What error texts call it.
      contender: The program.
      folder: Holds the inputs.
      log: File for what the program says.
      form: The form that it takes, or looks for.
    """
    self.label = label
    self._log = log
    self._command = [
      *(contender.python, '-m', contender.module),
      *('--folder', str(folder), '--form', json.dumps(form)),
    ]
    self._process: subprocess.Popen[str] | None = None

  def __enter__(self) -> 'ContenderProcess':
    with self._log.open('a') as log:
      self._process = subprocess.Popen(
        self._command,
        cwd=registry.ROOT,
        env={
          'TF_CPP_MIN_LOG_LEVEL': '2',
          **os.environ,
          # What TensorFlow leaves there when it is killed goes with the case.
          'TMPDIR': str(self._log.parent),
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        # Ctrl-C reaches the harness, which ends all contenders.
        start_new_session=True,
      )
    return self

  def __exit__(self, *exc_info: Any) -> None:
    try:
      if exc_info[0] is None:
        # The end of its input; it closes what it opened.
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
          self._process.wait(_GRACE_SECONDS)
    finally:
      # Also when a second Ctrl-C cuts the grace short. A TFF worker dies with
      # the process that started it.
      with contextlib.suppress(ProcessLookupError):
        os.killpg(self._process.pid, signal.SIGKILL)
      self._process.wait()
      with contextlib.suppress(BrokenPipeError):
        self._process.stdin.close()
      self._process.stdout.close()

  def ask(self, op: str, **more: Any) -> dict[str, Any]:
    """Sends a request and returns the answer.

    Raises:
      BenchmarkError: If the program ends, or does not answer in time.
    """
    with contextlib.suppress(BrokenPipeError):
      self._process.stdin.write(json.dumps({'op': op, **more}) + '\n')
      self._process.stdin.flush()
    return self.answer(op)

  def answer(self, op: str = 'start') -> dict[str, Any]:
    """Waits for the answer to a request, or for the first word."""
    ready, _, _ = select.select(
      [self._process.stdout], [], [], _PATIENCE_SECONDS
    )
    line = self._process.stdout.readline() if ready else ''
    if not line:
      trouble = 'ended' if ready else f'silent for {_PATIENCE_SECONDS:g} s'
      raise errors.BenchmarkError(
        f'{self.label}: {trouble} at {op!r}. It said:\n'
        + self._log.read_text()[-_TAIL_CHARACTERS:]
      )
    return json.loads(line)

  def peak_memory_mib(self) -> float:
    """Returns the largest resident size so far, of it and of its children.

    The peaks of the processes are added, although they may be at different
    times.
    """
    peak = 0.0
    for process in self._tree():
      with contextlib.suppress(OSError):
        peak += watched.peak_mib(process.pid)
    return peak

  def cpu_seconds(self) -> float:
    """Returns the CPU time used so far, with its children."""
    total = 0.0
    for process in self._tree():
      with contextlib.suppress(psutil.Error):
        times = process.cpu_times()
        total += times.user + times.system
    return total

  def _tree(self) -> list[psutil.Process]:
    process = psutil.Process(self._process.pid)
    return [process, *process.children(recursive=True)]
