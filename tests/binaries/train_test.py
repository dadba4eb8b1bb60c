"""Training as a program: killed, interrupted, resumed, refused."""

import dataclasses
import pathlib
import shutil
import signal
import time
from typing import NamedTuple

import numpy as np
import pytest

from tests.testing import csv_files, patience, regressions
from tff_algos.experiments import session, training

_SYNTHETIC = '--config=configs/fed_soft/synthetic.py:smoke'
_PATIENCE_SECONDS = 120.0


class _Trained(NamedTuple):
  """All that a training leaves, but for what the clock says."""

  round_num: int
  server_state: object
  client_states: object
  rows: list[dict[str, str]]
  memberships: dict[str, np.ndarray]


def _read(folder: pathlib.Path, config=None) -> _Trained:
  with session.open_session(config or regressions.config(), folder) as opened:
    round_num, server_state = opened.restore()
    client_states = opened.store.load(np.arange(12))
  rows = csv_files.read_rounds(folder / 'metrics.csv')
  memberships = {
    path.name: np.load(path) for path in (folder / 'memberships').iterdir()
  }
  return _Trained(round_num, server_state, client_states, rows, memberships)


def _round_seconds(folder: pathlib.Path) -> float:
  """Returns the mean time of a round."""
  _, *rounds = csv_files.read(folder / 'metrics.csv')
  return float(np.mean([float(row['seconds']) for row in rounds]))


def _assert_nothing_is_left(program, folder: pathlib.Path) -> None:
  assert not program.processes()
  assert not program.temporary_files()
  assert not (folder / '.lock').exists()
  assert not [path for path in folder.rglob('*') if 'writing' in path.name]


class _Training:
  """One way to train, in a folder of its own."""

  def __init__(self, launcher, dataset, folder, num_rounds, *arguments):
    shutil.copytree(dataset, folder / 'dataset')
    self.folder = folder
    self._launcher = launcher
    self._arguments = (
      _SYNTHETIC,
      f'--workdir={folder}',
      f'--config.training.num_rounds={num_rounds}',
      '--config.algorithm.local_training.num_local_epochs=1',
      *arguments,
    )

  def start(self, **environment):
    return self._launcher.start(
      'binaries.train', *self._arguments, **environment
    )

  def finish(self) -> _Trained:
    program = self.start().wait()
    assert program.returncode == 0, program.stderr
    _assert_nothing_is_left(program, self.folder)
    return _read(self.folder)

  def wait_for_rows(self, program, num_rows: int) -> None:
    """Returns when so many rows are in the log, or the program has ended."""
    patience.until(
      lambda: (
        regressions.num_rows(self.folder) >= num_rows
        or program.poll() is not None
      ),
      _PATIENCE_SECONDS,
    )

  def start_and_wait_for_rows(self, num_rows: int):
    """Starts, and returns when so many new rows are in the log."""
    num_rows += regressions.num_rows(self.folder)
    program = self.start()
    self.wait_for_rows(program, num_rows)
    return program


_RUNTIMES = {
  # Traces its graphs for a second or two, then runs rounds of some 30 milliseconds.
  'vectorized': (
    60,
    '--config.training.checkpoint_interval=2',
    '--config.runtime.vectorized.clients_per_block=1',
  ),
  # Starts at once; a round takes half a second.
  'debug': (
    5,
    '--config.runtime.name=debug',
    '--config.training.checkpoint_interval=1',
    '--config.training.evaluation_interval=2',
    '--config.training.client_states=disk',
  ),
}


@pytest.fixture(scope='module')
def dataset(trained_regressions):
  return trained_regressions.folder / 'dataset'


@pytest.fixture(scope='module')
def start_training(launcher, dataset, tmp_path_factory):
  def start(runtime, *arguments) -> _Training:
    folder = tmp_path_factory.mktemp('train')
    return _Training(launcher, dataset, folder, *_RUNTIMES[runtime], *arguments)

  return start


@pytest.fixture(
  scope='module',
  params=['debug', pytest.param('vectorized', marks=pytest.mark.verify)],
)
def runtime(request):
  return request.param


@pytest.fixture(scope='module')
def whole(runtime, start_training):
  training = start_training(runtime)
  return training.finish(), _round_seconds(training.folder)


@pytest.fixture(scope='module')
def uninterrupted(whole):
  return whole[0]


def _assert_same(trained: _Trained, expected: _Trained) -> None:
  np.testing.assert_equal(trained._asdict(), expected._asdict())


@pytest.mark.slow
def test_killed_at_random_moments_it_ends_in_the_same_state(
  runtime, whole, start_training
):
  uninterrupted, round_seconds = whole
  training = start_training(runtime)
  generator = np.random.default_rng(1)
  num_kills = 0
  for _ in range(2):
    program = training.start_and_wait_for_rows(int(generator.integers(1, 3)))
    time.sleep(generator.uniform(0, 0.8) * round_seconds)
    program.send_signal(signal.SIGKILL)
    num_kills += program.wait().returncode == -signal.SIGKILL
    assert not program.processes()
  assert num_kills == 2
  _assert_same(training.finish(), uninterrupted)


@pytest.mark.slow
def test_ctrl_c_saves_and_the_next_run_goes_on(
  runtime, uninterrupted, start_training, launcher
):
  training = start_training(
    runtime, '--config.training.checkpoint_interval=1000'
  )
  program = training.start_and_wait_for_rows(1)
  # Meanwhile, another trainer in the same workdir is refused.
  program.send_signal(signal.SIGSTOP)
  other = training.start().wait()
  program.send_signal(signal.SIGCONT)
  assert other.returncode == 75
  (line,) = other.complaints
  assert f'{training.folder} is in use by process {program.pid};' in line
  training.wait_for_rows(program, 3)
  program.send_signal(signal.SIGINT)
  assert program.wait().returncode == 130
  (line,) = [
    one
    for one in program.said
    if not any(word in one for word in ('round', 'Comput', 'Clients'))
  ]
  assert line.endswith('] Interrupted.')
  _assert_nothing_is_left(program, training.folder)
  interrupted = _read(training.folder)
  assert 0 < interrupted.round_num < uninterrupted.round_num
  assert interrupted.rows == uninterrupted.rows[: interrupted.round_num + 1]
  _assert_same(training.finish(), uninterrupted)


@pytest.mark.verify
@pytest.mark.parametrize(
  ('signum', 'returncode'),
  [
    (signal.SIGKILL, -signal.SIGKILL),
    (None, 0),
    (signal.SIGINT, 130),
    (signal.SIGTERM, 143),
  ],
)
def test_no_tff_worker_is_left(start_training, signum, returncode):
  training = start_training('debug', '--config.runtime.name=tff')
  program = training.start_and_wait_for_rows(2)
  workers = [one for one in program.processes() if 'worker' in one.name()]
  assert len(workers) == 1
  if signum is not None:
    program.send_signal(signum)
  assert program.wait().returncode == returncode
  patience.until(lambda: not program.processes(), 10)
  if signum != signal.SIGKILL:
    _assert_nothing_is_left(program, training.folder)


@pytest.mark.slow
def test_a_run_continues_another(launcher, trained_regressions, tmp_path):
  """Two rounds, and a third in a run of its own: as three rounds of one run."""
  config, parent = trained_regressions
  shutil.copytree(parent, tmp_path / 'whole')
  training_config = dataclasses.replace(config.training, num_rounds=3)
  training.train(
    dataclasses.replace(config, training=training_config), tmp_path / 'whole'
  )
  child = tmp_path / 'child'
  shutil.copytree(parent / 'dataset', child / 'dataset')

  def train(*flags):
    return launcher.run(
      'binaries.train',
      _SYNTHETIC,
      f'--workdir={child}',
      '--config.training.num_rounds=1',
      '--config.algorithm.local_training.num_local_epochs=2',
      '--config.runtime.name=debug',
      *flags,
    )

  program = train(f'--continue_from={parent}')
  assert program.returncode == 0, program.stderr
  assert not program.complaints
  words = 'after round 2: 12 clients stay, 0 return, 0 join, 0 left.'
  assert any(line.endswith(words) for line in program.said)
  found, expected = (
    _read(path, config) for path in (child, tmp_path / 'whole')
  )
  assert [row['round'] for row in found.rows] == ['2', '3']
  np.testing.assert_equal(found[:3], expected[:3])
  assert found.rows[1] == expected.rows[3]

  before = (child / 'metrics.csv').read_bytes()
  program = train()  # Its parent is known.
  assert program.returncode == 0, program.stderr
  assert 'is at round 3, the last: nothing to train' in program.said[-1]
  program = train(f'--continue_from={tmp_path}/whole')
  assert program.returncode == 1
  (line,) = program.complaints
  assert 'cannot continue' in line and 'Take another --workdir' in line
  program = train(f'--continue_from={tmp_path}/nothing')
  assert program.returncode == 1
  assert (child / 'metrics.csv').read_bytes() == before
  _assert_nothing_is_left(program, child)


@pytest.mark.parametrize(
  ('num_rounds', 'processes', 'words'),
  [(0, '{}', 'num_rounds must be'), (1, '{', 'TF_CONFIG')],
)
def test_what_is_refused_changes_no_workdir(
  launcher, tmp_path, num_rounds, processes, words
):
  program = launcher.run(
    'binaries.train',
    *(_SYNTHETIC, f'--workdir={tmp_path}', '--dataset=s3://bucket/digits'),
    f'--config.training.num_rounds={num_rounds}',
    TF_CONFIG=processes,
  )
  assert program.returncode == 1
  assert words in program.complaints[0]
  assert not list(tmp_path.iterdir())
