"""Ctrl-C and kill -9 in the middle of a build, on real processes."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import psutil
import pytest

from pipelines import build_dataset
from tests.testing import patience, programs, raw_data
from tff_algos.data import dataset as dataset_lib

_TWO_PROCESSES = (
  '--direct_num_workers=2',
  '--direct_running_mode=multi_processing',
)


_BUILD_FOR_LONG = textwrap.dedent("""
  import sys
  from pipelines import build_dataset
  from tests.testing import raw_data
  config = raw_data.digits_config(
    source={
      'name': 'linear_regression',
      'options': {'num_examples_per_source': 200_000},
    },
    distributions={'kind': 'native'},
  )
  build_dataset.build(config, sys.argv[1], sys.argv[2:])
""")


def _start_and_signal(dataset, temp, number, flags):
  """Starts a long build, sends it a signal in the middle; returns its end."""
  process = subprocess.Popen(
    [sys.executable, '-c', _BUILD_FOR_LONG, str(dataset), *flags],
    cwd=programs.ROOT,
    env=dict(os.environ, TMPDIR=str(temp)),
    stdout=subprocess.DEVNULL,
    start_new_session=True,
  )
  try:
    patience.until(
      lambda: [*dataset.glob('.staging-*/work/survey-*')], alive=[process]
    )
    os.kill(process.pid, number)
    return process.wait(timeout=60)
  finally:
    _wait_for_the_end_of_session(process.pid)


def _wait_for_the_end_of_session(session):
  """Ends what is left of a session; fails if anything does not go by itself."""
  for _ in range(200):
    left = [p for p in psutil.process_iter() if _is_alive_in(p, session)]
    if not left:
      return
    time.sleep(0.05)
  for process in left:
    process.kill()
  pytest.fail(f'left behind: {left}')


def _is_alive_in(process, session):
  try:
    return (
      os.getsid(process.pid) == session
      and process.status() != psutil.STATUS_ZOMBIE
    )
  except (psutil.NoSuchProcess, ProcessLookupError, PermissionError):
    return False


@pytest.mark.slow
@pytest.mark.parametrize(
  'flags', [(), pytest.param(_TWO_PROCESSES, marks=pytest.mark.verify)]
)
def test_ctrl_c_leaves_the_old_version_and_nothing_else(tmp_path, flags):
  dataset, temp = tmp_path / 'dataset', tmp_path / 'temp'
  temp.mkdir()
  build_dataset.build(raw_data.digits_config(), dataset)
  before = raw_data.file_bytes(dataset)
  assert _start_and_signal(dataset, temp, signal.SIGINT, flags) != 0
  assert raw_data.file_bytes(dataset) == before
  assert sorted(os.listdir(dataset)) == ['CURRENT', 'versions']
  assert not os.listdir(temp)


@pytest.mark.slow
def test_killed_run_is_cleaned_up_by_the_next(tmp_path):
  dataset, temp = tmp_path / 'dataset', tmp_path / 'temp'
  temp.mkdir()
  build_dataset.build(raw_data.digits_config(), dataset)
  before = raw_data.file_bytes(dataset)
  _start_and_signal(dataset, temp, signal.SIGKILL, ())
  dataset_lib.FederatedDataset.open(dataset).close()
  assert list(dataset.glob('.staging-*'))
  build_dataset.build(raw_data.digits_config(), dataset)
  assert raw_data.file_bytes(dataset) == before
  assert sorted(os.listdir(dataset)) == ['CURRENT', 'versions']
  assert not os.listdir(temp)
