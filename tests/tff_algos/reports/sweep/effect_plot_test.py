"""The picture of what a number does."""

import numpy as np
import pytest

from tests.testing import fake_sweep
from tff_algos.reports.plotting import style
from tff_algos.reports.sweep import effect_plot
from tff_algos.reports.sweep import plan as plan_lib
from tff_algos.reports.sweep import sweep as sweep_lib

_AXES = (
  plan_lib.Axis('algorithm.tau', 'tau', (2, 1)),
  plan_lib.Axis('law', 'law', ('x', 'y')),
)


def _draw(tmp_path, levels, axes=_AXES, position=0):
  with style.applied():
    return effect_plot.draw(fake_sweep.read(tmp_path, levels, axes), position)


def _panel(figure, title='personalized, test'):
  (found,) = [one for one in figure.axes if one.get_title('left') == title]
  return found


def test_a_line_for_each_choice_on_the_other_axes(tmp_path):
  figure = _draw(
    tmp_path,
    {
      (2, 'y'): (0.2, 0.4),
      (2, 'x'): (0.5,),
      (1, 'y'): (0.1, 0.1),
      (1, 'x'): (0.7,),
    },
  )
  panel = _panel(figure)
  lines = [line for line in panel.lines if line.get_marker() == 'o']
  np.testing.assert_allclose(lines[0].get_xydata(), [[1, 0.1], [2, 0.3]])
  np.testing.assert_allclose(lines[1].get_xydata(), [[1, 0.7], [2, 0.5]])
  names = [text.get_text() for text in figure.legends[0].get_texts()]
  assert names == ['law=y', 'law=x']
  band = panel.collections[0].get_paths()[0].vertices
  half = 0.2 / np.sqrt(2)
  assert band[:, 1].max() == pytest.approx(0.3 + half)
  assert panel.get_xlabel() == 'tau'
  assert _panel(figure, 'communication').lines[0].get_ydata()[0] == 200
  rates = _panel(figure, 'clusters found')
  np.testing.assert_array_equal(rates.lines[0].get_ydata(), [1, 1])
  # Wilson with two successes in two: from 2 / (2 + z^2).
  low = rates.collections[0].get_paths()[0].vertices[:, 1].min()
  assert low == pytest.approx(2 / (2 + 1.959964**2))


@pytest.mark.parametrize(
  ('values', 'scale'),
  [
    ((1, 2, 4), 'linear'),
    ((0.01, 0.1, 1.0), 'log'),
    ((0.0, 0.01, 1.0), 'symlog'),
    ((-1.0, 1.0), 'linear'),
  ],
)
def test_the_axis_fits_the_values_and_marks_them(tmp_path, values, scale):
  axes = (plan_lib.Axis('weight', 'weight', values),)
  levels = {(value,): (0.3,) for value in values}
  panel = _panel(_draw(tmp_path, levels, axes))
  assert panel.get_xscale() == scale
  np.testing.assert_array_equal(panel.get_xticks(), values)


def test_one_finished_value_has_no_effect(tmp_path):
  assert _draw(tmp_path, {(2, 'x'): (0.3,), (2, 'y'): (0.3,)}) is None


def test_a_mean_over_fewer_seeds_names_their_number(tmp_path):
  fake_sweep.write_diverged(tmp_path)
  sweep = sweep_lib.read(tmp_path)
  with style.applied():
    figure = effect_plot.draw(sweep, 0)
  panel = _panel(figure, 'personalized, test')
  assert [text.get_text() for text in panel.texts] == ['(1 of 2 seeds)']
