"""The worker process of the runtime `pjrt`, and the requests to it."""

import contextlib
import pathlib
import socket
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import logging

from tff_algos.core import errors
from tff_algos.runtimes import child_process
from tff_algos.runtimes.pjrt import lowering, pjrt_config
from tff_algos.runtimes.pjrt.worker import frames

_PROGRAM = pathlib.Path(__file__).parent / 'worker' / 'worker.py'


class Connection:
  """A worker process with the devices of this machine.

  Use it as a context manager, which starts and ends the process.
  """

  def __init__(self, config: pjrt_config.PjrtConfig):
    """Takes the options; `with` starts the worker."""
    self._config = config
    self._stack = contextlib.ExitStack()
    self._programs: dict[str, lowering.Lowered] = {}
    self._seconds = 0.0

  def __enter__(self) -> 'Connection':
    python = self._config.python_path
    if not python.is_file():
      raise errors.ConfigError(
        f"config.runtime.name='pjrt' needs a Python with jax at {python}: run "
        '`make env-accelerator`, or name another by config.runtime.pjrt.python'
      )
    cache = self._config.cache_path
    cache.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
      self._socket, theirs = socket.socketpair()
      stack.enter_context(self._socket)
      with theirs:
        self._process = child_process.ChildProcess(
          'accelerator worker',
          # Isolated from variables and packages of the user, but for `frames`.
          [str(python), '-Es', str(_PROGRAM), str(theirs.fileno()), str(cache)],
          env={'TF_CPP_MIN_LOG_LEVEL': '0', 'PYTHONDONTWRITEBYTECODE': '1'},
          pass_fds=[theirs.fileno()],
        )
        stack.callback(self._process.end)
        self._process.start()
      self._socket.settimeout(self._config.start_timeout_seconds)
      words, _ = self._request('hello')
      self._socket.settimeout(None)
      kinds = ', '.join(device['kind'] for device in words['devices'])
      self.platform: str = words['devices'][0]['platform']
      logging.info(
        'Accelerator worker %d: jax %s on %s.',
        self._process.pid,
        words['jax'],
        kinds,
      )
      self._stack = stack.pop_all()
    return self

  def __exit__(self, *exc_info: Any) -> None:
    if self._programs:
      logging.info(
        'Compiled %d programs in %.1f s.', len(self._programs), self._seconds
      )
    self._stack.close()

  @property
  def pid(self) -> int | None:
    """Returns the worker's process id."""
    return self._process.pid

  def compile(self, program: lowering.Lowered) -> None:
    """Compiles a program, unless this worker already has."""
    if program.name in self._programs:
      return
    words, _ = self._request(
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
    self._request('keep', arrays, name=name)

  def drop(self, name: str) -> None:
    """Forgets what is kept under a name."""
    self._request('drop', name=name)

  def run(
    self,
    program: lowering.Lowered,
    shared: Sequence[str],
    num_sums: int,
    arrays: Sequence[np.ndarray],
  ) -> list[np.ndarray]:
    """Runs a compiled program on some blocks.

    Args:
      program: The program.
      shared: Names of its first arguments, kept and the same for all blocks.
      num_sums: Number of its first outputs that are summed over the blocks.
      arrays: Its other arguments, `[num_blocks, ...]`.

    Returns:
      The sums, then the other outputs stacked `[num_blocks, ...]`.

    Raises:
      RuntimeFailureError: If the program fails, or the worker died.
    """
    _, results = self._request(
      'run',
      arrays,
      program=program.name,
      shared=list(shared),
      num_sums=num_sums,
    )
    return results

  def _request(
    self, request: str, arrays: Sequence[np.ndarray] = (), **words: Any
  ) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Returns the worker's answer.

    Raises:
      RuntimeFailureError: If the worker died, or answers with an error.
    """
    try:
      frames.send(self._socket, {'request': request, **words}, arrays)
      message = frames.receive(self._socket)
    except TimeoutError as error:
      raise errors.RuntimeFailureError(
        'the accelerator worker did not answer within '
        f'{self._config.start_timeout_seconds:g} s. It said:\n'
        f'{self._process.tail()}'
      ) from error
    except ConnectionError:
      message = None
    if message is None:
      self._process.wait()
      self._process.check_running()
      raise errors.RuntimeFailureError(
        f'the accelerator worker closed. It said:\n{self._process.tail()}'
      )
    answer, results = message
    if 'error' in answer:
      raise errors.RuntimeFailureError(
        f'the accelerator worker failed in {request!r}: {answer["error"]}'
      )
    return answer, results
