"""Process that answers large requests, with its own models and low priority.

Parsing, converting and encoding millions of numbers holds the interpreter, and
may need gigabytes: the server's own interpreter stays free for small requests,
and outlives this process.
"""

import contextlib
import gc
import os
import pathlib
import pickle
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing import connection
from typing import Any

from absl import logging

from tff_algos.core import errors
from tff_algos.serving import batching, models, served_model

_NICENESS = 10
# The start of the process, or loading a model, on a busy machine.
_START_SECONDS = 300
# What the process sends besides answers: that it loads a model, and that it is
# ready, at the start and after each.
_LOADING = 'loading'
_READY = 'ready'


class BulkProcess:
  """Handle of the process; started by the first call, and again if it died."""

  def __init__(self, folder: pathlib.Path, answer_seconds: float):
    """Creates the handle.

    Args:
      folder: Folder of the models.
      answer_seconds: Time of a call after which the process is killed; to
        start it and to load models does not count.
    """
    self._folder = folder
    self._answer_seconds = answer_seconds
    self._lock = threading.Lock()
    self._process: subprocess.Popen[bytes] | None = None
    self._pipe: connection.Connection | None = None
    self._started = 0.0
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
      RequestError: If the function raised it; 503 if the process is not ready
        in time, died, or took too long, and was killed.
    """
    try:
      pipe = self._start()
      self._check_ready(pipe)
      seen = (store.caller, store.labels, store.loaded_identities())
      pipe.send((seen, function, arguments))
      store.version, answer = self._receive(pipe)
    except BlockingIOError:  # The limit of the socket: it does not read.
      raise self._too_late(self._answer_seconds) from None
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

  def _check_ready(self, pipe: connection.Connection) -> None:
    """Raises RequestError (503) if the process does not start in time."""
    if self._is_ready:
      return
    if not pipe.poll(self._answer_seconds):
      if time.monotonic() - self._started > _START_SECONDS:
        self._kill()
      raise errors.RequestError(
        'the process of large requests is being started; send again later',
        status=503,
      )
    pipe.recv()
    self._is_ready = True

  def _receive(self, pipe: connection.Connection) -> Any:
    """Returns the answer to a call; kills the process if it takes too long."""
    seconds = self._answer_seconds
    while pipe.poll(seconds):
      message = pipe.recv()
      if message not in (_LOADING, _READY):
        return message
      is_loading = message == _LOADING
      seconds = _START_SECONDS if is_loading else self._answer_seconds
    raise self._too_late(seconds)

  def _too_late(self, seconds: float) -> errors.RequestError:
    """Kills the process; returns the error for its caller."""
    self._kill()
    return errors.RequestError(
      f'no answer within {seconds:g} seconds; send fewer rows at once',
      status=503,
    )

  def close(self) -> None:
    """Kills the process, which keeps nothing; later calls are refused."""
    with self._lock:
      self._is_closed = True
    self._kill()

  def _start(self) -> connection.Connection:
    with self._lock:
      if self._is_closed:
        raise errors.RequestError('the server stops', status=503)
      if self._process and self._pipe and self._process.poll() is None:
        return self._pipe
      if self._pipe:
        self._pipe.close()
      ours, theirs = socket.socketpair()
      seconds = self._answer_seconds
      limit = struct.pack('ll', int(seconds), int(seconds % 1 * 1e6))
      ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
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
      self._started, self._is_ready = time.monotonic(), False
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


class _ModelStore(models.ModelStore):
  """Models of this process, which tells when it loads one."""

  def __init__(self, folder: str, pipe: connection.Connection):
    super().__init__(folder)
    self._pipe = pipe

  def _load_first(
    self, name: str, folders: dict[int, pathlib.Path]
  ) -> served_model.ServedModel:
    """Returns the newest version that the server has, if it has one."""
    served = {}
    for version, folder in folders.items():
      with contextlib.suppress(errors.ExportError):
        if served_model.folder_identity(folder) in self.verified:
          served[version] = folder
    return super()._load_first(name, served or folders)

  def _load(
    self, name: str, version: int, folder: pathlib.Path
  ) -> served_model.ServedModel:
    self._pipe.send(_LOADING)
    try:
      return super()._load(name, version, folder)
    finally:
      self._pipe.send(_READY)


def work(pipe: connection.Connection, store: models.ModelStore) -> None:
  """Says that it is ready; answers calls until the other end is closed."""
  try:
    pipe.send(_READY)
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
    with contextlib.suppress(OSError):
      store.forget_removed()
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
  pipe = connection.Connection(int(descriptor))
  work(pipe, _ModelStore(folder, pipe))


if __name__ == '__main__':
  main()
