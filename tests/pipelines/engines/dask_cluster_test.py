"""`tests/docs/data_engineering_test.py` starts a cluster as users do."""

import sys

import distributed
import pytest

from pipelines.engines import dask_cluster, runner


@pytest.fixture(autouse=True)
def _another_project(monkeypatch, tmp_path):
  monkeypatch.setattr(dask_cluster, '_PROJECT', tmp_path)
  monkeypatch.setattr(sys, 'path', [*sys.path])


def _share(*flags):
  pipeline = runner._create_pipeline(['--runner=DaskRunner', *flags])
  dask_cluster.share_project(pipeline.options)


def test_cluster_imports_the_project(tmp_path):
  """Scheduler and worker are threads of this process: its path is theirs."""
  with distributed.LocalCluster(
    n_workers=1, processes=False, dashboard_address=None
  ) as cluster:
    for _ in range(2):
      _share(f'--dask_client_address={cluster.scheduler_address}')
    (name,) = [n for n in cluster.scheduler.plugins if str(tmp_path) in n]
    # Workers that come later get it as well.
    assert name in cluster.scheduler.worker_plugins
  assert sys.path[-1] == str(tmp_path)


def test_children_of_this_process_need_nothing(monkeypatch):
  monkeypatch.setattr(distributed, 'Client', None)
  _share()
