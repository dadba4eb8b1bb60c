"""Subprocesses of checks: time limits and cleanup."""

import contextlib
import signal
import subprocess
from typing import NamedTuple

import psutil

# Of stderr.
_LAST_LINES = 4


class Outcome(NamedTuple):
  """Outcome of a program.

  Attributes:
    ending: `'ok'`, or a description of the failure: not found, exit code,
      signal or time limit.
    output: Its stdout.
    last_words: The last lines of its stderr.
  """

  ending: str
  output: str
  last_words: str


def run(arguments: list[str], timeout_seconds: float) -> Outcome:
  """Runs a program until it ends or is killed at the time limit.

  Args:
    arguments: The program and its arguments.
    timeout_seconds: Time limit.
  """
  try:
    done = subprocess.run(
      arguments,
      stdin=subprocess.DEVNULL,
      capture_output=True,
      timeout=timeout_seconds,
    )
  except OSError as error:
    return Outcome(f'cannot be run: {error.strerror}', '', '')
  except subprocess.TimeoutExpired as error:
    return Outcome(
      f'no end within {timeout_seconds:g} s',
      _decode(error.stdout),
      _tail(error.stderr),
    )
  return Outcome(
    _describe_exit(done.returncode),
    _decode(done.stdout),
    _tail(done.stderr),
  )


def end_children() -> None:
  """Kills child processes left by interrupted or abandoned checks."""
  children = psutil.Process().children(recursive=True)
  for child in children:
    with contextlib.suppress(psutil.NoSuchProcess):
      child.kill()
  psutil.wait_procs(children, timeout=5)


def _describe_exit(returncode: int) -> str:
  if returncode == 0:
    return 'ok'
  if returncode > 0:
    return f'exit code {returncode}'
  return f'killed by signal {-returncode} ({signal.strsignal(-returncode)})'


def _decode(output: bytes | None) -> str:
  return (output or b'').decode(errors='replace').strip()


def _tail(output: bytes | None) -> str:
  return '\n'.join(_decode(output).splitlines()[-_LAST_LINES:])
