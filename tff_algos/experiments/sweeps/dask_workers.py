"""Runs of a sweep on the workers of a Dask cluster.

Each run is a task of Dask that waits for a process of its own on the worker's
machine, which must see the folder of the sweep under the same path. If a worker
is lost, Dask gives its runs to others, which resume them.
"""

import contextlib
import os
import pathlib
import time
from collections.abc import Iterator
from typing import Any

from absl import logging

from pipelines.engines import dask_cluster
from tff_algos.core import errors, extras
from tff_algos.experiments.sweeps import run_process
from tff_algos.reports.sweep import plan as plan_lib

_TIMEOUT_SECONDS = 30.0
_POLL_SECONDS = 0.2


class DaskWorkers:
  """Engine of a cluster; use as a context manager."""

  def __init__(self, address: str):
    """Takes the address of the scheduler, `'HOST:PORT'`."""
    self._address = address
    self._client: Any = None
    self._stack = contextlib.ExitStack()

  def __enter__(self) -> 'DaskWorkers':
    with extras.importing('dask', f'--dask={self._address}'):
      import distributed
    with contextlib.ExitStack() as stack:
      try:
        self._client = stack.enter_context(
          distributed.Client(
            self._address, set_as_default=False, timeout=_TIMEOUT_SECONDS
          )
        )
        dask_cluster.register_project(self._client)
        if not self.capacity:
          logging.info('Waits for workers of %s.', self._address)
        self._client.wait_for_workers(1, _TIMEOUT_SECONDS)
      except (OSError, TimeoutError, ValueError) as error:
        raise errors.InfrastructureError(
          f'--dask={self._address} has no scheduler with workers: '
          f'{type(error).__name__}: {error}. Start them with `dask scheduler` '
          'and `dask worker`, and give the HOST:PORT that the scheduler logs'
        ) from None
      self._stack = stack.pop_all()
    return self

  def __exit__(self, *exc_info: Any) -> None:
    self._stack.close()

  @property
  def capacity(self) -> int:
    """Returns the number of the workers' threads: one waits for each run."""
    with _failures():
      return sum(self._client.nthreads().values())

  def start(self, task: run_process.Task) -> '_Handle':
    """Sends a run to the cluster."""
    with _failures():
      future = self._client.submit(_execute, tuple(task), pure=False)
    return _Handle(self._client, future)


class _Handle:
  """A run on the cluster."""

  def __init__(self, client: Any, future: Any):
    self._client = client
    self._future = future

  def poll(self) -> str | None:
    if not self._future.done():
      return None
    with _failures():
      return self._future.result()

  def terminate(self) -> None:
    with contextlib.suppress(OSError, TimeoutError):
      self._future.cancel()

  def end(self) -> None:
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    with contextlib.suppress(OSError, TimeoutError):
      while any(self._client.run(_holds, self._future.key).values()):
        if time.monotonic() > deadline:
          break
        time.sleep(_POLL_SECONDS)


@contextlib.contextmanager
def _failures() -> Iterator[None]:
  """Turns errors of the cluster into one of ours."""
  try:
    yield
  except errors.UserError:
    raise
  except Exception as error:  # Such as a worker that is lost repeatedly.
    raise errors.InfrastructureError(
      f'the Dask cluster failed: {type(error).__name__}: {error}. Run the same '
      'command again to resume'
    ) from error


def _holds(key: str, dask_worker: Any) -> bool:
  """Returns whether a worker executes a task, be it cancelled."""
  task = dask_worker.state.tasks.get(key)
  return task is not None and task.state in ('cancelled', 'executing')


def _execute(values: tuple[Any, ...]) -> str:
  """Executes a run in a process of this worker's machine.

  Returns:
    The text of `run_process.read_failure`.

  Raises:
    InfrastructureError: If this machine does not see the folder of the sweep.
    RuntimeFailureError: If the process is lost.
  """
  import distributed

  worker = distributed.get_worker()
  task = run_process.Task(*values)
  if not pathlib.Path(task.workdir, plan_lib.FILE).is_file():
    raise errors.InfrastructureError(
      f'the Dask worker {worker.address} does not see {task.workdir}: take a '
      '--workdir that all machines share'
    )
  cores = len(os.sched_getaffinity(0))
  process = run_process.RunProcess(task, max(1, cores // worker.state.nthreads))
  key = worker.get_current_task()
  try:
    # A task that its client cancels, or whose client is lost, is not executing.
    while (text := process.poll()) is None and (
      worker.state.tasks[key].state == 'executing'
    ):
      time.sleep(_POLL_SECONDS)
  finally:
    process.end()
  return text or ''
