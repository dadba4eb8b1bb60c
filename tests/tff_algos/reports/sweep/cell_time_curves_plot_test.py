"""The picture of cells over seconds, against sums by hand."""

import numpy as np

from tests.testing import csv_files, fake_sweep
from tff_algos.core import sealed_json
from tff_algos.evaluation import round_time
from tff_algos.reports.plotting import style
from tff_algos.reports.sweep import cell_time_curves_plot
from tff_algos.reports.sweep import plan as plan_lib
from tff_algos.reports.sweep import sweep as sweep_lib

_AXES = (plan_lib.Axis('config file', '', ('server', 'committee')),)
_ROLES = {'train/num_members': 2, 'train/num_training': 4}


def _draw(sweep):
  with style.applied():
    return cell_time_curves_plot.draw(sweep)


def _legend(figure):
  return [text.get_text() for text in figure.legends[0].get_texts()]


def _write_sweep(tmp_path, cells):
  """Writes 3 rounds of 6 clients with 10 floats each; (cell, algorithm, extra)."""
  levels = {(name,): (0.2, 0.4) for name, _, _ in cells}
  fake_sweep.write(tmp_path, levels, _AXES, num_rounds=3)
  for name, algorithm, extra in cells:
    for folder in (tmp_path / name).iterdir():
      path = folder / 'metrics.csv'
      rows = csv_files.read(path)
      for row in rows:
        is_round = int(row['round']) > 0
        row['cost/downlink_floats'] = 60 * is_round
        row['cost/local_solves'] = 6 * is_round
        row.update(extra if is_round else dict.fromkeys(extra, ''))
      csv_files.write(path, rows)
      config = {'config': {'algorithm': {'name': algorithm}}}
      sealed_json.write(folder / 'config.json', config)
  return sweep_lib.read(tmp_path, clock=round_time.Clock(rates=(100.0,)))


def test_cells_over_their_own_clocks(tmp_path):
  """0.1 s a model: 2 of them, 2 + 1 of them, and re-timed 6 and 5."""
  cells = [('server', 'fed_avg', {}), ('committee', 'cmfl', _ROLES)]
  figure = _draw(_write_sweep(tmp_path, cells))
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
  assert _draw(sweep) is None


def test_all_cells_need_a_clock(tmp_path):
  cells = [('server', 'fed_soft', {}), ('committee', 'cmfl', _ROLES)]
  sweep = _write_sweep(tmp_path, cells)
  assert _draw(sweep) is None


def test_a_cell_of_which_a_seed_diverged_says_so(tmp_path):
  cells = [('server', 'fed_avg', {}), ('committee', 'cmfl', _ROLES)]
  sweep = _write_sweep(tmp_path, cells)
  columns = sweep.cells[0].runs[1].rounds.columns
  name = 'participating/test/personalized/accuracy'
  columns[name] = (*columns[name][:2], 'nan', 'nan')
  first, second, *_ = _legend(_draw(sweep))
  assert first == 'server (a seed diverged by round 2)'
  assert second == 'committee'
