"""Live table of the runs of a sweep that are executed, with the time left.

A run tells its progress by its `metrics.csv`, so that it may be executed by
another process or machine.
"""

import csv
import pathlib
import shutil
import sys
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import tqdm
from absl import logging

from tff_algos.experiments.sweeps import run_process
from tff_algos.reports.sweep import plan as plan_lib

_SECONDS_BETWEEN = 1.0


class _Start(NamedTuple):
  """Start of a run: time and round."""

  seconds: float
  round_num: int


class ProgressTable:
  """The table; use as a context manager.

  In a terminal the table is redrawn below the log; elsewhere the log has a line
  for each run that ends.
  """

  def __init__(self, num_rounds: int):
    """Draws nothing yet.

    Args:
      num_rounds: Rounds of all runs together, an upper bound.
    """
    self._num_rounds = num_rounds
    handler = logging.get_absl_handler()
    assert handler is not None  # absl makes it when it is imported.
    self._handler = handler
    self._tasks: dict[str, run_process.Task] = {}
    self._starts: dict[str, _Start] = {}
    self._num_ended = 0
    self._rounds_of_ended = 0
    self._begun = time.monotonic()
    self._drawn_at = -_SECONDS_BETWEEN
    self._num_lines = 0

  def __enter__(self) -> 'ProgressTable':
    self._handler.addFilter(self._make_room)
    return self

  def __exit__(self, *exc_info: Any) -> None:
    self._handler.removeFilter(self._make_room)
    self._erase()

  def begin(self, task: run_process.Task) -> None:
    """Adds a run; the rounds that it has already are not counted."""
    round_num = num_rounds(task.folder)
    self._tasks[task.run] = task
    self._starts[task.run] = _Start(time.monotonic(), round_num)
    self._num_rounds -= round_num

  def finish(self, task: run_process.Task) -> None:
    """Removes a run that has ended, perhaps before its last round."""
    round_num = self._round_of(task)
    start = self._starts.pop(task.run)
    done = round_num - start.round_num
    self._rounds_of_ended += done
    self._num_rounds -= task.num_rounds - start.round_num - done
    del self._tasks[task.run]
    self._num_ended += 1
    logging.info('%s has ended; %s.', task.run, self.lines()[0])

  def show(self) -> None:
    """Redraws the table in a terminal, at most once a second."""
    now = time.monotonic()
    if sys.stderr.isatty() and now - self._drawn_at >= _SECONDS_BETWEEN:
      self._drawn_at = now
      self._erase()
      width = shutil.get_terminal_size().columns - 1
      lines = [line[:width] for line in self.lines()]
      sys.stderr.write(''.join(f'{line}\n' for line in lines))
      sys.stderr.flush()
      self._num_lines = len(lines)

  def lines(self) -> list[str]:
    """Returns the lines of the table: all runs, then each running one."""
    now = time.monotonic()
    rows, done = [], self._rounds_of_ended
    for run, task in self._tasks.items():
      round_num = self._round_of(task)
      start = self._starts[run]
      done += round_num - start.round_num
      left = _left(
        now - start.seconds,
        round_num - start.round_num,
        task.num_rounds - round_num,
      )
      rows.append((run, f'round {round_num} of {task.num_rounds}', left))
    left = _left(now - self._begun, done, self._num_rounds - done)
    total = f'{self._num_ended} ended, {len(rows)} running, {left}'
    return [total, *plan_lib.aligned(rows)]

  def _round_of(self, task: run_process.Task) -> int:
    """Returns the round of a run, which resumes before its start's rows."""
    round_num, start = num_rounds(task.folder), self._starts[task.run]
    again = start.round_num - round_num
    if again > 0:
      self._starts[task.run] = start._replace(round_num=round_num)
      self._num_rounds += again
    return round_num

  def _make_room(self, record: Any) -> bool:
    """Erases the table before a line of the log, which is shown."""
    del record
    self._erase()
    return True

  def _erase(self) -> None:
    if self._num_lines:
      sys.stderr.write(f'\x1b[{self._num_lines}A\x1b[J')
      self._num_lines = 0


def num_rounds(folder: pathlib.Path) -> int:
  """Returns the number of rounds in a run's `metrics.csv`."""
  try:
    num_lines = (folder / 'metrics.csv').read_bytes().count(b'\n')
  except FileNotFoundError:
    return 0
  # The header and the row of round 0.
  return max(0, num_lines - 2)


def num_bytes(folder: pathlib.Path) -> int:
  """Returns the size of a run's `metrics.csv`, 0 without one."""
  try:
    return (folder / 'metrics.csv').stat().st_size
  except FileNotFoundError:
    return 0


def read_rounds(folder: pathlib.Path) -> list[Mapping[str, str]]:
  """Returns the whole rows of a run's `metrics.csv`, which may be growing.

  Row n is that of the run's n-th round; `round` of a continued run counts from
  the first run.
  """
  try:
    text = (folder / 'metrics.csv').read_text()
  except FileNotFoundError:
    return []
  whole = text[: text.rfind('\n') + 1]
  return list(csv.DictReader(whole.splitlines()))


def _left(seconds: float, done: int, rest: int) -> str:
  """Returns the time for the other rounds, at the speed so far."""
  if not done:
    return 'time left unknown'
  interval = tqdm.tqdm.format_interval(seconds / done * max(rest, 0))
  return f'{interval} left'
