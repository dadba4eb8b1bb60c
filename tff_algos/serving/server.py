"""Lifecycle of the REST and gRPC servers over one model store."""

import contextlib
import errno
import functools
import gc
import json
import os
import pathlib
import signal
import socket
import sys
import threading
import time
from collections.abc import Generator
from concurrent import futures
from typing import NamedTuple

import grpc
import uvicorn
from absl import logging

from tff_algos.core import durable, errors, hosts
from tff_algos.serving import (
  connections,
  grpc_service,
  models,
  refusals,
  rest,
  server_config,
  tls,
)
from tff_algos.serving import lanes as lanes_lib

# Requests at a time of one gRPC connection; others wait at the client.
_MAX_STREAMS = 16
# A connection of gRPC without a request ends then, and makes room for others.
_IDLE_SECONDS = 60
# Connections that the system holds until they are accepted; the limit on those
# of the server comes after.
_BACKLOG = 64
# In one turn of the event loop: requests of others wait for all of them.
_ACCEPTED_AT_ONCE = 1
# Grace period for running requests when the server stops.
_GRACE_SECONDS = 5
_START_SECONDS = 30
# A request needs the interpreter several times.
_SWITCH_SECONDS = 0.001


class Ports(NamedTuple):
  """The TCP ports that a running server listens on."""

  rest_api_port: int
  port: int


@contextlib.contextmanager
def running(
  store: models.ModelStore, config: server_config.ServerConfig
) -> Generator[Ports]:
  """Loads the newest models and runs both servers while the context lasts.

  Args:
    store: Models to serve.
    config: Address and limits.

  Yields:
    The ports.

  Raises:
    UserError: If nothing can be served, a port is in use, the host cannot be
      listened on, other machines could ask without a token or certificate, or
      TLS's files cannot be used.
  """
  certificates = _loaded(store, config)
  with _listening(store, config, certificates) as ports:
    yield ports


def serve_until_signal(
  store: models.ModelStore,
  config: server_config.ServerConfig,
  port_file: str | os.PathLike[str] | None = None,
) -> None:
  """Serves until SIGTERM or SIGINT (Ctrl-C), then shuts down cleanly.

  Until the models are loaded, signals are handled as before.

  Args:
    store: Models to serve.
    config: Address and limits.
    port_file: JSON file to write the ports to; removed at the end, unless
      another server has written its own there.

  Raises:
    UserError: If nothing can be served, a port is in use, or the port file
      cannot be written.
  """
  certificates = _loaded(store, config)
  asked_to_stop = threading.Event()
  with _handled_signals(asked_to_stop):
    sys.setswitchinterval(_SWITCH_SECONDS)
    with (
      _listening(store, config, certificates) as ports,
      _port_file(port_file, ports),
    ):
      # The garbage collector would look at what is loaded again and again, and
      # hold the interpreter for tenths of a second.
      gc.collect()
      gc.freeze()
      logging.info(
        'Serving %s. REST API at %s://%s:%d/v1/models, gRPC at %s:%d. '
        'Ctrl-C ends.',
        ', '.join(store.newest_loaded()),
        'https' if config.tls_certificate else 'http',
        hosts.in_address(config.host),
        ports.rest_api_port,
        hosts.in_address(config.host),
        ports.port,
      )
      asked_to_stop.wait()
      logging.info('Stopping.')


def _loaded(
  store: models.ModelStore, config: server_config.ServerConfig
) -> tls.Certificates | None:
  """Loads what a server needs; returns the files of TLS, if it has it."""
  _check_exposure(config)
  certificates = tls.certificates(config)
  store.load_newest()
  return certificates


@contextlib.contextmanager
def _listening(
  store: models.ModelStore,
  config: server_config.ServerConfig,
  certificates: tls.Certificates | None,
) -> Generator[Ports]:
  with (
    store.refreshed(),
    contextlib.closing(lanes_lib.Lanes(store, config)) as lanes,
    _rest(lanes, certificates) as (rest_server, rest_api_port),
    contextlib.closing(grpc_service.Services(lanes)) as services,
    _grpc(services, config, certificates) as port,
  ):
    try:
      yield Ports(rest_api_port, port)
    finally:
      # Before gRPC waits for its requests: both have the same grace period.
      rest_server.should_exit = True


@contextlib.contextmanager
def _rest(
  lanes: lanes_lib.Lanes, certificates: tls.Certificates | None
) -> Generator[tuple[uvicorn.Server, int]]:
  config = lanes.config
  family = hosts.family(config.host)
  try:
    listener = socket.create_server(
      (config.host, config.rest_api_port), family=family
    )
  except OSError as error:
    raise _listen_error(
      config.host, config.rest_api_port, 'rest_api_port', error
    ) from error
  with listener:
    # Inherited by accepted connections; without it the two small writes of a
    # response are 40 ms apart on a keep-alive connection.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    pace = refusals.Pace(config.max_connections // 4)
    connection = connections.Connection
    if certificates is not None:
      connection = functools.partial(connections.TlsConnection, certificates)
    server = uvicorn.Server(
      uvicorn.Config(
        rest.create_app(lanes, pace),
        loop='asyncio',
        http=functools.partial(connection, config, pace),  # pyright: ignore[reportArgumentType]
        ws='none',
        lifespan='off',
        log_config=None,
        # Not a line for each malformed request.
        log_level='error',
        backlog=_ACCEPTED_AT_ONCE,
        access_log=False,
        # Callers would choose their address, and so the canary, by a header.
        proxy_headers=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
      )
    )
    # Outside the main thread uvicorn installs no signal handlers.
    thread = threading.Thread(
      target=server.run,
      kwargs={'sockets': [listener]},
      name='rest',
      daemon=True,
    )
    port = listener.getsockname()[1]
    thread.start()
    try:
      deadline = time.monotonic() + _START_SECONDS
      while not server.started:
        if not thread.is_alive() or time.monotonic() > deadline:
          raise errors.UserError('the REST server did not start; see the log')
        time.sleep(0.01)
      # asyncio takes one number for both.
      listener.listen(_BACKLOG)
      yield server, port
    finally:
      server.should_exit = True
      thread.join()


@contextlib.contextmanager
def _grpc(
  services: grpc_service.Services,
  config: server_config.ServerConfig,
  certificates: tls.Certificates | None,
) -> Generator[int]:
  server = grpc.server(
    # They wait: the lanes have the threads that work.
    futures.ThreadPoolExecutor(config.max_waiting, thread_name_prefix='grpc'),
    handlers=[services],
    maximum_concurrent_rpcs=config.max_waiting,
    options=[
      # Otherwise a second server could share the port silently.
      ('grpc.so_reuseport', 0),
      ('grpc.max_receive_message_length', config.max_request_bytes),
      ('grpc.max_send_message_length', -1),
      ('grpc.max_allowed_incoming_connections', config.max_connections),
      ('grpc.max_connection_idle_ms', _IDLE_SECONDS * 1000),
      ('grpc.max_concurrent_streams', _MAX_STREAMS),
      # It counts streams until Python has let go of their calls, after the
      # client has the answers and may send others: those it would refuse.
      ('grpc.http.overload_protection', 0),
      (
        'grpc.server_handshake_timeout_ms',
        round(config.receive_seconds * 1000),
      ),
    ],
  )
  address = f'{hosts.in_address(config.host)}:{config.port}'
  try:
    if certificates is None:
      port = server.add_insecure_port(address)
    else:
      port = server.add_secure_port(address, certificates.grpc_credentials())
  except RuntimeError as error:
    # gRPC hides the reason; binding a plain socket reveals it.
    reason = _why_not_listening(config.host, config.port) or error
    raise _listen_error(config.host, config.port, 'port', reason) from error
  server.start()
  try:
    yield port
  finally:
    server.stop(_GRACE_SECONDS).wait()


def _check_exposure(config: server_config.ServerConfig) -> None:
  """Raises UserError if everybody could ask, and nobody has said so."""
  if hosts.is_loopback(config.host):
    return
  if not (config.token_file or config.tls_client_ca or config.is_open):
    raise errors.UserError(
      f'host {config.host!r} may be reached from other machines, and everybody '
      'could ask. Give --token_file or --tls_client_ca, or --is_open if that '
      'is intended.'
    )
  if config.token_file and not config.tls_certificate:
    logging.warning(
      'Tokens travel to host %r as they are, and whoever reads them on the way '
      'can use them. Give --tls_certificate and --tls_key, unless a proxy in '
      'front has TLS.',
      config.host,
    )


def _why_not_listening(host: str, port: int) -> OSError | None:
  try:
    socket.create_server((host, port), family=hosts.family(host)).close()
  except OSError as error:
    return error
  return None


def _listen_error(
  host: str, port: int, flag: str, reason: Exception
) -> errors.UserError:
  if isinstance(reason, OSError) and reason.errno == errno.EADDRINUSE:
    return errors.UserError(
      f'port {port} on {host} is in use. Choose another with --{flag}=PORT, or '
      f'--{flag}=0 for any free one.'
    )
  text = reason.strerror if isinstance(reason, OSError) else str(reason)
  return errors.UserError(
    f'cannot listen on port {port} of host {host!r}: {text}. Choose others '
    f'with --host and --{flag}.'
  )


@contextlib.contextmanager
def _handled_signals(event: threading.Event) -> Generator[None]:
  previous = {
    number: signal.signal(number, lambda *_: event.set())
    for number in (signal.SIGTERM, signal.SIGINT)
  }
  try:
    yield
  finally:
    for number, handler in previous.items():
      signal.signal(number, handler)


@contextlib.contextmanager
def _port_file(
  port_file: str | os.PathLike[str] | None, ports: Ports
) -> Generator[None]:
  if port_file is None:
    yield
    return
  path = pathlib.Path(port_file)
  content = json.dumps(ports._asdict()) + '\n'
  try:
    with durable.replacing(path) as file:
      file.write(content)
  except OSError as error:
    raise errors.UserError(
      f'port file {path} cannot be written: {error.strerror}'
    ) from error
  try:
    yield
  finally:
    # Another server may have written its own.
    with contextlib.suppress(FileNotFoundError):
      if path.read_bytes() == content.encode():
        path.unlink()
