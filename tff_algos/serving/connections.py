"""HTTP(S) connections with limits on their number and on time (slow loris)."""

import asyncio
import time
from typing import Any

import h11
import orjson
from absl import logging
from uvicorn.protocols.http import h11_impl

from tff_algos.serving import refusals, server_config, tls

_PATIENCE_SECONDS = 1.0


class Connection(h11_impl.H11Protocol):
  """Ends if the client takes too long to send or to receive.

  While the server works, other limits hold (`lanes.py`).

  At the limit of connections a new one takes the place of that which has not
  sent a whole request for the longest time, if that is more than a second.
  """

  def __init__(
    self,
    limits: server_config.ServerConfig,
    pace: refusals.Pace,
    **arguments: Any,
  ):
    super().__init__(**arguments)
    self._limits = limits
    self._pace = pace
    self._timer: asyncio.TimerHandle | None = None

  def connection_made(self, transport: Any) -> None:
    """Starts the timer, and makes room at the limit of connections."""
    super().connection_made(transport)
    self._start_timer()
    if len(self.connections) > self._limits.max_connections:
      self._make_room()

  def data_received(self, data: bytes) -> None:
    """Parses what was received."""
    super().data_received(data)
    if self._client_state is not self.conn.their_state:
      self._start_timer()

  def pause_writing(self) -> None:
    """Starts the timer for a client that does not read as fast."""
    super().pause_writing()
    if self._timer is None:
      self._end_after(self._limits.answer_seconds)

  def on_response_complete(self) -> None:
    """Waits for the next request; what is not taken by then is dropped."""
    is_unread = self.conn.their_state is h11.SEND_BODY
    super().on_response_complete()  # May begin with the next request.
    self._start_timer()
    if is_unread:
      # The rest of a body that was answered before its end is not read; a
      # client that is reset at once might not see the answer.
      self.flow.pause_reading()
      self.loop.call_later(_PATIENCE_SECONDS, self.transport.close)

  def connection_lost(self, exc: Exception | None) -> None:
    """Stops the timer."""
    self._stop_timer()
    super().connection_lost(exc)

  def send_400_response(self, msg: str) -> None:
    """Refuses what is not HTTP."""
    logging.log_every_n_seconds(logging.INFO, 'Refused: %s', 10, msg)
    self.transport.pause_reading()
    self._end_request()
    self.loop.call_later(
      self._pace.seconds(), self._refuse, 400, f'malformed request: {msg}'
    )

  def _start_timer(self) -> None:
    self._stop_timer()
    self._since = time.monotonic()
    self._client_state = self.conn.their_state
    limits = self._limits
    if self._client_state is h11.IDLE:
      self._end_after(limits.receive_seconds)
    elif (
      self._client_state not in (h11.DONE, h11.MUST_CLOSE)
      or self.cycle.response_complete
    ):
      # The wait for a place, a body before and after it, and its refusal.
      self._end_after(limits.answer_seconds + 3 * limits.receive_seconds)

  def _end_after(self, seconds: float) -> None:
    self._timer = self.loop.call_later(seconds, self.transport.abort)

  def _stop_timer(self) -> None:
    if self._timer is not None:
      self._timer.cancel()
      self._timer = None

  def _make_room(self) -> None:
    waiting = [
      one
      for one in self.connections
      if isinstance(one, Connection)
      and one is not self
      and not one.transport.is_closing()
      and one.conn.their_state in (h11.IDLE, h11.SEND_BODY)
      and one._since < time.monotonic() - _PATIENCE_SECONDS
    ]
    if waiting:
      min(waiting, key=lambda one: one._since).transport.abort()
    else:
      self._refuse(503, 'too many connections; send again later')

  def _end_request(self) -> None:
    """Ends a request whose rest cannot be read."""
    if self.cycle is None or self.cycle.response_complete:
      return
    # The application finds that the client has gone, and answers nobody.
    self.cycle.disconnected = True
    self.cycle.message_event.set()
    if self.cycle.response_started:
      self.transport.abort()

  def _refuse(self, status: int, text: str) -> None:
    if self.transport.is_closing():
      return
    body = orjson.dumps({'error': text}) + b'\n'
    retry = 'retry-after: 1\r\n' if status == 503 else ''
    head = (
      f'HTTP/1.1 {status} {h11_impl.STATUS_PHRASES[status].decode()}\r\n'
      f'content-type: application/json\r\ncontent-length: {len(body)}\r\n'
      f'{retry}connection: close\r\n\r\n'
    )
    self.transport.write(head.encode() + body)
    self.transport.close()


class TlsConnection(Connection):
  """Connection whose handshake counts as the time for its first headers."""

  def __init__(
    self,
    certificates: tls.Certificates,
    limits: server_config.ServerConfig,
    pace: refusals.Pace,
    **arguments: Any,
  ):
    super().__init__(limits, pace, **arguments)
    self._certificates = certificates
    self._handshake: asyncio.Task[None] | None = None
    self._early = b''

  def connection_made(self, transport: Any) -> None:
    """Starts the handshake; before its end the connection has its limits."""
    transport.pause_reading()  # Until TLS reads.
    super().connection_made(transport)
    if not transport.is_closing():
      self._handshake = self.loop.create_task(self._start_tls(transport))

  def data_received(self, data: bytes) -> None:
    """Parses what was received, once it can be answered."""
    if self._is_secure():
      super().data_received(data)
    else:
      self._early += data

  def shutdown(self) -> None:
    """Ends the connection after the request that is answered."""
    if self._is_secure():
      super().shutdown()
    else:
      self.transport.abort()

  async def _start_tls(self, transport: Any) -> None:
    limits = self._limits
    try:
      secure = await self.loop.start_tls(
        transport,
        self,
        self._certificates.context(),
        server_side=True,
        ssl_handshake_timeout=limits.receive_seconds,
        ssl_shutdown_timeout=limits.receive_seconds,
      )
    except OSError as error:
      reason = getattr(error, 'reason', None) or type(error).__name__
      logging.log_every_n_seconds(
        logging.INFO, 'Refused a TLS handshake: %s', 10, reason
      )
      secure = None
    if secure is None or secure.is_closing():
      self.connection_lost(None)
      return
    h11_impl.H11Protocol.connection_made(self, secure)
    self.app_state = {**self.app_state, 'certificate': _subject(secure)}
    self._start_timer()
    early, self._early = self._early, b''
    if early:
      self.data_received(early)

  def _is_secure(self) -> bool:
    return self.transport.get_extra_info('ssl_object') is not None

  def _refuse(self, status: int, text: str) -> None:
    if self._is_secure():
      super()._refuse(status, text)
    else:
      self.transport.abort()


def _subject(transport: asyncio.Transport) -> str:
  certificate = transport.get_extra_info('peercert') or {}
  common_names = [
    value
    for part in certificate.get('subject', ())
    for name, value in part
    if name == 'commonName'
  ]
  others = [value for _, value in certificate.get('subjectAltName', ())]
  return tls.subject(next(iter(common_names), None), others)
