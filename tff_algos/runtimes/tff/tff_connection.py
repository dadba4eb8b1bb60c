"""Connection to a TFF worker: gRPC channel and execution context."""

from typing import Any, TypeAlias

import grpc
import tensorflow as tf

from tff_algos.core import errors, tff_compat
from tff_algos.runtimes.tff import local_worker, remote_worker

Worker: TypeAlias = local_worker.LocalWorker | remote_worker.RemoteWorker


class Connection:
  """Runs TFF computations on one worker; use as a context manager."""

  def __init__(self, worker: Worker):
    """Starts nothing yet."""
    self._worker = worker
    self._channel: grpc.Channel | None = None
    self._context: Any = None

  @property
  def address(self) -> str:
    """Returns `host:port` of the worker."""
    return self._worker.address

  def __enter__(self) -> 'Connection':
    self._worker.start()
    try:
      self._channel = tff_compat.connect(self._worker.address)
      self._context = tff_compat.remote_context(
        self._channel, self._worker.check_alive
      )
    except BaseException:
      self.__exit__()
      raise
    return self

  def __exit__(self, *exc_info: Any) -> None:
    self._context = None
    if self._channel is not None:
      self._channel.close()
    self._worker.close()

  def check_version(self) -> None:
    """Checks by a small sum that the worker is compatible with this TFF.

    Raises:
      RuntimeFailureError: If the worker's version is incompatible.
    """
    number = tff_compat.to_type(tf.TensorSpec([], tf.int32))

    @tff_compat.tensorflow_computation(number)
    def add_one(value):
      return value + 1

    answer = self.invoke('a first sum', add_one, 41)
    if answer != 42:
      raise errors.RuntimeFailureError(
        f'the TFF worker at {self.address} says 41 + 1 = {answer!r}'
      )

  def invoke(
    self, what: str, computation: tff_compat.Computation, *arguments: Any
  ) -> Any:
    """Returns the result of a computation on the worker.

    Args:
      what: Name of the computation, for the error text.
      computation: The computation.
      *arguments: Its arguments.

    Raises:
      RuntimeFailureError: If the worker died or rejected the computation.
    """
    self._worker.check_alive()
    try:
      with tff_compat.in_context(self._context):
        return computation(*arguments)
    except Exception as error:
      self._worker.check_alive()
      raise errors.RuntimeFailureError(
        f'{what}: the TFF worker at {self.address} refused the computation: '
        f'{_words_of(error)}. Is it of TFF 0.87? '
        '--config.runtime.name=debug names the stage and the client'
      ) from error


def _words_of(error: Exception) -> str:
  """Returns the text of an error, in one line."""
  said = error.details() if isinstance(error, grpc.Call) else error
  return f'{type(error).__name__}: {" ".join(str(said).split())}'
