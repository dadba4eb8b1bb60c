"""Runs on a Dask cluster of threads, each in a small process."""

import distributed
import psutil
import pytest

from tests.testing import patience
from tff_algos.core import errors
from tff_algos.experiments.sweeps import dask_workers, run_process
from tff_algos.reports.sweep import plan as plan_lib


@pytest.fixture(scope='module')
def address():
  with distributed.LocalCluster(
    n_workers=1,
    threads_per_worker=2,
    processes=False,
    dashboard_address=None,
  ) as cluster:
    yield cluster.scheduler_address


@pytest.fixture
def _small(monkeypatch, tmp_path):
  monkeypatch.setattr(run_process, '_PROGRAM', 'tests.testing.small_run')
  (tmp_path / plan_lib.FILE).touch()


def _text(handle):
  return patience.until(lambda: handle.poll())


def test_capacity_and_results(tmp_path, address, _small):
  with dask_workers.DaskWorkers(address) as engine:
    assert engine.capacity == 2
    tasks = [
      run_process.Task(str(tmp_path), run, config)
      for run, config in (('a', {}), ('b', {'answer': 'trace'}))
    ]
    handles = [engine.start(task) for task in tasks]
    assert [_text(handle) for handle in handles] == ['done', 'trace']
    for handle in handles:
      handle.end()


def test_a_lost_process_is_told(tmp_path, address, _small):
  with dask_workers.DaskWorkers(address) as engine:
    task = run_process.Task(str(tmp_path), 'a', {'dies': True})
    with pytest.raises(errors.RuntimeFailureError, match='SIGKILL'):
      _text(engine.start(task))


@pytest.mark.parametrize('ends_client', [False, True])
def test_a_run_ends_with_its_handle_and_its_client(
  tmp_path, address, _small, ends_client
):
  with dask_workers.DaskWorkers(address) as engine:
    task = run_process.Task(str(tmp_path), 'a', {'sleeps': True})
    handle = engine.start(task)
    patience.until(lambda: (task.folder / 'sleeps').exists())
    pid = int((task.folder / 'pid').read_text())
    if not ends_client:
      handle.terminate()
      handle.end()
      assert not psutil.pid_exists(pid)
  patience.until(lambda: not psutil.pid_exists(pid))
  assert (task.folder / 'saved').exists()


def test_a_folder_that_the_worker_does_not_see_is_named(tmp_path, address):
  with dask_workers.DaskWorkers(address) as engine:
    task = run_process.Task(str(tmp_path / 'elsewhere'), 'a', {})
    with pytest.raises(errors.InfrastructureError, match='does not see .*else'):
      _text(engine.start(task))


def test_a_failing_cluster_is_the_machines_fault():
  class Future:
    def done(self):
      return True

    def result(self):
      raise TimeoutError('closed')

    def cancel(self):
      raise OSError('closed')

  class Client:
    def nthreads(self):
      raise OSError('the scheduler is gone')

  handle = dask_workers._Handle(None, Future())
  with pytest.raises(errors.InfrastructureError, match='TimeoutError: closed'):
    handle.poll()
  handle.terminate()  # As the sweep ends anyway.
  workers = dask_workers.DaskWorkers('127.0.0.1:9')
  workers._client = Client()
  with pytest.raises(errors.InfrastructureError, match='scheduler is gone'):
    _ = workers.capacity


def test_an_absent_scheduler_is_one_error(monkeypatch):
  monkeypatch.setattr(dask_workers, '_TIMEOUT_SECONDS', 0.2)
  with pytest.raises(
    errors.InfrastructureError, match='--dask=127.0.0.1:9 has no scheduler'
  ):
    dask_workers.DaskWorkers('127.0.0.1:9').__enter__()
