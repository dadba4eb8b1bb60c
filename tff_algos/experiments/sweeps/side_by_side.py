"""Runs of a sweep side by side, each in a process of its own."""

import contextlib
import os
import pathlib
import time
from collections.abc import Iterator, Sequence
from typing import Protocol

from absl import logging

from tff_algos.core import config as config_lib
from tff_algos.core import errors
from tff_algos.experiments import experiment
from tff_algos.experiments.sweeps import (
  grid,
  progress_table,
  run_process,
  runs,
)
from tff_algos.reports.sweep import plan as plan_lib

_POLL_SECONDS = 0.2


class Handle(Protocol):
  """A started run."""

  def poll(self) -> str | None:
    """Returns None while it runs; then `run_process.read_failure`'s text."""
    ...

  def terminate(self) -> None:
    """Asks it to save the last whole round and to exit; does not wait."""
    ...

  def end(self) -> None:
    """Waits for the exit after `terminate`."""
    ...


class Engine(Protocol):
  """Starts processes of runs."""

  @property
  def capacity(self) -> int:
    """Returns how many runs it executes at the same time."""
    ...

  def start(self, task: run_process.Task) -> Handle:
    """Starts a run."""
    ...


class Queue(Protocol):
  """Source of runs, and receiver of their results."""

  @property
  def num_rounds(self) -> int:
    """Returns the rounds of all runs together, an upper bound."""
    ...

  def take(self) -> run_process.Task | None:
    """Returns the next run; None if there is none before others have ended."""
    ...

  def is_wanted(self, task: run_process.Task) -> bool:
    """Returns whether a run that is executed shall go on."""
    ...

  def settle(
    self, task: run_process.Task, error: errors.UserError | None
  ) -> None:
    """Receives the end of a wanted run.

    Args:
      task: The run.
      error: Why it was refused; None if it is finished.
    """
    ...


class LocalProcesses:
  """Engine of this machine.

  Attributes:
    capacity: Number of runs at the same time.
  """

  def __init__(self, num_parallel: int):
    """Takes the number of runs at the same time, which share the cores."""
    self.capacity = num_parallel
    cores = len(os.sched_getaffinity(0))
    self._num_threads = max(1, cores // num_parallel)

  def start(self, task: run_process.Task) -> run_process.RunProcess:
    """Starts the process of a run."""
    return run_process.RunProcess(task, self._num_threads)


def sweep(
  expanded: grid.Grid,
  folder: str | os.PathLike[str],
  engine: Engine,
  plugins: Sequence[str] = (),
) -> plan_lib.Plan:
  """Executes the unfinished runs of a sweep; as `runs.sweep`, side by side.

  Args:
    expanded: Grid of the sweep.
    folder: Folder of the sweep.
    engine: Where the runs are executed.
    plugins: Plug-ins that the configs need.
  """
  workdir = pathlib.Path(folder).absolute()
  with grid.recording(expanded.plan, workdir) as refused:
    execute(_GridQueue(expanded, workdir, plugins, refused), engine)
  return plan_lib.read(workdir)


def execute(queue: Queue, engine: Engine) -> None:
  """Executes all runs of a queue.

  Args:
    queue: The runs.
    engine: Where they are executed.

  Raises:
    InfrastructureError: If the disk or a machine fails; all other runs end,
      and may be resumed.
    RuntimeError: For a bug in a run, likewise.
  """
  running: dict[str, tuple[run_process.Task, Handle]] = {}
  waiting, has_told = None, False
  table = progress_table.ProgressTable(queue.num_rounds)
  with _all_ended(running), table:
    while True:
      # Workers may come between two looks at it.
      capacity = engine.capacity
      # If nothing runs, a run is taken without a worker, too: is there one?
      while len(running) < max(capacity, 1) and (
        waiting := waiting or queue.take()
      ):
        if not capacity:
          break
        try:
          running[waiting.run] = waiting, engine.start(waiting)
          table.begin(waiting)
        except errors.RuntimeFailureError as error:  # No memory for a process.
          logging.warning('%s is refused: %s', waiting.run, error)
          queue.settle(waiting, error)
        waiting = None
      if not running and not waiting:
        return
      if not running and not has_told:
        logging.warning('There is no worker; the sweep waits for one.')
      has_told = not running
      for task, handle in list(running.values()):
        if _is_over(queue, task, handle):
          del running[task.run]
          table.finish(task)
      table.show()
      time.sleep(_POLL_SECONDS)


def _is_over(queue: Queue, task: run_process.Task, handle: Handle) -> bool:
  """Returns whether a run has ended; ends it if it is not wanted."""
  try:
    text = handle.poll()
    error = None if text is None else run_process.read_failure(text)
  except errors.RuntimeFailureError as lost:
    text, error = '', lost
  if not queue.is_wanted(task):
    handle.terminate()
    handle.end()
    return True
  if text is None:
    return False
  handle.end()
  if isinstance(error, errors.InfrastructureError) or not (
    error is None or isinstance(error, errors.UserError)
  ):
    raise error
  if error is not None:
    logging.warning('%s is refused: %s', task.run, error)
  queue.settle(task, error)
  return True


@contextlib.contextmanager
def _all_ended(
  running: dict[str, tuple[run_process.Task, Handle]],
) -> Iterator[None]:
  """Ends all runs at the end of the block, at the same time."""
  with contextlib.ExitStack() as stack:
    try:
      yield
    finally:
      for _, handle in running.values():
        stack.callback(handle.end)
        handle.terminate()


class _GridQueue:
  """Runs of a grid.

  Attributes:
    num_rounds: Rounds of all unfinished runs.
  """

  def __init__(
    self,
    expanded: grid.Grid,
    workdir: pathlib.Path,
    plugins: Sequence[str],
    refused: dict[str, str],
  ):
    self._refused = refused
    self._tasks: list[run_process.Task] = []
    for run, config in zip(expanded.plan.runs, expanded.configs, strict=True):
      if runs.is_finished(config, workdir / run.folder):
        logging.info('%s was finished before.', run.folder)
      else:
        self._tasks.append(make_task(config, workdir, run.folder, plugins))
    self._waiting = iter(self._tasks)

  @property
  def num_rounds(self) -> int:
    return sum(task.num_rounds for task in self._tasks)

  def take(self) -> run_process.Task | None:
    return next(self._waiting, None)

  def is_wanted(self, task: run_process.Task) -> bool:
    del task
    return True

  def settle(
    self, task: run_process.Task, error: errors.UserError | None
  ) -> None:
    if error is not None:
      self._refused[task.run] = str(error)


def make_task(
  config: experiment.ExperimentConfig,
  workdir: pathlib.Path,
  run: str,
  plugins: Sequence[str],
) -> run_process.Task:
  """Returns the task of a run.

  Args:
    config: The experiment.
    workdir: Folder of the sweep, absolute.
    run: Folder of the run, relative to `workdir`.
    plugins: Plug-ins that the config needs.
  """
  return run_process.Task(
    str(workdir), run, config_lib.to_dict(config), tuple(plugins)
  )
