"""Seconds of each round, against the formulas by hand."""

import numpy as np
import pytest

from tests.testing import csv_files, fake_workdir
from tff_algos.core import sealed_json
from tff_algos.evaluation import round_time
from tff_algos.reports.run import run as run_lib
from tff_algos.reports.run import run_clock


def _read(workdir, rows, algorithm='', clock=round_time.Clock()):
  """Reads a run with these rows of `metrics.csv`."""
  fake_workdir.write(
    workdir, num_clusters=1, config={'algorithm': {'name': algorithm}}
  )
  csv_files.write(workdir / 'metrics.csv', rows)
  return run_lib.read(workdir, clock)


def _rows(*told, names=()):
  """Rows of (clients that solve, floats down, *names)."""
  rows = [
    dict(
      zip(('cost/local_solves', 'cost/downlink_floats', *names), row, strict=1)
    )
    for row in told
  ]
  return [{'round': k, **row} for k, row in enumerate(rows)]


_ROLES = ('train/num_members', 'train/num_training')
_PULLED = ('train/consensus_distance', 'train/num_messages')


def test_rounds_of_a_server_and_what_they_are_retimed_to(tmp_path):
  """4 clients with 1,000 floats, then 2; 0.001 s a model."""
  run = _read(tmp_path, _rows((0, 0), (4, 4000), (2, 2000)), 'fed_avg')
  assert run_clock.kind(run) == run_clock.SERVER
  np.testing.assert_allclose(
    run_clock.own(run, 1e6), [[0, 0], [0.002, 0.09], [0.002, 0.09]]
  )
  others = run_clock.retimed(run, 1e6)
  assert [*others] == [run_clock.BRAIN_TORRENT, run_clock.GOSSIP]
  for name, models in (
    (run_clock.BRAIN_TORRENT, [0, 4, 2]),
    (run_clock.GOSSIP, [0, 3, 1]),
  ):
    np.testing.assert_allclose(others[name][:, 0], 0.001 * np.array(models))
    np.testing.assert_allclose(others[name][:, 1], [0, 0.09, 0.09])


@pytest.mark.parametrize(
  ('download', 'models'), [('parallel', 3 + 1), ('primary_serial', 3 + 5)]
)
def test_rounds_of_a_committee(tmp_path, download, models):
  """3 members and 5 training clients receive 8,000 floats together."""
  rows = _rows((0, 0, '', ''), (8, 8000, 3, 5), names=_ROLES)
  work = round_time.Work(1.0, 2.0, 0.5, 0.25)
  run = _read(tmp_path, rows, 'cmfl', round_time.Clock(work, download))
  assert run_clock.kind(run) == run_clock.COMMITTEE
  np.testing.assert_allclose(
    run_clock.own(run, 1e6), [[0, 0], [models * 0.001, 1.75]]
  )
  others = run_clock.retimed(run, 1e6)
  assert [*others] == [
    *(run_clock.SERVER, run_clock.BRAIN_TORRENT, run_clock.GOSSIP)
  ]
  communication = [others[name][1, 0] for name in others]
  np.testing.assert_allclose(communication, [0.002, 0.005, 0.004])
  np.testing.assert_allclose([others[name][1, 1] for name in others], 3.0)


def test_clients_that_drop_out_do_not_enlarge_the_model(tmp_path):
  """Of 8 clients with 1,000 floats each, 2 members and 3 others upload."""
  rows = _rows((0, 0, '', ''), (8, 8000, 2, 3), names=_ROLES)
  run = _read(tmp_path, rows, 'cmfl', round_time.Clock())
  assert run_clock.own(run, 1e6)[1, 0] == pytest.approx((2 + 1) * 0.001)
  assert run_clock.retimed(run, 1e6)[run_clock.SERVER][1, 0] == 0.002


def test_rounds_of_peers_take_what_each_received(tmp_path):
  """Nothing, then 2,500 floats for each of 4, then all of it for one."""
  rows = _rows(
    *((0, 0, '', ''), (4, 10_000, 1, 9), (1, 10_000, 1, 9)), names=_PULLED
  )
  run = _read(tmp_path, rows, 'gossip')
  assert run_clock.kind(run) == run_clock.PEERS
  np.testing.assert_allclose(
    run_clock.own(run, 1e6), [[0, 0], [0.0025, 0.09], [0.01, 0.09]]
  )
  assert not run_clock.retimed(run, 1e6)


@pytest.mark.parametrize('algorithm', ['', 'fed_soft'])
def test_other_runs_have_no_clock(tmp_path, algorithm):
  run = _read(tmp_path, _rows((0, 0), (4, 4000)), algorithm)
  assert run_clock.kind(run) is None
  assert run_clock.own(run, 1e6) is None
  assert not run_clock.retimed(run, 1e6)


def test_restarts_whose_rounds_are_one_row_have_no_clock(tmp_path):
  run = _read(tmp_path, _rows((40, 40_000), (4, 4000)), 'fed_avg')
  assert run_clock.kind(run) is None
  continued = _read(tmp_path, _rows(('', ''), (4, 4000)), 'fed_avg')
  assert run_clock.kind(continued) == run_clock.SERVER


def test_what_was_not_counted_has_no_clock(tmp_path):
  run = _read(tmp_path, [{'round': 0}, {'round': 1}], 'fed_avg')
  sealed_json.write(tmp_path / 'config.json', {})
  assert run_clock.kind(run) is None


def test_connections_in_words():
  rates = map(run_clock.rate_text, (5e5, 1e6, 1e8))
  assert [text.split()[0] for text in rates] == ['0.5', '1', '100']
