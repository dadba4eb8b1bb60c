"""The same config gives the same bytes, whatever Beam runs it on."""

import contextlib
import tempfile

import psutil
import pytest

from pipelines import build_dataset
from pipelines.sources import base
from tests.testing import raw_data

_TWO_PROCESSES = (
  '--direct_num_workers=2',
  '--direct_running_mode=multi_processing',
)


def test_bytes_do_not_depend_on_the_blocks(tmp_path, monkeypatch):
  config = raw_data.digits_config()
  build_dataset.build(config, tmp_path / 'one')
  monkeypatch.setattr(base, 'BLOCK_SIZE', 97)
  build_dataset.build(config, tmp_path / 'many')
  assert raw_data.file_bytes(tmp_path / 'one') == raw_data.file_bytes(
    tmp_path / 'many'
  )


def test_bytes_do_not_depend_on_threads(tmp_path, monkeypatch):
  monkeypatch.setattr(base, 'BLOCK_SIZE', 200)
  config = raw_data.digits_config()
  build_dataset.build(config, tmp_path / 'one')
  build_dataset.build(
    config,
    tmp_path / 'two',
    ['--direct_num_workers=2', '--direct_running_mode=multi_threading'],
  )
  assert raw_data.file_bytes(tmp_path / 'one') == raw_data.file_bytes(
    tmp_path / 'two'
  )


@pytest.mark.slow
def test_bytes_do_not_depend_on_processes(tmp_path):
  before = psutil.Process().children(recursive=True)
  # More examples than one block holds, so that both processes have work.
  config = _large_config()
  build_dataset.build(config, tmp_path / 'one')
  build_dataset.build(config, tmp_path / 'two', _TWO_PROCESSES)
  assert raw_data.file_bytes(tmp_path / 'one') == raw_data.file_bytes(
    tmp_path / 'two'
  )
  assert psutil.Process().children(recursive=True) == before


@pytest.mark.slow
def test_bytes_do_not_depend_on_the_engine(tmp_path, monkeypatch):
  distributed = pytest.importorskip('distributed')
  # Dask leaves a folder where temporary files go.
  monkeypatch.setenv('TMPDIR', str(tmp_path))
  monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path))
  config = _large_config()
  build_dataset.build(config, tmp_path / 'one')
  with distributed.LocalCluster(
    n_workers=2,
    threads_per_worker=1,
    host='127.0.0.1',
    dashboard_address=None,
  ) as cluster:
    try:
      build_dataset.build(
        config,
        tmp_path / 'two',
        [
          '--runner=apache_beam.runners.dask.dask_runner.DaskRunner',
          f'--dask_client_address={cluster.scheduler_address}',
        ],
      )
    finally:
      # Beam opens one for each pipeline and closes none.
      with contextlib.suppress(ValueError):
        while True:
          distributed.default_client().close()
  assert raw_data.file_bytes(tmp_path / 'one') == raw_data.file_bytes(
    tmp_path / 'two'
  )


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
