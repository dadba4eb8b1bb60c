"""A TFF worker that somebody else started, reached over the network."""

import grpc

from tff_algos.core import checks, errors

# How long a worker that answered before may take to answer a probe.
_PROBE_SECONDS = 5.0


class RemoteWorker:
  """The same face as `worker.LocalWorker`, for an address.

  TFF's workers do not ask who calls and listen on every interface: let a
  firewall decide who reaches them.
  """

  def __init__(self, address: str, *, start_timeout_seconds: float = 30.0):
    """Connects to nothing yet.

    Args:
      address: `host:port`.
      start_timeout_seconds: How long the worker may take to answer, > 0.

    Raises:
      ConfigError: If the address is not of that form.
    """
    self._address = checks.check_address('worker address', address)
    self._start_timeout_seconds = checks.check_positive(
      'start_timeout_seconds', start_timeout_seconds
    )

  @property
  def address(self) -> str:
    """Returns `host:port`."""
    return self._address

  def start(self) -> None:
    """Waits until the worker answers.

    Raises:
      RuntimeFailureError: If it does not in time.
    """
    self._probe(self._start_timeout_seconds)

  def check_alive(self) -> None:
    """Raises RuntimeFailureError if the worker no longer answers."""
    self._probe(_PROBE_SECONDS)

  def close(self) -> None:
    """Leaves the worker running: it is not ours."""

  def _probe(self, timeout_seconds: float) -> None:
    options = [('grpc.enable_http_proxy', 0)]
    with grpc.insecure_channel(self._address, options) as channel:
      try:
        grpc.channel_ready_future(channel).result(timeout_seconds)
      except grpc.FutureTimeoutError:
        raise errors.RuntimeFailureError(
          f'the TFF worker at {self._address} does not answer within '
          f'{timeout_seconds:g} s. Is its worker_binary running there with '
          '--port of that number, and does a firewall let us through?'
        ) from None
