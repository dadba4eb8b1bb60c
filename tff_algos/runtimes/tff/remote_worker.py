"""Remote TFF worker, already running and reached over the network."""

import grpc

from tff_algos.core import errors

# Timeout of a probe of a worker that has answered before, in seconds.
_PROBE_SECONDS = 5.0


class RemoteWorker:
  """A worker at an address, with the interface of `local_worker.LocalWorker`.

  TFF's workers do not authenticate clients and listen on every interface; see
  `loopback.require_trust`.
  """

  def __init__(self, address: str, *, start_timeout_seconds: float = 30.0):
    """Opens no connection yet.

    Args:
      address: `host:port`.
      start_timeout_seconds: Maximal wait for the worker to answer, > 0.
    """
    self._address = address
    self._start_timeout_seconds = start_timeout_seconds

  @property
  def address(self) -> str:
    """Returns `host:port`."""
    return self._address

  def start(self) -> None:
    """Waits until the worker answers.

    Raises:
      RuntimeFailureError: If the worker does not answer in time.
    """
    self._probe(self._start_timeout_seconds)

  def check_alive(self) -> None:
    """Raises RuntimeFailureError if the worker no longer answers."""
    self._probe(_PROBE_SECONDS)

  def close(self) -> None:
    """Leaves the worker running, which this process does not own."""

  def _probe(self, timeout_seconds: float) -> None:
    options = [('grpc.enable_http_proxy', 0)]
    with grpc.insecure_channel(self._address, options) as channel:
      try:
        grpc.channel_ready_future(channel).result(timeout_seconds)
      except grpc.FutureTimeoutError:
        raise errors.LostProcessError(
          f'the TFF worker at {self._address} does not answer within '
          f'{timeout_seconds:g} s. Is its worker_binary running there with '
          '--port of that number, and does a firewall let us through?'
        ) from None
