"""The picture of scores over seconds, against sums by hand."""

import numpy as np

from tests.testing import fake_workdir
from tff_algos.evaluation import round_time
from tff_algos.reports.plotting import style
from tff_algos.reports.run import run as run_lib
from tff_algos.reports.run.plots import time_curves_plot


def _draw(run):
  with style.applied():
    return time_curves_plot.draw(run)


def _legend(figure):
  return [text.get_text() for text in figure.legends[0].get_texts()]


def test_a_run_of_a_committee_has_one_line_a_connection(tmp_path):
  """7 members, 11 training clients, models of 2 * 50,890 floats."""
  run = fake_workdir.read(tmp_path, num_rounds=4)
  figure = _draw(run)
  series = run.series('participating/test/cluster/accuracy')
  assert series.rounds.tolist() == [0, 2, 4]
  for axes, rate in zip(figure.axes, (1e6, 1e7, 1e8), strict=True):
    (line,) = axes.lines
    seconds = 8 * 2 * 50_890 / rate + 0.101
    np.testing.assert_allclose(line.get_xdata(), [0, 2 * seconds, 4 * seconds])
    np.testing.assert_array_equal(line.get_ydata(), series.values)
  assert not figure.legends


def test_a_run_with_a_server_is_retimed_and_labelled_so(tmp_path):
  fake_workdir.write(tmp_path, num_clusters=1, num_rounds=2)
  clock = round_time.Clock(rates=(5e5,))
  figure = _draw(run_lib.read(tmp_path, clock))
  (axes,) = figure.axes
  assert axes.get_title('left') == '0.5 million floats/s'
  transfer = 50_890 / 5e5
  for line, models in zip(axes.lines, (2, 18, 17), strict=True):
    end = 2 * (models * transfer + 0.09)
    np.testing.assert_allclose(line.get_xdata(), [0, end])
    np.testing.assert_array_equal(line.get_ydata(), axes.lines[0].get_ydata())
  assert _legend(figure) == [
    'this run',
    "this run on BrainTorrent's clock (re-timed)",
    "this run on Gossip's clock (re-timed)",
  ]


def test_a_run_without_a_clock_has_no_picture(tmp_path):
  config = {'algorithm': {'name': 'ditto'}}
  run = fake_workdir.read(tmp_path, num_clusters=1, config=config)
  assert _draw(run) is None
