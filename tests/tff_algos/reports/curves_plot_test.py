"""The pictures of scores over rounds and over communication."""

import numpy as np

from tests.testing import fake_sweep
from tff_algos.reports import curves_plot, style
from tff_algos.reports import plan as plan_lib
from tff_algos.reports import sweep as sweep_lib

_AXES = (plan_lib.Axis('config file', '', ('fed_soft', 'ifca')),)


def _read(tmp_path, **options):
  levels = {('fed_soft',): (0.2, 0.4), ('ifca',): (0.5,)}
  fake_sweep.write(tmp_path, levels, _AXES, **options)
  return sweep_lib.read(tmp_path)


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


def test_the_training_loss_has_a_panel_of_its_own(tmp_path):
  _read(tmp_path)
  for path in tmp_path.glob('*/*/metrics.csv'):
    header, *rows = path.read_text().split()
    # Of one of the two, whose phase has another name.
    phase = 'joint' if path.parents[1].name == 'ifca' else 'train'
    losses = [f'{phase}/loss', '', '2.5', '0.5']
    path.write_text(
      '\n'.join(
        f'{a},{b}' for a, b in zip([header, *rows], losses, strict=True)
      )
    )
  sweep = sweep_lib.read(tmp_path)
  _, panel = _draw(curves_plot.draw_rounds, sweep).axes
  assert panel.get_title('left') == 'training loss'
  assert len(panel.lines) == 2
  for line in panel.lines:
    np.testing.assert_allclose(line.get_xydata(), [[1, 2.5], [2, 0.5]])
  assert len(_draw(curves_plot.draw_communication, sweep).axes) == 1


def test_communication_is_summed_and_in_a_fitting_unit(tmp_path):
  sweep = _read(tmp_path, num_rounds=20)
  panel = _draw(curves_plot.draw_communication, sweep).axes[0]
  np.testing.assert_allclose(
    panel.lines[0].get_xdata(), np.arange(21) * 100 / 1000
  )
  assert panel.get_xlabel() == 'sent so far (thousand floats)'


def test_one_cell_needs_no_legend(tmp_path):
  fake_sweep.write(tmp_path, {(): (0.2,)}, ())
  assert not _draw(curves_plot.draw_rounds, sweep_lib.read(tmp_path)).legends


def test_nothing_to_draw(tmp_path):
  sweep = _read(tmp_path)
  for cell in sweep.cells:
    for run in cell.runs:
      for name in list(run.rounds.columns):
        if name.startswith('cost/'):
          del run.rounds.columns[name]
  assert _draw(curves_plot.draw_communication, sweep) is None
  assert _draw(curves_plot.draw_rounds, sweep) is not None
