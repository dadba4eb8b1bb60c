"""Rounds and time left of running runs, from their growing files."""

import io
import logging
import sys
import types

import pytest
from absl import logging as absl_logging

from tff_algos.experiments.sweeps import progress_table, run_process


@pytest.fixture
def clock(monkeypatch):
  """A clock that stands at `seconds`."""
  clock = types.SimpleNamespace(seconds=0.0)
  stopped = types.SimpleNamespace(monotonic=lambda: clock.seconds)
  monkeypatch.setattr(progress_table, 'time', stopped)
  return clock


def _task(tmp_path, run, num_rounds=10):
  config = {'training': {'num_rounds': num_rounds}}
  return run_process.Task(str(tmp_path), run, config)


def _write(task, last, tail='', first=0):
  task.folder.mkdir(exist_ok=True)
  rows = ''.join(f'{number},0.5\r\n' for number in range(first, last + 1))
  (task.folder / 'metrics.csv').write_text(f'round,loss\r\n{rows}{tail}')


def test_rounds_of_a_file_that_is_being_written(tmp_path):
  task = _task(tmp_path, 'a')
  assert progress_table.num_rounds(task.folder) == 0
  _write(task, 3, tail='4,0.')
  assert progress_table.num_rounds(task.folder) == 3
  (task.folder / 'metrics.csv').write_text('round,lo')
  assert progress_table.num_rounds(task.folder) == 0


def test_a_continued_run_counts_its_own_rounds(tmp_path, clock):
  task = _task(tmp_path, 'a')
  table = progress_table.ProgressTable(10)
  table.begin(task)
  clock.seconds = 60.0
  _write(task, 23, first=20)
  assert table.lines() == [
    '0 ended, 1 running, 02:20 left',
    'a  round 3 of 10  02:20 left',
  ]


def test_time_left_of_all_runs_and_of_each(tmp_path, clock):
  first, second, third = (_task(tmp_path, run) for run in ('a', 'longer', 'c'))
  _write(first, 4)  # Resumed: these rounds took no time of this sweep.
  table = progress_table.ProgressTable(30)
  table.begin(first)
  table.begin(second)
  assert table.lines() == [
    '0 ended, 2 running, time left unknown',
    'a       round 4 of 10  time left unknown',
    'longer  round 0 of 10  time left unknown',
  ]
  clock.seconds = 60.0
  _write(first, 6)
  _write(second, 1)
  # 3 rounds a minute, and 23 are left; 2 of `a` took a minute.
  assert table.lines() == [
    '0 ended, 2 running, 07:40 left',
    'a       round 6 of 10  02:00 left',
    'longer  round 1 of 10  09:00 left',
  ]
  table.finish(first)  # Stopped early: 4 rounds less.
  assert table.lines()[0] == '1 ended, 1 running, 06:20 left'
  table.begin(third)
  assert table.lines()[0] == '1 ended, 2 running, 06:20 left'


def test_rounds_after_the_checkpoint_are_run_again(tmp_path, clock):
  task = _task(tmp_path, 'a')
  _write(task, 7)
  table = progress_table.ProgressTable(10)
  table.begin(task)
  _write(task, 4)  # It resumes from its checkpoint.
  table.lines()
  clock.seconds = 60.0
  _write(task, 6)
  assert table.lines() == [
    '0 ended, 1 running, 02:00 left',
    'a  round 6 of 10  02:00 left',
  ]
  _write(task, 3)
  table.finish(task)
  assert table._num_rounds == table._rounds_of_ended == 0


class _Terminal(io.StringIO):
  def isatty(self):
    return True


def test_a_terminal_is_redrawn_and_left_clean(tmp_path, clock, monkeypatch):
  terminal = _Terminal()
  monkeypatch.setattr(sys, 'stderr', terminal)
  task = _task(tmp_path, 'a')
  with progress_table.ProgressTable(10) as table:
    table.begin(task)
    table.show()
    first = terminal.getvalue()
    assert first.splitlines()[1].startswith('a  round 0 of 10')
    table.show()
    assert terminal.getvalue() == first
    clock.seconds = 1.0
    table.show()
    assert terminal.getvalue() == first + '\x1b[2A\x1b[J' + first
  assert terminal.getvalue().endswith('\x1b[2A\x1b[J')


def test_a_line_of_the_log_takes_the_place_of_the_table(
  tmp_path, clock, monkeypatch
):
  del clock
  terminal = _Terminal()
  monkeypatch.setattr(sys, 'stderr', terminal)
  handler = absl_logging.get_absl_handler()
  line = logging.makeLogRecord({'msg': 'a is refused'})
  with progress_table.ProgressTable(10) as table:
    table.begin(_task(tmp_path, 'a'))
    table.show()
    shown = terminal.getvalue()
    assert handler.filter(line)
    assert terminal.getvalue() == shown + '\x1b[2A\x1b[J'
  assert terminal.getvalue() == shown + '\x1b[2A\x1b[J'
  assert handler.filter(line) and len(handler.filters) == 0


def test_a_file_gets_no_table(tmp_path, monkeypatch):
  file = io.StringIO()
  monkeypatch.setattr(sys, 'stderr', file)
  with progress_table.ProgressTable(10) as table:
    table.begin(_task(tmp_path, 'a'))
    table.show()
  assert not file.getvalue()
