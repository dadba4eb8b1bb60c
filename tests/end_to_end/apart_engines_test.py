"""Workers that see no folder of the program give the same bytes."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator

import distributed
import psutil
import pytest

from pipelines import build_dataset
from pipelines.sources import base
from tests.testing import (
  mounts,
  patience,
  published,
  raw_data,
  raw_tables,
  s3_server,
  scoring,
)
from tff_algos.core import cache_folder
from tff_algos.stores import objects as objects_lib

_HIDE = 'mount -t tmpfs tmpfs "$0" && exec "$@"'


@contextlib.contextmanager
def _cluster(
  num_workers: int, hidden: pathlib.Path, seen: pathlib.Path
) -> Iterator[distributed.LocalCluster]:
  """A Dask cluster whose workers have an empty folder in place of `hidden`."""
  with distributed.LocalCluster(
    n_workers=0, host='127.0.0.1', dashboard_address=None
  ) as cluster:
    dask = pathlib.Path(sys.executable).with_name('dask')
    worker = subprocess.Popen(
      [
        *('unshare', '-m', 'sh', '-c', _HIDE, hidden),
        *(dask, 'worker', cluster.scheduler_address, '--no-dashboard'),
        *('--nworkers', str(num_workers), '--nthreads', '1'),
        *('--local-directory', seen),
      ],
      env={**os.environ, 'TMPDIR': str(seen)},
    )
    try:
      patience.until(lambda: len(cluster.scheduler.workers) == num_workers)
      yield cluster
    finally:
      worker.terminate()
      worker.wait(60)


@pytest.mark.verify
@pytest.mark.parametrize('num_workers', [2, 4])
def test_builds_and_predictions(s3, num_workers, tmp_path, monkeypatch):
  """One worker is killed while it writes a shard of each."""
  mounts.need('-m')
  hidden, seen = tmp_path / 'hidden', tmp_path / 'seen'
  seen.mkdir()
  monkeypatch.setenv(cache_folder.VARIABLE, str(hidden / 'cache'))
  monkeypatch.setattr(base, 'BLOCK_SIZE', 7)
  workdir = scoring.write_workdir(hidden / 'run')
  raw_tables.write(hidden, raw_tables.rows())
  config = raw_tables.config(hidden, num_shards=3)
  build_dataset.build(config, hidden / 'here')
  scoring.score(workdir, hidden / 'scored_here')
  place = objects_lib.Objects(f's3://{s3_server.BUCKET}/apart_{num_workers}')
  place.upload(hidden / 'table.csv', 'raw/table.csv')
  published.publish(workdir, f'{place.address}/run')
  config = raw_data.with_options(config, path=f'{place.address}/raw/table.csv')
  killed = []

  def kill_a_writer(method, path):
    is_shard = any(
      word in path for word in ('/version/train-', '/version/predictions-')
    )
    if method == 'PUT' and is_shard and armed:
      armed.clear()
      killed.append(next(iter(cluster.scheduler.workers.values())).pid)
      os.kill(killed[-1], signal.SIGKILL)

  with _cluster(num_workers, hidden, seen) as cluster:
    flags = [
      '--runner=DaskRunner',
      f'--dask_client_address={cluster.scheduler_address}',
      f'--temp_location={place.address}/tmp',
    ]
    monkeypatch.setattr(s3, 'fault', kill_a_writer)
    armed = ['build']
    build_dataset.build(config, hidden / 'there', flags)
    patience.until(lambda: len(cluster.scheduler.workers) == num_workers)
    armed = ['score']
    scoring.score(
      workdir,
      hidden / 'scored_there',
      dataset=f'{place.address}/run',
      beam_options=flags,
    )
  for name in ('{}', 'scored_{}'):
    here, there = (
      raw_data.file_bytes(hidden / name.format(where))
      for where in ('here', 'there')
    )
    assert there == here
  assert len(killed) == 2
  assert not place.list('tmp')
  assert not [pid for pid in killed if psutil.pid_exists(pid)]
