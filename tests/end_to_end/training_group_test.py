"""Several processes on loopback train together; one is killed."""

import signal

import numpy as np
import pytest
import tensorflow as tf

from configs.fed_avg import digits
from configs.fed_soft import synthetic
from tests.testing import csv_files, groups, patience
from tff_algos.experiments import datasets, experiment, session

# Only the order of the sums differs from that of one process.
_TOLERANCE = 1e-5
_PATIENCE_SECONDS = 120.0
_SECONDS_TO_THE_END = 10.0
_SYNTHETIC = 'configs/fed_soft/synthetic.py:smoke'
# Half of the time is tracing, less with blocks of one client.
_QUICK = '--config.runtime.vectorized.clients_per_block=1'
_CONFIGS = {
  'fed_soft': (
    _SYNTHETIC,
    synthetic.get_config('smoke'),
    '--config.training.num_rounds=8',
    '--config.training.checkpoint_interval=2',
    _QUICK,
  ),
  'fed_soft, two rounds': (
    _SYNTHETIC,
    synthetic.get_config('smoke'),
    '--config.training.num_rounds=2',
    _QUICK,
  ),
  'fed_avg': (
    'configs/fed_avg/digits.py:smoke',
    digits.get_config('smoke'),
    '--config.training.num_rounds=2',
  ),
  'fed_avg, own shards': (
    'configs/fed_avg/digits.py:smoke',
    digits.get_config('smoke'),
    '--config.training.num_rounds=2',
    '--config.dataset.num_shards=2',
    '--config.runtime.peer_shards=True',
  ),
}
_CONFIGS['fed_avg, own shards'][1].dataset.num_shards = 2


class _Training:
  """An experiment in a folder of its own, trained by some processes."""

  def __init__(self, launcher, folder, name):
    path, values, *options = _CONFIGS[name]
    self.folder = folder / 'run'
    self._launcher = launcher
    self._arguments = (
      f'--config={path}',
      f'--workdir={self.folder}',
      '--config.algorithm.local_training.num_local_epochs=1',
      *options,
    )
    values.algorithm.local_training.num_local_epochs = 1
    self._config = experiment.parse(values)
    datasets.build(self._config.dataset, self.folder)

  def start(self, size):
    return groups.Group(
      self._launcher, size, 'binaries.train', *self._arguments
    )

  def finish(self, size):
    """Trains to the end; returns what it leaves, but for clocks."""
    group = self.start(size)
    for program in group.wait():
      assert program.returncode == 0, program.stderr
    self.assert_nothing_is_left(group)
    return self.read()

  def read(self):
    with session.open_session(self._config, self.folder) as opened:
      round_num, server_state = opened.restore()
      indices = np.arange(opened.source.population.num_clients)
      states = opened.store.load(indices)
    rows = [
      {key: float(value or 'nan') for key, value in row.items()}
      for row in csv_files.read_rounds(self.folder / 'metrics.csv')
    ]
    return round_num, server_state, states, rows

  def wait_for_new_checkpoint(self, group):
    before = {*self.folder.glob('checkpoints/round_*')}
    patience.until(
      lambda: {*self.folder.glob('checkpoints/round_*')} - before,
      _PATIENCE_SECONDS,
      group.programs,
    )

  def assert_nothing_is_left(self, group):
    for program in group.programs:
      assert not program.processes()
      assert not program.temporary_files()
    assert not (self.folder / '.lock').exists()
    assert not [path for path in self.folder.rglob('*writing*')]


@pytest.fixture(scope='module')
def start_training(launcher, tmp_path_factory):
  return lambda name: _Training(
    launcher, tmp_path_factory.mktemp('training'), name
  )


def _assert_close(found, expected):
  tf.nest.map_structure(
    lambda one, other: np.testing.assert_allclose(
      one, other, rtol=_TOLERANCE, atol=_TOLERANCE
    ),
    found,
    expected,
  )


@pytest.mark.verify
@pytest.mark.parametrize(
  ('name', 'size'),
  [('fed_soft, two rounds', 2), ('fed_avg', 4), ('fed_avg, own shards', 2)],
)
def test_several_processes_train_as_one_does(start_training, name, size):
  several = start_training(name).finish(size)
  _assert_close(several, start_training(name).finish(1))


@pytest.mark.verify
def test_killed_and_started_again_they_end_in_the_same_state(start_training):
  undisturbed = start_training('fed_soft').finish(2)
  training = start_training('fed_soft')
  for lost in (1, 0):
    group = training.start(2)
    training.wait_for_new_checkpoint(group)
    group.programs[lost].send_signal(signal.SIGKILL)
    survivor = group.programs[1 - lost].wait(_SECONDS_TO_THE_END)
    assert group.programs[lost].wait().returncode == -signal.SIGKILL
    assert survivor.returncode == 75
    (line,) = [one for one in survivor.complaints if 'round' not in one]
    assert f'{group.name_of(lost)} died or cannot be reached any more' in line
  np.testing.assert_equal(training.finish(2), undisturbed)
