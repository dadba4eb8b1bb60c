"""Statistics and predictions are the same bytes on a distributed engine."""

import contextlib
import os
import signal
import tempfile

import pytest

from pipelines import statistics
from pipelines.publishing import staging
from tests.testing import published, raw_data, s3_server, scoring
from tff_algos.core import cache_folder
from tff_algos.data import integrity


def _score(workdir, output, beam_options=(), dataset=None):
  scoring.score(workdir, output, dataset=dataset, beam_options=beam_options)
  return raw_data.file_bytes(output)


def _measure(workdir, beam_options=()):
  with staging.open_staging(workdir / 'dataset') as opened:
    folder = integrity.find_current(workdir / 'dataset')
    statistics.measure(opened, folder, beam_options, force=True)
  return raw_data.file_bytes(workdir / 'dataset')


@pytest.mark.verify
@pytest.mark.parametrize('num_workers', [2, 4])
def test_bytes_do_not_depend_on_the_engine(
  s3, num_workers, tmp_path, monkeypatch
):
  """Nor on where the dataset is, and on a worker that is killed reading it."""
  distributed = pytest.importorskip('distributed')
  monkeypatch.setenv(cache_folder.VARIABLE, str(tmp_path / 'cache'))
  # Dask leaves a folder where temporary files go.
  (tmp_path / 'temporary').mkdir()
  monkeypatch.setenv('TMPDIR', str(tmp_path / 'temporary'))
  monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path / 'temporary'))
  workdir = scoring.write_workdir(tmp_path / 'run')
  measured, scored = _measure(workdir), _score(workdir, tmp_path / 'here')
  address = f's3://{s3_server.BUCKET}/scored_by_{num_workers}'
  names = published.publish(workdir, address)
  (shard,) = (one for one in names if 'test-00000' in one)
  killed = []

  def kill_its_reader(method, path):
    if path.endswith(names[shard]) and not killed:
      killed.append(next(iter(cluster.workers.values())).pid)
      os.kill(killed[0], signal.SIGKILL)

  with distributed.LocalCluster(
    n_workers=num_workers,
    threads_per_worker=1,
    host='127.0.0.1',
    dashboard_address=None,
  ) as cluster:
    options = [
      '--runner=apache_beam.runners.dask.dask_runner.DaskRunner',
      f'--dask_client_address={cluster.scheduler_address}',
    ]
    try:
      assert _measure(workdir, options) == measured
      assert _score(workdir, tmp_path / 'there', options) == scored
      monkeypatch.setattr(s3, 'fault', kill_its_reader)
      found = _score(workdir, tmp_path / 'published', options, address)
      assert found == scored and killed
    finally:
      # Beam opens one client for each pipeline and closes none.
      with contextlib.suppress(ValueError):
        while True:
          distributed.default_client().close()
