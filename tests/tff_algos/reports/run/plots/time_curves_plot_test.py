"""The pictures of scores over seconds, against sums by hand."""

import csv

import numpy as np

from tests.testing import fake_sweep, fake_workdir
from tff_algos.core import sealed_json
from tff_algos.evaluation import round_time
from tff_algos.reports.plotting import style
from tff_algos.reports.run import run as run_lib
from tff_algos.reports.run.plots import time_curves_plot
from tff_algos.reports.sweep import plan as plan_lib
from tff_algos.reports.sweep import sweep as sweep_lib

_AXES = (plan_lib.Axis('config file', '', ('server', 'committee')),)
_ROLES = {'train/num_members': 2, 'train/num_training': 4}


def _draw(draw, of):
  with style.applied():
    return draw(of)


def _legend(figure):
  return [text.get_text() for text in figure.legends[0].get_texts()]


def test_a_run_of_a_committee_has_one_line_a_connection(tmp_path):
  """7 members, 11 training clients, models of 2 * 50,890 floats."""
  fake_workdir.write(tmp_path, num_rounds=4)
  run = run_lib.read(tmp_path)
  figure = _draw(time_curves_plot.draw, run)
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
  figure = _draw(time_curves_plot.draw, run_lib.read(tmp_path, clock))
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
  fake_workdir.write(tmp_path, num_clusters=1, config=config)
  assert _draw(time_curves_plot.draw, run_lib.read(tmp_path)) is None


def _write_sweep(tmp_path, cells):
  """Writes 3 rounds of 6 clients with 10 floats each; (cell, algorithm, extra)."""
  levels = {(name,): (0.2, 0.4) for name, _, _ in cells}
  fake_sweep.write(tmp_path, levels, _AXES, num_rounds=3)
  for name, algorithm, extra in cells:
    for folder in (tmp_path / name).iterdir():
      path = folder / 'metrics.csv'
      with path.open() as file:
        rows = list(csv.DictReader(file))
      for row in rows:
        is_round = int(row['round']) > 0
        row['cost/downlink_floats'] = 60 * is_round
        row['cost/local_solves'] = 6 * is_round
        row.update(extra if is_round else dict.fromkeys(extra, ''))
      with path.open('w') as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
      config = {'config': {'algorithm': {'name': algorithm}}}
      sealed_json.write(folder / 'config.json', config)
  return sweep_lib.read(tmp_path, clock=round_time.Clock(rates=(100.0,)))


def test_cells_over_their_own_clocks(tmp_path):
  """0.1 s a model: 2 of them, 2 + 1 of them, and re-timed 6 and 5."""
  cells = [('server', 'fed_avg', {}), ('committee', 'cmfl', _ROLES)]
  figure = _draw(time_curves_plot.draw_sweep, _write_sweep(tmp_path, cells))
  assert _legend(figure) == [
    'server',
    'committee',
    "server on BrainTorrent's clock (re-timed)",
    "server on Gossip's clock (re-timed)",
  ]
  (axes,) = figure.axes
  for line, seconds in zip(
    axes.lines, (0.2 + 0.09, 0.3 + 0.101, 0.6 + 0.09, 0.5 + 0.09), strict=True
  ):
    np.testing.assert_allclose(line.get_xdata(), seconds * np.arange(4))
    np.testing.assert_allclose(line.get_ydata(), [0, 0.1, 0.2, 0.3], atol=1e-12)
  band = axes.collections[0].get_paths()[0].vertices
  half = 0.2 / np.sqrt(2)
  assert np.isclose(band[:, 1].max(), 0.3 + half)


def test_rounds_say_as_much_where_all_have_a_server(tmp_path):
  cells = [('server', 'fed_avg', {}), ('committee', 'fed_avg', {})]
  sweep = _write_sweep(tmp_path, cells)
  assert _draw(time_curves_plot.draw_sweep, sweep) is None


def test_all_cells_need_a_clock(tmp_path):
  cells = [('server', 'fed_soft', {}), ('committee', 'cmfl', _ROLES)]
  sweep = _write_sweep(tmp_path, cells)
  assert _draw(time_curves_plot.draw_sweep, sweep) is None


def test_a_cell_of_which_a_seed_diverged_says_so(tmp_path):
  cells = [('server', 'fed_avg', {}), ('committee', 'cmfl', _ROLES)]
  sweep = _write_sweep(tmp_path, cells)
  columns = sweep.cells[0].runs[1].rounds.columns
  name = 'participating/test/personalized/accuracy'
  columns[name] = (*columns[name][:2], 'nan', 'nan')
  first, second, *_ = _legend(_draw(time_curves_plot.draw_sweep, sweep))
  assert first == 'server (a seed diverged by round 2)'
  assert second == 'committee'
