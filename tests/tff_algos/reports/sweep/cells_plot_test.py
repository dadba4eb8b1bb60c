"""The picture of all cells."""

import numpy as np
import pytest

from tests.testing import fake_sweep
from tff_algos.reports.plotting import style
from tff_algos.reports.sweep import cells_plot
from tff_algos.reports.sweep import plan as plan_lib
from tff_algos.reports.sweep import sweep as sweep_lib

_AXES = (plan_lib.Axis('law', 'law', ('10:90', 'linear')),)


def _draw(tmp_path, **options):
  levels = {('10:90',): (0.2, 0.4), ('linear',): (0.3, 0.3)}
  with style.applied():
    return cells_plot.draw(fake_sweep.read(tmp_path, levels, _AXES, **options))


def _panel(figure, title):
  (found,) = [one for one in figure.axes if one.get_title('left') == title]
  return found


def _dots(axes):
  return [container.lines[0].get_xydata()[0] for container in axes.containers]


def test_a_row_for_each_cell_with_mean_deviation_and_seeds(tmp_path):
  figure = _draw(tmp_path)
  panel = _panel(figure, 'personalized, test')
  np.testing.assert_allclose(_dots(panel), [[0.3, 0], [0.3, 1]])
  (bar,) = panel.containers[0].lines[2]
  ends = bar.get_segments()[0][:, 0]
  half = 0.2 / np.sqrt(2)
  np.testing.assert_allclose(ends, [0.3 - half, 0.3 + half])
  seeds = [line.get_xdata() for line in panel.lines if line.get_marker() == '|']
  np.testing.assert_allclose(seeds[0], [0.2, 0.4])
  names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
  assert names == ['law=10:90', 'law=linear']


def test_success_rate_has_its_interval(tmp_path):
  panel = _panel(_draw(tmp_path, ari=0.2), 'clusters found')
  np.testing.assert_allclose(_dots(panel), [[0, 0], [0, 1]])
  (bar,) = panel.containers[0].lines[2]
  # Wilson with no success in two: up to z^2 / (2 + z^2).
  high = 1.959964**2 / (2 + 1.959964**2)
  np.testing.assert_allclose(bar.get_segments()[0][:, 0], [0, high], atol=1e-6)


def test_an_error_is_no_share(tmp_path):
  figure = _draw(tmp_path, score='mse')
  panel = _panel(figure, 'personalized, test')
  assert panel.get_xlabel() == 'mean squared error'


@pytest.mark.parametrize('planted', [True, False])
def test_what_nobody_has_gets_no_panel(tmp_path, planted):
  figure = _draw(tmp_path, ari=0.9 if planted else None, planted=planted)
  titles = {one.get_title('left') for one in figure.axes}
  assert ('cluster recovery (ARI)' in titles) == planted
  assert ('clusters found' in titles) == planted
  assert 'membership error' not in titles


def test_panels_of_scores_have_one_scale(tmp_path):
  levels = {('10:90',): (0.2, 0.4), ('linear',): (0.3, 0.3)}
  sweep = fake_sweep.read(tmp_path, levels, _AXES)
  name = 'held_out/mean/best_cluster/accuracy'
  for cell in sweep.cells:
    for run in cell.runs:
      run.summary['last'][name] = 0.9
  with style.applied():
    figure = cells_plot.draw(sweep)
  best, personalized = (
    _panel(figure, title).get_xlim()
    for title in ('best cluster, held out', 'personalized, test')
  )
  assert best == personalized
  assert best[0] < 0.2 < 0.9 < best[1]


def test_a_mean_over_fewer_seeds_names_their_number(tmp_path):
  fake_sweep.write_diverged(tmp_path)
  sweep = sweep_lib.read(tmp_path)
  with style.applied():
    figure = cells_plot.draw(sweep)
  panel = _panel(figure, 'personalized, test')
  assert [text.get_text() for text in panel.texts] == ['(1 of 2 seeds)']
