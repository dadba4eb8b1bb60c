"""Tests of running other programs, with real ones."""

import sys

import psutil

from tff_algos.diagnostics import programs


def _python(program: str, timeout_seconds: float = 20.0) -> programs.Outcome:
  return programs.run([sys.executable, '-c', program], timeout_seconds)


def test_output_of_a_good_end():
  assert _python('print(1)') == programs.Outcome('ok', '1', '')


def test_last_words_of_a_bad_end():
  outcome = _python(
    'import sys\nfor i in range(9): print(i, file=sys.stderr)\nsys.exit(3)'
  )
  assert outcome == programs.Outcome('exit code 3', '', '5\n6\n7\n8')


def test_signal_is_named():
  outcome = _python('import os\nos.kill(os.getpid(), 4)')
  assert outcome.ending == 'killed by signal 4 (Illegal instruction)'


def test_time_limit_keeps_what_was_said():
  before = psutil.Process().children()
  outcome = _python(
    'import sys, time\nprint("importing", flush=True)\n'
    'print("slow", file=sys.stderr, flush=True)\ntime.sleep(600)',
    timeout_seconds=1.0,
  )
  assert outcome == programs.Outcome('no end within 1 s', 'importing', 'slow')
  assert psutil.Process().children() == before


def test_program_that_does_not_exist():
  outcome = programs.run(['/no/such/program'], 1.0)
  assert outcome.ending.startswith('cannot be run: No such file')


def test_children_are_ended():
  # In a process of its own: this one may have children of other tests.
  outcome = _python(
    'import subprocess\n'
    'from tff_algos.diagnostics import programs\n'
    "program = 'sleep 600 & echo ready; wait'\n"
    "child = subprocess.Popen(['sh', '-c', program], stdout=-1)\n"
    'child.stdout.readline()\n'
    'programs.end_children()\n'
    'print(child.poll() is not None)\n'
  )
  assert outcome == programs.Outcome('ok', 'True', '')
