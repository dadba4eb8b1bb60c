"""Process that answers large requests, with its own models and low priority.

Parsing, converting and encoding millions of numbers holds the interpreter, and
may need gigabytes: the server's own interpreter stays free for small requests,
and outlives this process.
"""

import gc
import os
import pathlib
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from multiprocessing import connection
from typing import Any

from absl import logging

from tff_algos.core import errors
from tff_algos.serving import batching, models

_NICENESS = 10
# Python, TensorFlow and the list of the models, on a busy machine.
_START_SECONDS = 300


class BulkProcess:
  """Handle of the process; started by the first call, and again if it died."""

  def __init__(self, folder: pathlib.Path, answer_seconds: float):
    """Creates the handle.

    Args:
      folder: Folder of the models.
      answer_seconds: Time of a call after which the process is killed; its
        start, before the first one, does not count.
    """
    self._folder = folder
    self._answer_seconds = answer_seconds
    self._lock = threading.Lock()
    self._process: subprocess.Popen[bytes] | None = None
    self._pipe: connection.Connection | None = None
    self._is_ready = False
    self._is_closed = False

  def call(
    self,
    store: models.ModelStore,
    function: Callable[..., bytes | batching.Question],
    *arguments: Any,
  ) -> bytes:
    """Returns the answer of `function(store, *arguments)` of the process.

    Args:
      store: The models as the caller sees them; the process has its own of the
        same labels. Its `version` is set to that which answered.
      function: Of a module.
      *arguments: Its further arguments.

    Raises:
      RequestError: If the function raised it; 503 if the process died or took
        too long, and was killed.
    """
    pipe = self._start()
    try:
      if not self._is_ready:
        self._receive(pipe, _START_SECONDS, 'send again later')
        self._is_ready = True
      seen = (store.caller, store.labels, store.loaded_identities())
      pipe.send((seen, function, arguments))
      store.version, answer = self._receive(
        pipe, self._answer_seconds, 'send fewer rows at once'
      )
    except (OSError, EOFError, pickle.UnpicklingError):
      self._kill()
      raise errors.RequestError(
        'the process of large requests ended, perhaps for want of memory; send '
        'fewer rows at once',
        status=503,
      ) from None
    if isinstance(answer, Exception):
      raise answer
    return answer

  def _receive(
    self, pipe: connection.Connection, seconds: float, advice: str
  ) -> Any:
    """Returns what the process sends next; kills it after `seconds`."""
    if not pipe.poll(seconds):
      self._kill()
      raise errors.RequestError(
        f'no answer within {seconds:g} seconds; {advice}', status=503
      )
    return pipe.recv()

  def close(self) -> None:
    """Kills the process, which keeps nothing; later calls are refused."""
    with self._lock:
      self._is_closed = True
    self._kill()

  def _start(self) -> connection.Connection:
    with self._lock:
      if self._is_closed:
        raise errors.RequestError('the server stops', status=503)
      if self._process is not None and self._pipe is not None:
        return self._pipe
      ours, theirs = socket.socketpair()
      with theirs:
        self._process = subprocess.Popen(
          [
            *(sys.executable, '-m', __name__),
            *(str(theirs.fileno()), os.fspath(self._folder)),
          ],
          pass_fds=[theirs.fileno()],
          stdin=subprocess.DEVNULL,
          env={
            **os.environ,
            'PYTHONPATH': os.pathsep.join(filter(None, sys.path)),
          },
          # Ctrl-C is for the server, which ends this process.
          start_new_session=True,
        )
      self._pipe = connection.Connection(ours.detach())
      self._is_ready = False
      return self._pipe

  def _kill(self) -> None:
    with self._lock:
      process, self._process = self._process, None
      pipe, self._pipe = self._pipe, None
    if process is not None:
      process.kill()
      process.wait()
    if pipe is not None:
      pipe.close()


def work(pipe: connection.Connection, store: models.ModelStore) -> None:
  """Says that it is ready; answers calls until the other end is closed."""
  try:
    pipe.send(None)
  except OSError:
    return
  while True:
    try:
      view, function, arguments = pipe.recv()
    except (OSError, EOFError):
      return
    # What the server has verified is not read once more: with many clients'
    # states that takes longer than an answer may.
    seen = store.seen_by(*view)
    try:
      answer = batching.finish(function(seen, *arguments))
    except errors.RequestError as error:
      answer = error
    except Exception:
      logging.exception('A large request failed.')
      answer = errors.RequestError('internal error', 500)
    try:
      pipe.send((seen.version, answer))
    except OSError:
      return


def main() -> None:
  """Runs the process: arguments are a descriptor and the folder of models."""
  descriptor, folder = sys.argv[1:]
  os.nice(_NICENESS)
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  gc.freeze()  # Not to be looked at for each of millions of numbers.
  work(connection.Connection(int(descriptor)), models.ModelStore(folder))


if __name__ == '__main__':
  main()
