import pytest

from tests.testing import csv_files, fake_workdir
from tff_algos.reports.run import run as run_lib
from tff_algos.reports.run.plots import time_plot


def test_bars_are_the_seconds_of_all_rounds(tmp_path):
  """7 members and 11 training clients; 2 models of 50,890 to each of the 18."""
  first, *_ = time_plot.draw(fake_workdir.read(tmp_path, num_rounds=4)).axes
  communication, computation = (
    [bar.get_height() for bar in part] for part in first.containers
  )
  transfer = 2 * 50_890 / 1e6
  expected = [4 * n * transfer for n in (7 + 1, 2, 11, 10)]
  assert communication == pytest.approx(expected)
  assert computation == pytest.approx([0.404, 0.36, 0.36, 0.36])
  assert first.get_title() == '1 million floats/s'
  names = [label.get_text() for label in first.get_xticklabels()]
  assert [name.replace('\n', ' ') for name in names] == [
    'CMFL, this run',
    'FedAvg, re-timed',
    'Brain- Torrent, re-timed',
    'Gossip, re-timed',
  ]


def test_clients_that_pull_are_timed_by_what_they_received(tmp_path):
  """In each of 4 rounds 18 clients receive 18 * 50,890 floats together."""
  fake_workdir.write(tmp_path, num_clusters=1, num_rounds=4)
  path = tmp_path / 'metrics.csv'
  pulled = {'train/consensus_distance': 1, 'train/num_messages': 9}
  csv_files.write(path, [row | pulled for row in csv_files.read(path)])
  figure = time_plot.draw(run_lib.read(tmp_path))
  for axes, rate in zip(figure.axes, (1e6, 1e7, 1e8), strict=True):
    ((communication,), (computation,)) = axes.containers
    assert communication.get_height() == pytest.approx(4 * 50_890 / rate)
    assert computation.get_height() == pytest.approx(4 * 0.09)
  assert [label.get_text() for label in axes.get_xticklabels()] == ['this run']


def test_nothing_to_draw_with_a_server(tmp_path):
  assert time_plot.draw(fake_workdir.read(tmp_path, num_clusters=1)) is None
