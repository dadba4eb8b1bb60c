"""The worker process of the runtime `pjrt`, and the requests to it."""

import contextlib
import errno
import itertools
import os
import pathlib
import socket
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import logging

from tff_algos.core import errors
from tff_algos.runtimes import child_process, interrupts
from tff_algos.runtimes.pjrt import held_states, lowering, pjrt_config
from tff_algos.runtimes.pjrt.worker import frames

_PROGRAM = pathlib.Path(__file__).parent / 'worker' / 'worker.py'
# XLA's status where an array or a program does not fit.
_NO_MEMORY = 'RESOURCE_EXHAUSTED'


class Connection:
  """A worker process with the devices of this machine.

  Use it as a context manager, which starts and ends the process.

  Attributes:
    is_open: Whether requests can be sent.
    platform: `'cpu'`, `'gpu'` or `'tpu'`.
    device_kind: The kind of the devices, and the version of jax: what the
      bits of a result depend on.
    memory_bytes: Memory of all chosen devices; of CPUs, that of the machine.
    device_bytes: Memory of the smallest one.
  """

  def __init__(
    self, config: pjrt_config.PjrtConfig, devices: tuple[str, ...] = ()
  ):
    """Takes the options; `with` starts the worker.

    Args:
      config: Options of the runtime.
      devices: Devices such as `'GPU:0'`, among which blocks are divided; none
        for all GPUs or TPUs, or one CPU.
    """
    self._config = config
    self._devices = devices
    self._stack = contextlib.ExitStack()
    self._programs: dict[str, lowering.Lowered] = {}
    self._seconds = 0.0
    self._dropped: list[str] = []
    self._held: weakref.WeakSet[held_states.Stack] = weakref.WeakSet()
    self._numbers = itertools.count()
    self.is_open = False

  def __enter__(self) -> 'Connection':
    python = self._config.python_path
    if not (python.is_file() and os.access(python, os.X_OK)):
      raise errors.ConfigError(
        f"config.runtime.name='pjrt' needs a Python with jax at {python}: run "
        '`make env-accelerator`, or name another by config.runtime.pjrt.python'
      )
    cache = self._config.cache_path
    try:
      cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
      raise errors.ConfigError(
        f'compiled programs cannot be kept in {cache} ({error.strerror}): name '
        'another folder by config.runtime.pjrt.cache'
      ) from None
    with contextlib.ExitStack() as stack:
      self._socket, theirs = socket.socketpair()
      stack.enter_context(self._socket)
      with theirs:
        self._process = child_process.ChildProcess(
          'accelerator worker',
          # Isolated from variables and packages of the user, but for `frames`.
          [
            str(python),
            '-EsB',
            str(_PROGRAM),
            str(theirs.fileno()),
            str(cache),
          ],
          env={'TF_CPP_MIN_LOG_LEVEL': '0'},
          pass_fds=[theirs.fileno()],
        )
        stack.callback(self._process.end)
        self._process.start()
      self._socket.settimeout(self._config.start_timeout_seconds)
      words, _ = self.request('hello', devices=self._devices)
      self._socket.settimeout(None)
      self._choose(words)
      self._stack = stack.pop_all()
    self.is_open = True
    return self

  def __exit__(self, *exc_info: Any) -> None:
    if self.is_open and self._process.is_running:
      # Their owners may outlive the worker.
      for stack in list(self._held):
        with contextlib.suppress(errors.RuntimeFailureError):
          stack.fetch()
    self.is_open = False
    if self._programs:
      logging.info(
        'Compiled %d programs in %.1f s.', len(self._programs), self._seconds
      )
    self._stack.close()

  def _choose(self, words: dict[str, Any]) -> None:
    """Notes and logs the devices.

    Raises:
      ConfigError: If a device does not exist; lists those that do.
    """
    existing = {device['name']: device for device in words['devices']}
    for name in self._devices:
      if name not in existing:
        raise errors.ConfigError(
          f'config.runtime.devices names {name!r}, which the accelerator '
          f'worker does not see; it sees: {", ".join(existing)}'
        )
    chosen = [device for device in existing.values() if device['chosen']]
    kinds = {device['kind'] for device in chosen}
    self.platform: str = chosen[0]['platform']
    self.device_kind = f'{", ".join(sorted(kinds))}, jax {words["jax"]}'
    bytes_ = [device['bytes'] for device in chosen]
    self.device_bytes = min(bytes_)
    self.memory_bytes = max(bytes_) if self.platform == 'cpu' else sum(bytes_)
    logging.info(
      'Accelerator worker %d: jax %s on %s (%s).',
      self._process.pid,
      words['jax'],
      ', '.join(device['name'] for device in chosen),
      ', '.join(sorted(kinds)),
    )

  def compile(self, program: lowering.Lowered) -> None:
    """Compiles a program, unless this worker already has."""
    if program.name in self._programs:
      return
    words, _ = self.request(
      'compile',
      [program.hlo],
      name=program.name,
      arguments=program.arguments,
      outputs=program.outputs,
    )
    self._programs[program.name] = program
    self._seconds += words['seconds']

  def keep(self, name: str, arrays: Sequence[np.ndarray]) -> None:
    """Moves arrays to the device under a name, in place of earlier ones."""
    self.request('keep', arrays, name=name)

  def stack(
    self,
    types: Sequence[tuple[str, list[int]]],
    size: int,
    pieces: Sequence[tuple[str, list[int], list[int]]] = (),
    arrays: Sequence[np.ndarray] = (),
  ) -> held_states.Stack:
    """Makes a stack of client states, see `worker.Worker.stack`."""
    made = self.new_stack(types, size)
    self.request('stack', arrays, name=made.name, size=size, pieces=pieces)
    return made

  def new_stack(
    self, types: Sequence[tuple[str, list[int]]], size: int
  ) -> held_states.Stack:
    """Returns a stack that a run will fill."""
    made = held_states.Stack(self, f'states {next(self._numbers)}', size, types)
    self._held.add(made)
    return made

  def fetch(self, name: str) -> list[np.ndarray]:
    """Returns the leaves of a stack of client states.

    Raises:
      RuntimeFailureError: If the worker died or has ended.
    """
    with interrupts.held():
      return self.request('fetch', name=name)[1]

  def forget(self, name: str) -> None:
    """Drops a stack or kept arrays from the devices, with the next request."""
    self._dropped.append(name)

  def run(
    self,
    program: lowering.Lowered,
    shared: Sequence[str],
    num_sums: int,
    first: int,
    old: Sequence[held_states.Stack],
    new: Sequence[held_states.Stack],
    arrays: Sequence[np.ndarray],
  ) -> None:
    """Starts a compiled program on some blocks, see `worker.Worker.run`."""
    self.request(
      'run',
      arrays,
      program=program.name,
      shared=list(shared),
      num_sums=num_sums,
      first=first,
      old=[stack.name for stack in old],
      new=[stack.name for stack in new],
    )

  def finish(self) -> list[np.ndarray]:
    """Returns the results of the runs since the one whose `first` was 0.

    Returns:
      The sums, then the collected outputs, `[num_blocks, ...]`.

    Raises:
      RuntimeFailureError: If a program failed, or the worker died.
    """
    return self.request('finish')[1]

  def request(
    self, request: str, arrays: Sequence[np.ndarray] = (), **words: Any
  ) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Returns the worker's answer.

    Args:
      request: A method of `worker.Worker`.
      arrays: Its arrays.
      **words: Its other arguments.

    Raises:
      RuntimeFailureError: If the worker died or answers with an error, an
        earlier request was interrupted, or this process lacks memory or files.
    """
    dropped, self._dropped = self._dropped, []
    header = {'request': request, 'drop': dropped, **words}
    try:
      message = self._exchange(header, arrays)
    except TimeoutError as error:
      raise errors.LostProcessError(
        'the accelerator worker did not answer within '
        f'{self._config.start_timeout_seconds:g} s. It said:\n'
        f'{self._process.tail()}'
      ) from error
    except ConnectionError:
      message = None
    except OSError as error:
      if error.errno != errno.EBADF:  # That is closed at this end.
        raise errors.LostProcessError(
          f'no memory or file for arrays of the accelerator worker: {error}'
        ) from error
      message = None
    if message is None:
      self._process.wait()
      self._process.check_running()
      raise errors.RuntimeFailureError(
        'the accelerator worker closed, or a request to it was interrupted. It '
        f'said:\n{self._process.tail()}'
      )
    answer, results = message
    if 'error' in answer:
      told = f'the accelerator worker failed in {request!r}: {answer["error"]}'
      if _NO_MEMORY in told:
        told += (
          '\nThe device has too little memory: lower '
          'config.runtime.pjrt.clients_per_block, with which the run resumes, '
          'or let no other process use the device. If the splits alone do not '
          "fit, take config.runtime.name='vectorized', which streams them."
        )
      raise errors.RuntimeFailureError(told)
    return answer, results

  def _exchange(
    self, header: dict[str, Any], arrays: Sequence[np.ndarray]
  ) -> tuple[dict[str, Any], list[np.ndarray]] | None:
    """Sends a request and returns the answer; None if the worker has closed."""
    try:
      frames.send(self._socket, header, arrays)
      return frames.receive(self._socket)
    except BaseException:
      # The next request would take the answer to this one for its own.
      self.is_open = False
      self._socket.close()
      raise
