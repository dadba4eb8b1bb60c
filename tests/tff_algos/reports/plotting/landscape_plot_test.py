"""The picture of paths over a loss."""

import numpy as np
import pytest

from tff_algos.reports.plotting import landscape_plot, style


def _surface():
  x, y = np.linspace(-2, 2, 21), np.linspace(-1, 3, 11)
  losses = 0.5 + x[None, :] ** 2 + y[:, None] ** 2
  losses[0, 0] = np.inf
  return landscape_plot.Surface(x, y, losses)


def _paths():
  one = np.array([[1.0, 2.0], [0.5, 1.0], [0.0, 0.2]])
  return [
    landscape_plot.Path('plain', one),
    landscape_plot.Path('factors', -one[:2] / 4),
  ]


def _draw():
  with style.applied():
    return landscape_plot.draw(
      _surface(), _paths(), 'Title', ['first', 'second'], mark=(0.0, 0.0)
    )


def test_levels_end_near_the_worst_loss_of_the_paths():
  found = landscape_plot.levels(_surface(), _paths())
  # The start (1, 2) is nearest to the node (1, 1.8) or (1, 2.2).
  worst = 0.5 + 1 + 2.2**2
  least = 0.5 + 0.2**2
  np.testing.assert_allclose(found[0], least)
  assert (
    2 * (0.5 + 1 + 1.8**2) <= found[-1] * (1 + 1e-9) <= 2 * worst * (1 + 1e-6)
  )
  np.testing.assert_allclose(found[1:] / found[:-1], found[1] / found[0])


def test_paths_lie_where_they_are():
  (axes,) = _draw().axes
  lines = [line for line in axes.lines if len(line.get_xdata()) > 1]
  for line, path in zip(lines, _paths(), strict=True):
    np.testing.assert_array_equal(line.get_xydata(), path.places)
  crosses = [line for line in axes.lines if line.get_marker() == 'x']
  np.testing.assert_array_equal(crosses[0].get_xydata(), [[0, 0]])
  assert (axes.get_xlim(), axes.get_ylim()) == ((-2, 2), (-1, 3))
  assert (axes.get_xlabel(), axes.get_ylabel()) == ('first', 'second')


def test_the_legend_names_the_runs():
  (legend,) = _draw().legends
  assert [text.get_text() for text in legend.get_texts()] == [
    'plain',
    'factors',
  ]


@pytest.mark.parametrize('extreme', [0.0, np.inf])
def test_an_extreme_loss_on_a_path_has_no_level(extreme):
  surface = _surface()
  surface.losses[7:, 5:16] = extreme
  found = landscape_plot.levels(surface, _paths())
  assert np.isfinite(found).all() and (np.diff(found) > 0).all()
  assert found[0] > 0
  with style.applied():
    style.to_png(landscape_plot.draw(surface, _paths(), '', ['', '']))


@pytest.mark.parametrize('loss', [1.0, 0.0])
def test_a_flat_loss_can_be_drawn(loss):
  surface = _surface()._replace(losses=np.full((11, 21), loss))
  with style.applied():
    style.to_png(landscape_plot.draw(surface, _paths(), '', ['', '']))
