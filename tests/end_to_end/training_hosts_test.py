"""Hosts with their own addresses train together; one is slow, one is lost.

The hosts are network namespaces of one machine: each has its own interfaces,
addresses and ports, and sees the others over a bridge.
"""

import contextlib
import functools
import json
import os
import signal
import sys
import threading
import time

import numpy as np
import pytest

from configs.fed_soft import synthetic
from tests.testing import csv_files, programs, published, s3_server
from tests.testing import hosts as hosts_lib
from tff_algos.core import cache_folder
from tff_algos.data import layout, schema
from tff_algos.experiments import datasets, experiment

_PORT = 2222
_PATIENCE_SECONDS = 600.0
_ARGUMENTS = (
  '--config=configs/fed_soft/synthetic.py:smoke',
  '--config.training.checkpoint_interval=2',
  '--config.runtime.vectorized.clients_per_block=1',
  '--config.runtime.trust_network=True',
)
_ROUNDS = '--config.training.num_rounds=6'


class _Training:
  """Processes of `binaries.train`, one on each host, in a shared folder."""

  def __init__(self, hosts, folder, arguments, environments):
    self.folder = folder
    self._folder = folder.with_name(f'{folder.name}_logs')
    self._folder.mkdir(exist_ok=True)
    workers = [f'{one}:{_PORT}' for one in hosts.addresses]
    self.programs = []
    for index in range(len(workers)):
      task = {'type': 'worker', 'index': index}
      config = json.dumps({'cluster': {'worker': workers}, 'task': task})
      with open(self._folder / f'{index}', 'w') as log:
        self.programs.append(
          hosts.start(
            *(index, sys.executable, '-m', 'binaries.train', *_ARGUMENTS),
            f'--workdir={folder}',
            *arguments,
            cwd=programs.ROOT,
            env={**os.environ, **environments[index], 'TF_CONFIG': config},
            stdout=log,
            stderr=log,
          )
        )

  def wait(self):
    return [program.wait(_PATIENCE_SECONDS) for program in self.programs]

  def log(self, index):
    return (self._folder / f'{index}').read_text()

  def wait_for_checkpoint(self):
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not [*self.folder.glob('checkpoints/round_*2')]:
      for index, program in enumerate(self.programs):
        assert program.poll() is None, self.log(index)
      assert time.monotonic() < deadline
      time.sleep(0.01)

  def rows(self):
    return csv_files.read(self.folder / 'metrics.csv')


def _losses(rows):
  return [
    [float(value or 'nan') for key, value in row.items() if 'loss' in key]
    for row in rows
  ]


@contextlib.contextmanager
def _slowed(program, times):
  """Lets a program run for one in some parts of the time."""
  done = threading.Event()

  def slow():
    while not done.wait(0.02):
      program.send_signal(signal.SIGSTOP)
      done.wait(0.02 * (times - 1))
      program.send_signal(signal.SIGCONT)

  thread = threading.Thread(target=slow)
  thread.start()
  try:
    yield
  finally:
    done.set()
    thread.join()


@pytest.fixture(scope='module')
def address(tmp_path_factory, s3):
  config = experiment.parse(synthetic.get_config('smoke'))
  folder = tmp_path_factory.mktemp('dataset')
  datasets.build(config.dataset, folder)
  address = f's3://{s3_server.BUCKET}/hosts'
  published.publish(folder, address)
  return address


def _forbid(hidden, method, path):
  return 'forbidden' if path.endswith(hidden) else None


@pytest.fixture
def train(s3, address, tmp_path):
  """Starts trainings on hosts, which reach the store over the network."""
  with contextlib.ExitStack() as stack:

    def start(hosts, name, *arguments, dataset=address, hidden=()):
      environments = []
      for index in range(len(hosts.addresses)):
        place = stack.enter_context(s3_server.shown_at(s3, hosts.gateway))
        if hidden:
          place.fault = functools.partial(_forbid, hidden[index])
        environments.append(
          {
            'AWS_ENDPOINT_URL': place.url,
            cache_folder.VARIABLE: str(tmp_path / f'cache_{index}'),
          }
        )
      training = _Training(
        hosts,
        tmp_path / name,
        (f'--dataset={dataset}', *arguments),
        environments,
      )
      for program in training.programs:
        stack.callback(program.wait)
        stack.callback(program.kill)
      return training

    yield start


@pytest.mark.verify
@pytest.mark.parametrize('size', [2, 4])
def test_hosts_train_together_and_wait_for_a_slow_one_or_deal_by_speed(
  train, size
):
  with hosts_lib.running(size) as hosts:
    plain = train(hosts, 'plain', _ROUNDS)
    assert plain.wait() == [0] * size, plain.log(0)
    speeds = f'--config.runtime.peer_speeds={(4.0,) * (size - 1) + (1.0,)}'
    slowed = []
    for name, arguments in (('slow', ()), ('dealt', (speeds,))):
      training = train(hosts, name, _ROUNDS, *arguments)
      slowed.append(training)
      training.wait_for_checkpoint()
      with _slowed(training.programs[-1], 4):
        assert training.wait() == [0] * size, training.log(0)
  slow, dealt = slowed
  for training in (plain, slow, dealt):
    seconds = [float(row['seconds']) for row in training.rows()[3:]]
    print(f'{size} hosts, {training.folder.name}: {seconds}')
  np.testing.assert_array_equal(_losses(slow.rows()), _losses(plain.rows()))
  # Another order of sums.
  np.testing.assert_allclose(
    _losses(dealt.rows()), _losses(plain.rows()), rtol=1e-4
  )


@pytest.mark.verify
def test_a_host_that_is_cut_off_ends_all_and_they_go_on(train):
  with hosts_lib.running(2) as hosts:
    whole = train(hosts, 'whole', _ROUNDS)
    assert whole.wait() == [0, 0], whole.log(0)
    broken = train(hosts, 'broken', _ROUNDS)
    broken.wait_for_checkpoint()
    hosts.unplug(1)
    start = time.monotonic()
    assert broken.programs[0].wait(_PATIENCE_SECONDS) == 75
    print(f'given up after {time.monotonic() - start:.1f} seconds')
    assert f'({hosts.addresses[1]}:{_PORT})' in broken.log(0)
    broken.programs[1].kill()
    broken.programs[1].wait()
  with hosts_lib.running(2) as hosts:
    again = train(hosts, 'broken', _ROUNDS)
    assert again.wait() == [0, 0], again.log(0)
  np.testing.assert_array_equal(_losses(again.rows()), _losses(whole.rows()))


@pytest.mark.verify
def test_hosts_train_on_shards_that_the_other_may_not_read(train, s3, tmp_path):
  config = synthetic.get_config('smoke')
  config.dataset.num_shards = 2
  folder = tmp_path / 'two_shards'
  datasets.build(experiment.parse(config).dataset, folder)
  dataset = f's3://{s3_server.BUCKET}/two_shards'
  names = published.publish(folder, dataset)
  of_shards = [
    tuple(
      names[name]
      for name in names
      for split in schema.SPLITS
      if f'/{layout.shard_name(split, shard, 2)}' in name
    )
    for shard in range(2)
  ]
  assert all(of_shards)
  arguments = (_ROUNDS, '--config.dataset.num_shards=2')
  own = '--config.runtime.peer_shards=True'
  hidden = of_shards[::-1]
  with hosts_lib.running(2) as hosts:
    plain = train(hosts, 'plain', *arguments, dataset=dataset)
    assert plain.wait() == [0, 0], plain.log(0)
    alone = train(
      *(hosts, 'alone', *arguments, own), dataset=dataset, hidden=hidden
    )
    assert alone.wait() == [0, 0], alone.log(0)
    mixed = train(hosts, 'mixed', *arguments, dataset=dataset, hidden=hidden)
    assert 0 not in mixed.wait()
  np.testing.assert_allclose(
    _losses(alone.rows()), _losses(plain.rows()), rtol=1e-4
  )
