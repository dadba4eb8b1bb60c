"""Rendezvous and failure detection among the processes of a training.

TensorFlow's collectives fail on every process when one is lost, but not every
process can determine which one: the failure may be reported by a neighbour that
has ended for the same reason. So each process keeps one TCP connection to
process 0, which detects the first process to end and informs the others.

A connection carries lines of JSON, neither authenticated nor encrypted, like
those of TensorFlow's server, which takes over the address of process 0. It
listens on loopback if all addresses are there, else on every interface. What
is no process of this training is refused with a line in the log.
"""

import contextlib
import json
import os
import queue
import select
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from absl import logging

from tff_algos.core import config as config_lib
from tff_algos.core import errors, hosts
from tff_algos.runtimes.distributed import process_cluster as cluster_lib

_RETRY_SECONDS = 0.2
# A running process answers at once.
_ANSWER_SECONDS = 10.0
# A message is some kilobytes: the options of an experiment.
_LARGEST_BYTES = 1 << 22
_CHUNK_BYTES = 1 << 16
# A failed machine does not close its connections: detected by keep-alives.
_SILENCE_SECONDS = 10


class Peers:
  """This process's connections to the others; use as a context manager."""

  def __init__(
    self,
    cluster: cluster_lib.Cluster,
    identity: Mapping[str, Any],
    timeout_seconds: float,
  ):
    """Opens no connection yet.

    Args:
      cluster: Two or more processes, and the index of this one.
      identity: Config entries that must be equal on all, JSON-ready.
      timeout_seconds: Maximal wait for the other processes to start, > 0.
    """
    self._cluster = cluster
    self._identity = json.loads(json.dumps(identity))
    self._timeout_seconds = timeout_seconds
    self._connections: dict[int, _Connection] = {}
    self._threads: list[threading.Thread] = []
    self._lost: str | None = None
    self._has_ended = False
    self._when_lost: Callable[[str], None] = lambda _: None
    self._is_lost = threading.Event()
    self._lock = threading.Lock()

  def __enter__(self) -> 'Peers':
    """Returns when all processes are connected and have the same identity.

    Raises:
      ConfigError: If a process has another identity; names the differences.
      RuntimeFailureError: If the address of this process is in use, or a
        process does not connect in time; names it.
    """
    listener = self._listen()
    try:
      with listener:
        if self._cluster.is_leader:
          self._await_all(listener)
      if not self._cluster.is_leader:
        self._join()
    except BaseException as error:
      self.__exit__(type(error), error, None)
      raise
    for index, connection in self._connections.items():
      thread = threading.Thread(
        target=self._watch, args=(index, connection), daemon=True
      )
      thread.start()
      self._threads.append(thread)
    return self

  def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
    """Notifies the others that this process ends, and of the reason."""
    with self._lock:
      self._has_ended = True
      farewell = self._lost or _farewell(self._name, error)
    for connection in self._connections.values():
      connection.send({'lost': farewell})
      connection.close()
    for thread in self._threads:
      thread.join()

  def check(self, patience_seconds: float = 0.0) -> None:
    """Raises if a process is lost.

    Args:
      patience_seconds: Wait for the notification, when a failure is suspected.

    Raises:
      RuntimeFailureError: Names the process, and the reason if it sent one.
    """
    if self._is_lost.wait(patience_seconds):
      raise errors.LostProcessError(
        f'{self._lost}. Start all processes again to resume from the latest '
        'checkpoint'
      )

  def when_lost(self, callback: Callable[[str], None]) -> None:
    """Registers a callback, called from a thread with the reason of a loss."""
    self._when_lost = callback

  @property
  def _name(self) -> str:
    return self._cluster.name_of(self._cluster.index)

  def _listen(self) -> socket.socket:
    """Binds the address of this process exclusively."""
    address = self._cluster.addresses[self._cluster.index]
    host, port = hosts.split(address)
    try:
      # The host name of another interface may be unknown here, behind a NAT.
      bound = host if self._cluster.is_on_loopback else ''
      return socket.create_server((bound, port), family=hosts.family(host))
    except OSError as error:
      raise errors.RuntimeFailureError(
        f'cannot listen at {address}, the address of {self._name} in '
        f'TF_CONFIG: {os.strerror(error.errno)}. End the program that does, '  # pyright: ignore[reportArgumentType]
        'or take another port'
      ) from error

  def _await_all(self, listener: socket.socket) -> None:
    deadline = time.monotonic() + self._timeout_seconds
    expected = set(range(1, len(self._cluster.addresses)))
    told: set[int] = set()
    # Each is greeted by a thread: a silent stranger would keep the others
    # waiting for their answers.
    silent: set[_Connection] = set()
    greeted: queue.SimpleQueue[tuple[_Connection, str, dict[str, Any]]] = (
      queue.SimpleQueue()
    )

    def greet(connection: _Connection, host: str) -> None:
      greeted.put((connection, host, connection.receive(_ANSWER_SECONDS)))

    while True:
      # A process may have ended again while this one waited for the others.
      for index in [i for i, c in self._connections.items() if c.is_closed()]:
        self._connections.pop(index).close()
      missing = expected - {*self._connections}
      if not missing:
        break
      if missing != told:
        logging.info('Waiting for %s.', self._names(missing))
        told = missing
      if time.monotonic() > deadline:
        raise errors.LostProcessError(
          f'{self._names(missing)} did not come within '
          f'{self._timeout_seconds:g} s. Start the same command there, with '
          'its task.index in TF_CONFIG'
        )
      listener.settimeout(_RETRY_SECONDS)
      with contextlib.suppress(TimeoutError):
        opened, (host, *_) = listener.accept()
        silent.add(connection := _Connection(opened))
        threading.Thread(
          target=greet, args=(connection, host), daemon=True
        ).start()
      while not greeted.empty():
        connection, host, hello = greeted.get()
        silent.remove(connection)
        self._welcome(connection, host, hello)
    for connection in silent:
      connection.close()
    for index, connection in self._connections.items():
      self._compare(index, connection.identity)
    for connection in self._connections.values():
      connection.send({'begin': True})

  def _welcome(
    self, connection: '_Connection', host: str, hello: Mapping[str, Any]
  ) -> None:
    index = hello.get('index')
    if index not in range(1, len(self._cluster.addresses)):
      logging.warning(
        'Refused a connection from %s: no process of this training.', host
      )
      connection.close()
      return
    if index in self._connections:
      # The earlier process may be dead without a closed connection.
      self._connections[index].send(
        {'lost': f'another process came as {self._cluster.name_of(index)}'}
      )
      self._connections[index].close()
    self._connections[index] = connection  # pyright: ignore[reportArgumentType]
    connection.identity = hello.get('identity')
    connection.send({'wait': True})

  def _compare(self, index: int, identity: Any) -> None:
    differences = config_lib.differences(self._identity, identity, 'here')
    if differences:
      raise errors.ConfigError(
        f'{self._cluster.name_of(index)} does not run what {self._name} runs '
        f'({"; ".join(differences)}). Give all the same command, and the same '
        'files'
      )

  def _join(self) -> None:
    leader = self._cluster.name_of(0)
    self._connections[0] = connection = _Connection(self._connect())
    connection.send({'index': self._cluster.index, 'identity': self._identity})
    if 'wait' not in connection.receive(_ANSWER_SECONDS):
      raise errors.RuntimeFailureError(
        f'what answers at the address of {leader} is another program'
      )
    answer = connection.receive()
    if 'begin' not in answer:
      lost = answer.get('lost', f'{leader} died')
      raise errors.LostProcessError(lost)

  def _connect(self) -> socket.socket:
    """Connects to process 0 as soon as it listens."""
    deadline = time.monotonic() + self._timeout_seconds
    logging.info('Waiting for %s.', self._names({0}))
    while True:
      try:
        connection = socket.create_connection(
          hosts.split(self._cluster.addresses[0]), _ANSWER_SECONDS
        )
        # TCP may connect a port with itself if no process listens there.
        if connection.getsockname() != connection.getpeername():
          return connection
        connection.close()
      except OSError as error:
        if time.monotonic() > deadline:
          raise errors.LostProcessError(
            f'{self._names({0})} did not come within '
            f'{self._timeout_seconds:g} s ({error}). Start the same command '
            'there, with task.index 0 in TF_CONFIG'
          ) from error
      time.sleep(_RETRY_SECONDS)

  def _names(self, indices: set[int]) -> str:
    return ', '.join(self._cluster.name_of(index) for index in sorted(indices))

  def _watch(self, index: int, connection: '_Connection') -> None:
    died = f'{self._cluster.name_of(index)} died or cannot be reached any more'
    lost = connection.receive().get('lost', died)
    with self._lock:
      if not lost or self._lost or self._has_ended:
        return
      self._lost = lost
      self._is_lost.set()
      for other in self._connections.values():
        other.send({'lost': lost})
    self._when_lost(lost)


class _Connection:
  """One end of a TCP connection; every failure is treated as its end.

  Attributes:
    identity: The identity that the other process sent.
  """

  def __init__(self, opened: socket.socket):
    self.identity: Any = None
    self._socket = opened
    for option, value in (
      (socket.TCP_KEEPIDLE, _SILENCE_SECONDS // 2),
      (socket.TCP_KEEPINTVL, 1),
      (socket.TCP_KEEPCNT, _SILENCE_SECONDS // 2),
      (socket.TCP_USER_TIMEOUT, _SILENCE_SECONDS * 1000),
      (socket.TCP_NODELAY, 1),
    ):
      opened.setsockopt(socket.IPPROTO_TCP, option, value)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    self._received = b''

  def send(self, message: Mapping[str, Any]) -> None:
    with contextlib.suppress(OSError):
      self._socket.sendall(json.dumps(message).encode() + b'\n')

  def receive(self, timeout_seconds: float | None = None) -> dict[str, Any]:
    """Returns the next message; empty if the connection ends or is no peer's.

    Args:
      timeout_seconds: Time for the whole message; None for no limit.
    """
    deadline = time.monotonic() + (timeout_seconds or 0)
    # A stranger may send anything; only deep nesting raises RecursionError.
    with contextlib.suppress(OSError, ValueError, RecursionError):
      while b'\n' not in self._received:
        if timeout_seconds is not None:
          left = deadline - time.monotonic()
          timeout_seconds = max(left, 1e-3)
        self._socket.settimeout(timeout_seconds)
        chunk = self._socket.recv(_CHUNK_BYTES)
        self._received += chunk
        if not chunk or len(self._received) > _LARGEST_BYTES:
          return {}
      line, _, self._received = self._received.partition(b'\n')
      message = json.loads(line)
      if isinstance(message, dict):
        return message
    return {}

  def is_closed(self) -> bool:
    """Returns whether the other end has closed; expects no pending message."""
    return bool(select.select([self._socket], [], [], 0)[0])

  def close(self) -> None:
    with contextlib.suppress(OSError):
      self._socket.shutdown(socket.SHUT_RDWR)
    self._socket.close()


def _farewell(name: str, error: BaseException | None) -> str:
  """Returns the reason why a process ends; empty without an error."""
  if error is None:
    return ''
  if isinstance(error, (KeyboardInterrupt, SystemExit)):
    return f'{name} was interrupted'
  if isinstance(error, errors.UserError):
    return f'{name} ended: {error}'
  return f'{name} failed: {type(error).__name__}: {error}'
