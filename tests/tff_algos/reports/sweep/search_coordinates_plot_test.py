"""The parallel coordinates of a search."""

import numpy as np
import pytest

from tests.testing import fake_search
from tff_algos.reports.plotting import style
from tff_algos.reports.sweep import search_coordinates_plot

_VALUES = {
  'rate': (0.001, 0.5, 0.01, 1.0),
  'clusters': (2, 5, 4, 6),
  'optimizer': ('sgd', 'sgd', 'adam', 'sgd'),
}


def _draw(tmp_path, levels, **options):
  with style.applied():
    return search_coordinates_plot.draw(
      fake_search.read(tmp_path, _VALUES, levels, **options)
    )


@pytest.mark.parametrize(('higher', 'last'), [(True, 3), (False, 0)])
def test_a_line_for_each_finished_trial_the_best_last(tmp_path, higher, last):
  figure = _draw(tmp_path, (0.2, None, 0.4, 0.5), higher_is_better=higher)
  lines = [one.get_ydata() for one in figure.axes[0].lines[:3]]
  # The rates span three decades, the clusters 2 to 6. Of the choices, that of
  # the line drawn first lies below.
  rows = {0: [0, 0, 0], 2: [1 / 3, 0.5, 1], 3: [1, 1, 0]}
  np.testing.assert_allclose(lines[1], rows[2], atol=1e-12)
  np.testing.assert_allclose(lines[2], rows[last], atol=1e-12)
  # The best is the darkest.
  shades = [sum(one.get_color()[:3]) for one in figure.axes[0].lines[:3]]
  assert shades == sorted(shades, reverse=True)
  texts = [one.get_text() for one in figure.axes[0].texts]
  assert texts[:4] == ['0.001', '1', '2', '6']
  assert {*texts[4:]} == {'sgd', 'adam'}
  assert figure.axes[1].get_ylabel().replace('\n', ' ') == (
    fake_search.METRIC.replace('/', ' ')
  )


def test_one_finished_trial_has_no_picture(tmp_path):
  assert _draw(tmp_path, (0.2, None, None, None)) is None


def test_equal_values_lie_at_one_end():
  heights, labels = search_coordinates_plot._scaled((3.0, 3.0))
  assert heights.tolist() == [0.0, 0.0]
  assert labels == [(0.0, '3')]
  heights, _ = search_coordinates_plot._scaled((0.0, 5.0, 100.0))
  np.testing.assert_allclose(heights, [0.0, 0.05, 1.0])  # 0 has no logarithm.
