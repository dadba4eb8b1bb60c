"""Statistics and predictions are the same bytes on a distributed engine."""

import contextlib
import tempfile

import pytest

from pipelines import statistics
from pipelines.publishing import staging
from pipelines.scoring import batch_inference, model_choice
from tests.testing import raw_data, scoring
from tff_algos.data import integrity


def _score(workdir, output, beam_options=()):
  batch_inference.score(
    workdir / 'dataset',
    workdir / 'export',
    output,
    model_choice.ScoringConfig(),
    pipeline_options=beam_options,
  )
  return raw_data.file_bytes(output)


def _measure(workdir, beam_options=()):
  with staging.open_staging(workdir / 'dataset') as opened:
    folder = integrity.find_current(workdir / 'dataset')
    statistics.measure(opened, folder, beam_options, force=True)
  return raw_data.file_bytes(workdir / 'dataset')


@pytest.mark.verify
def test_bytes_do_not_depend_on_the_engine(tmp_path, monkeypatch):
  distributed = pytest.importorskip('distributed')
  # Dask leaves a folder where temporary files go.
  (tmp_path / 'temporary').mkdir()
  monkeypatch.setenv('TMPDIR', str(tmp_path / 'temporary'))
  monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path / 'temporary'))
  workdir = scoring.write_workdir(tmp_path / 'run')
  measured, scored = _measure(workdir), _score(workdir, tmp_path / 'here')
  with distributed.LocalCluster(
    n_workers=2,
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
    finally:
      # Beam opens one client for each pipeline and closes none.
      with contextlib.suppress(ValueError):
        while True:
          distributed.default_client().close()
