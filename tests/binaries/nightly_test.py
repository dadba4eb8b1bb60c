"""Nights as programs: one line of JSON and the exit code."""

import json

import pytest

from tests.testing import nights
from tff_algos.training import workdir

# Without pictures; see there.
_PROGRAM = 'tests.testing.killed_program'


@pytest.fixture(name='run', scope='module')
def make_run(launcher, tmp_path_factory):
  """Runs a night of one production; returns the program and its line."""
  folder = tmp_path_factory.mktemp('nightly')
  raw, production = folder / 'raw', folder / 'production'

  def run(date, *flags, clients='', **environment):
    if clients:
      nights.write_day(raw, date, clients)
    program = launcher.run(
      _PROGRAM,
      *nights.flags(raw, production, date),
      *flags,
      PROGRAM='binaries.nightly',
      FOLDER=str(production),
      **environment,
    )
    assert not program.temporary_files() and not program.processes()
    (line,) = program.stdout.splitlines()
    return program, json.loads(line)

  run.production = production
  return run


@pytest.mark.slow
def test_nights(run):
  program, line = run(nights.FIRST, clients='abyz', QUICK='1')
  assert program.returncode == 0, program.stderr
  assert line.pop('dataset_version') == (
    (run.production / 'dataset' / 'CURRENT').read_text().strip()
  )
  assert line == {
    'status': 'released',
    'as_of': nights.FIRST,
    'run': f'runs/{nights.FIRST}',
    'parent': None,
    'released_version': 1,
    'current_version': 1,
  }

  refused = '--config.drift.max_feature_shift=1e-9'
  program, line = run(nights.SECOND, refused, clients='abcyz')
  assert program.returncode == 3
  message = line.pop('message')
  assert line == {
    'status': 'failed',
    'reason': 'not_approved',
    'exit_code': 3,
    'error': 'NotApprovedError',
  }
  assert 'feature_shift is' in message
  assert program.said[-1].endswith(message)

  program, line = run(nights.THIRD, '--until=dataset', clients='abcdyz')
  assert program.returncode == 0, program.stderr
  assert line['status'] == 'until dataset'
  assert line['parent'] == f'runs/{nights.FIRST}'

  program, line = run('2026-10-31')
  assert program.returncode == 1
  assert (line['status'], line['reason']) == ('failed', 'bad_input')
  assert '--as_of=2026-10-31' in line['message']


def test_another_night_is_running(run):
  run.production.mkdir(exist_ok=True)
  with workdir.lock(run.production):
    program, line = run(nights.FIRST)
  assert program.returncode == 75
  assert line['reason'] == 'infrastructure'
  assert line['error'] == 'WorkdirBusyError'


def test_an_invalid_step_is_refused(launcher):
  program = launcher.run('binaries.nightly', '--until=lunch')
  assert program.returncode == 1
  assert 'release' in program.stderr
  line = json.loads(program.stdout)
  assert (line['reason'], line['exit_code']) == ('bad_input', 1)
  assert 'lunch' in line['message']
