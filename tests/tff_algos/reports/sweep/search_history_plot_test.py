"""The picture of a search over its trials."""

import numpy as np
import pytest

from tests.testing import fake_search
from tff_algos.reports.plotting import style
from tff_algos.reports.sweep import search_history_plot

_LEVELS = (0.3, None, 0.2, 0.5, None, 0.4)


@pytest.mark.parametrize(
  ('higher', 'best'),
  [(True, [0.3, 0.3, 0.5, 0.5, 0.5]), (False, [0.3, 0.2, 0.2, 0.2, 0.2])],
)
def test_dots_the_best_so_far_and_pruned_trials(tmp_path, higher, best):
  values = {'weight': (1, 2, 3, 4, 5, 6)}
  sweep = fake_search.read(tmp_path, values, _LEVELS, higher_is_better=higher)
  with style.applied():
    figure = search_history_plot.draw(sweep)
  dots, line, crosses = figure.axes[0].lines
  np.testing.assert_allclose(dots.get_xdata(), [0, 2, 3, 5])
  np.testing.assert_allclose(dots.get_ydata(), [0.3, 0.2, 0.5, 0.4])
  np.testing.assert_allclose(line.get_ydata(), best)
  assert line.get_drawstyle() == 'steps-post'
  np.testing.assert_allclose(crosses.get_xdata(), [1, 4])
