"""The pictures of scores over rounds and over communication."""

import math

import numpy as np

from tests.testing import fake_sweep
from tff_algos.reports.plotting import style
from tff_algos.reports.sweep import curves_plot
from tff_algos.reports.sweep import plan as plan_lib
from tff_algos.reports.sweep import sweep as sweep_lib
from tff_algos.reports.sweep import target as target_lib

_TEST = 'participating/test/personalized/accuracy'
_AXES = (plan_lib.Axis('config file', '', ('fed_soft', 'ifca')),)


def _read(tmp_path, **options):
  levels = {('fed_soft',): (0.2, 0.4), ('ifca',): (0.5,)}
  return fake_sweep.read(tmp_path, levels, _AXES, **options)


def _draw(draw, sweep):
  with style.applied():
    return draw(sweep)


def test_a_line_and_a_band_for_each_cell(tmp_path):
  sweep = _read(tmp_path)
  figure = _draw(curves_plot.draw_rounds, sweep)
  (panel,) = figure.axes
  assert panel.get_title('left') == 'personalized, test'
  first, second = panel.lines
  np.testing.assert_allclose(
    first.get_xydata(), [[0, 0], [1, 0.15], [2, 0.3]], atol=1e-12
  )
  np.testing.assert_allclose(second.get_ydata(), [0, 0.25, 0.5])
  band = panel.collections[0].get_paths()[0].vertices
  last = band[band[:, 0] == 2][:, 1]
  half = 0.2 / np.sqrt(2)
  np.testing.assert_allclose([last.min(), last.max()], [0.3 - half, 0.3 + half])
  names = [text.get_text() for text in figure.legends[0].get_texts()]
  assert names == ['fed_soft', 'ifca']


def _read_with_losses(tmp_path, losses, names):
  """Reads a sweep whose cells have losses in rounds 1, 2, ..."""
  _read(tmp_path, num_rounds=len(losses['ifca']))
  for path in tmp_path.glob('*/*/metrics.csv'):
    cell = path.parents[1].name
    header, *rows = path.read_text().split()
    column = [names.get(cell, 'train/loss'), '', *map(str, losses[cell])]
    path.write_text(
      '\n'.join(
        f'{a},{b}' for a, b in zip([header, *rows], column, strict=True)
      )
    )
  return sweep_lib.read(tmp_path)


def test_the_training_loss_has_a_panel_of_its_own(tmp_path):
  losses = dict.fromkeys(('fed_soft', 'ifca'), (2.5, 0.5))
  # Of one of the two, whose phase has another name.
  sweep = _read_with_losses(tmp_path, losses, {'ifca': 'joint/loss'})
  _, panel = _draw(curves_plot.draw_rounds, sweep).axes
  assert panel.get_title('left') == 'training loss'
  assert len(panel.lines) == 2
  for line in panel.lines:
    np.testing.assert_allclose(line.get_xydata(), [[1, 2.5], [2, 0.5]])
  assert len(_draw(curves_plot.draw_communication, sweep).axes) == 1


def test_the_round_from_which_a_loss_stays_the_lowest_is_marked(tmp_path):
  """Not the first round in which it is: it comes back once."""
  losses = {'fed_soft': (3, 2, 1, 1, 1), 'ifca': (2, 2.5, 1, 0.5, 0.25)}
  sweep = _read_with_losses(tmp_path, losses, {})
  _, panel = _draw(curves_plot.draw_rounds, sweep).axes
  *_, mark = panel.lines
  assert set(mark.get_xdata()) == {4}
  assert mark.get_color() == style.line_look(1)['color']
  assert [text.get_text() for text in panel.texts] == ['lowest from round 4 on']


def test_no_loss_is_the_lowest_where_curves_end_apart(tmp_path):
  losses = {'fed_soft': (3, 2, 1), 'ifca': (2, 1, math.nan)}
  sweep = _read_with_losses(tmp_path, losses, {})
  _, panel = _draw(curves_plot.draw_rounds, sweep).axes
  assert not [text for text in panel.texts if 'lowest' in text.get_text()]


def test_communication_is_summed_and_in_a_fitting_unit(tmp_path):
  sweep = _read(tmp_path, num_rounds=20)
  panel = _draw(curves_plot.draw_communication, sweep).axes[0]
  np.testing.assert_allclose(panel.lines[0].get_xdata(), np.arange(21) * 100)
  assert panel.xaxis.get_major_formatter()(1500) == '1.5k'


def test_the_target_is_a_line_across(tmp_path):
  _read(tmp_path)
  target = target_lib.Target(_TEST, 0.9)
  sweep = sweep_lib.read(tmp_path, target)
  (panel,) = _draw(curves_plot.draw_communication, sweep).axes
  across = [set(line.get_ydata()) for line in panel.lines]
  assert across.count({0.9}) == 1
  # No curve comes near it; it is seen all the same.
  assert panel.get_ylim()[1] > 0.9


def test_a_share_of_each_runs_end_is_no_line(tmp_path):
  _read(tmp_path)
  target = target_lib.Target(_TEST, 0.9, is_share=True)
  sweep = sweep_lib.read(tmp_path, target)
  (panel,) = _draw(curves_plot.draw_communication, sweep).axes
  assert len(panel.lines) == 2
  assert panel.get_ylim()[1] < 0.9


def test_the_variance_of_rounds_where_it_was_measured(tmp_path):
  sweep = _read(tmp_path)
  assert _draw(curves_plot.draw_variance, sweep) is None
  for cell in sweep.cells:
    for run in cell.runs:
      (run.workdir / 'evaluation' / 'factors.csv').write_text(
        'round,variance,relative_variance\n0,0.5,0.2\n2,0.25,0.1\n'
      )
  left, right = _draw(curves_plot.draw_variance, sweep).axes
  assert left.get_title('left') == 'variance of the kernels'
  for panel, values in ((left, [0.5, 0.25]), (right, [0.2, 0.1])):
    assert len(panel.lines) == 2
    for line in panel.lines:
      np.testing.assert_allclose(line.get_xdata(), [0, 2])
      np.testing.assert_allclose(line.get_ydata(), values)


def test_one_cell_needs_no_legend(tmp_path):
  sweep = fake_sweep.read(tmp_path, {(): (0.2,)}, ())
  assert not _draw(curves_plot.draw_rounds, sweep).legends


def test_nothing_to_draw(tmp_path):
  sweep = _read(tmp_path)
  for cell in sweep.cells:
    for run in cell.runs:
      for name in list(run.rounds.columns):
        if name.startswith('cost/'):
          del run.rounds.columns[name]
  assert _draw(curves_plot.draw_communication, sweep) is None
  assert _draw(curves_plot.draw_rounds, sweep) is not None


def test_panels_of_scores_have_one_scale(tmp_path):
  sweep = _read(tmp_path)
  name = 'held_out/mean/best_cluster/accuracy'
  for cell in sweep.cells:
    for run in cell.runs:
      scores = map(float, run.rounds.columns[_TEST])
      run.rounds.columns[name] = tuple(str(one / 10) for one in scores)
      run.summary['last'][name] = 0.01
  low, high = _draw(curves_plot.draw_rounds, sweep).axes
  assert low.get_ylim() == high.get_ylim()
  assert high.get_ylim()[1] > 0.5


def test_a_line_that_ends_as_a_seed_diverged_is_marked(tmp_path):
  sweep = _read(tmp_path, num_rounds=4)
  columns = sweep.cells[0].runs[1].rounds.columns
  columns[_TEST] = (*columns[_TEST][:3], 'nan', 'inf')
  for draw, end in (
    (curves_plot.draw_rounds, 2),
    (curves_plot.draw_communication, 200),
  ):
    (panel,) = _draw(draw, sweep).axes
    (cross,) = [line for line in panel.lines if line.get_marker() == 'X']
    np.testing.assert_allclose(cross.get_xydata(), [[end, 0.15]])
    assert cross.get_color() == style.line_look(0)['color']
