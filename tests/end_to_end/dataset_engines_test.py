"""The same config gives the same bytes, whatever Beam runs it on."""

import os
import signal
import tempfile
import threading

import distributed
import psutil
import pytest

from pipelines import build_dataset
from pipelines.sources import base
from tests.testing import patience, raw_data

_TWO_PROCESSES = (
  '--direct_num_workers=2',
  '--direct_running_mode=multi_processing',
)


@pytest.fixture(scope='module')
def small(tmp_path_factory):
  """Returns the files of a small dataset that this process makes."""
  folder = tmp_path_factory.mktemp('small')
  build_dataset.build(raw_data.digits_config(), folder)
  return raw_data.file_bytes(folder)


@pytest.fixture(scope='module')
def expected(tmp_path_factory):
  """Returns the files of the large dataset that this process makes."""
  folder = tmp_path_factory.mktemp('expected')
  build_dataset.build(_large_config(), folder)
  return raw_data.file_bytes(folder)


def test_bytes_do_not_depend_on_the_blocks(tmp_path, monkeypatch, small):
  monkeypatch.setattr(base, 'BLOCK_SIZE', 97)
  build_dataset.build(raw_data.digits_config(), tmp_path)
  assert raw_data.file_bytes(tmp_path) == small


def test_bytes_do_not_depend_on_threads(tmp_path, monkeypatch, small):
  monkeypatch.setattr(base, 'BLOCK_SIZE', 200)
  build_dataset.build(
    raw_data.digits_config(),
    tmp_path,
    ['--direct_num_workers=2', '--direct_running_mode=multi_threading'],
  )
  assert raw_data.file_bytes(tmp_path) == small


@pytest.mark.verify
def test_bytes_do_not_depend_on_processes(tmp_path, expected):
  before = psutil.Process().children(recursive=True)
  # More examples than one block holds, so that both processes have work.
  build_dataset.build(_large_config(), tmp_path, _TWO_PROCESSES)
  assert raw_data.file_bytes(tmp_path) == expected
  assert psutil.Process().children(recursive=True) == before


@pytest.fixture(scope='module')
def cluster(tmp_path_factory):
  """A Dask scheduler with four worker processes, of this module only."""
  folder = tmp_path_factory.mktemp('dask')
  # Dask leaves a folder where temporary files go.
  with pytest.MonkeyPatch.context() as patch:
    patch.setenv('TMPDIR', str(folder))
    patch.setattr(tempfile, 'tempdir', str(folder))
    with distributed.LocalCluster(
      n_workers=4,
      threads_per_worker=1,
      host='127.0.0.1',
      dashboard_address=None,
    ) as cluster:
      yield cluster


def _build_on(cluster, folder, *flags):
  build_dataset.build(
    _large_config(),
    folder,
    [
      '--runner=DaskRunner',
      f'--dask_client_address={cluster.scheduler_address}',
      *flags,
    ],
  )


@pytest.mark.verify
@pytest.mark.parametrize('num_workers', [4, 2])
def test_bytes_do_not_depend_on_the_engine(
  tmp_path, monkeypatch, cluster, expected, num_workers
):
  monkeypatch.setattr(base, 'BLOCK_SIZE', 500)
  cluster.scale(num_workers)
  patience.until(lambda: len(cluster.scheduler.workers) == num_workers)
  clients = set(cluster.scheduler.clients)
  _build_on(cluster, tmp_path, '--dask_npartitions=8')
  assert raw_data.file_bytes(tmp_path) == expected
  patience.until(lambda: set(cluster.scheduler.clients) == clients)


@pytest.mark.verify
@pytest.mark.parametrize('stage', ['pieces', 'survey', 'clients'])
def test_worker_that_is_killed_in_the_middle_changes_nothing(
  tmp_path, monkeypatch, cluster, expected, stage
):
  monkeypatch.setattr(base, 'BLOCK_SIZE', 500)
  cluster.scale(2)
  patience.until(lambda: len(cluster.scheduler.workers) == 2)
  victim = _pid_of_a_worker(cluster)
  killed = threading.Thread(target=_kill_at, args=(victim, tmp_path, stage))
  killed.start()
  _build_on(cluster, tmp_path, '--dask_npartitions=16')
  killed.join()
  patience.until(lambda: not psutil.pid_exists(victim))
  assert raw_data.file_bytes(tmp_path) == expected


def _pid_of_a_worker(cluster):
  with distributed.Client(cluster, set_as_default=False) as client:
    return next(iter(client.run(os.getpid).values()))


def _kill_at(pid, dataset, stage):
  """Kills a process when a step has begun to write its files."""
  patience.until(lambda: list(dataset.glob(f'.staging-*/work/{stage}-*')))
  os.kill(pid, signal.SIGKILL)


def _large_config():
  return raw_data.digits_config(
    source={
      'name': 'linear_regression',
      'options': {
        'num_examples_per_source': 5000,
        'num_held_out_per_source': 2500,
      },
    },
    distributions={'kind': 'native'},
    partition={'law': 'linear', 'num_clients': 12, 'num_unseen_clients': 2},
    sizes={'law': 'uniform', 'minimum': 100, 'maximum': 200},
    num_shards=3,
  )
