"""Picture: training trajectories over contours of a loss."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib import axes as axes_lib
from matplotlib import figure as figure_lib
from matplotlib import patheffects

from tff_algos.reports.plotting import style

_NUM_LEVELS = 14
# Highest contour, as a multiple of the trajectories' worst loss.
_HEADROOM = 2.0


class Surface(NamedTuple):
  """A loss on a grid.

  Attributes:
    x: Ascending, `[columns]`.
    y: Ascending, `[rows]`.
    losses: `[rows, columns]`, >= 0; non-finite values are left white.
  """

  x: np.ndarray
  y: np.ndarray
  losses: np.ndarray


class Path(NamedTuple):
  """A training trajectory.

  Attributes:
    label: Name in the legend.
    places: Coordinates on the plane, `[num_points, 2]`.
  """

  label: str
  places: np.ndarray


def draw(
  surface: Surface,
  paths: Sequence[Path],
  title: str,
  labels: Sequence[str],
  mark: tuple[float, float] | None = None,
) -> figure_lib.Figure:
  """Draws paths over contours; a ring marks a path's start, a disc its end.

  Args:
    surface: The loss.
    paths: At least one.
    title: Heading, one line.
    labels: Labels of the x and the y axis.
    mark: Position of the minimum, marked by a cross; None for none.
  """
  figure = style.new_figure_with_legend(
    5.6, title, [path.label for path in paths]
  )
  axes = figure.subplots()
  axes.grid(False)
  _draw_contours(axes, surface, paths)
  for index, path in enumerate(paths):
    _draw_path(axes, index, path)
  explained = 'ring: first model; disc: last model'
  if mark is not None:
    explained += '; cross: minimum'
    axes.plot(*mark, marker='x', markersize=9, color=style.INK, zorder=4)
  axes.set_title(explained)
  axes.set(xlabel=labels[0], ylabel=labels[1])
  axes.set_xlim(surface.x[0], surface.x[-1])
  axes.set_ylim(surface.y[0], surface.y[-1])
  return figure


def levels(surface: Surface, paths: Sequence[Path]) -> np.ndarray:
  """Returns the contour levels of the loss, ascending, in equal ratios.

  They range from the positive minimum on the grid to twice the largest loss
  near a path, at most the largest on the grid, so that steep borders do not use
  up all levels.
  """
  places = np.concatenate([path.places for path in paths])
  rows = np.abs(surface.y[:, None] - places[:, 1]).argmin(axis=0)
  columns = np.abs(surface.x[:, None] - places[:, 0]).argmin(axis=0)
  # Losses of 0 have no logarithm.
  usable = np.isfinite(surface.losses) & (surface.losses > 0)
  values = surface.losses[usable] if usable.any() else np.ones(1)
  near = surface.losses[rows, columns]
  low = values.min()
  high = min(_HEADROOM * near[np.isfinite(near)].max(initial=low), values.max())
  return np.geomspace(low, max(high, 1.01 * low), _NUM_LEVELS)


def _draw_contours(axes: axes_lib.Axes, surface, paths) -> None:
  chosen = levels(surface, paths)
  losses = np.ma.masked_invalid(surface.losses)
  grid = surface.x, surface.y, losses
  axes.contourf(*grid, chosen, cmap='Greys', alpha=0.55, extend='both')
  lines = axes.contour(
    *grid, chosen, colors=style.MUTED, linewidths=0.6, alpha=0.8
  )
  axes.clabel(lines, chosen[::2], fmt='%.3g', fontsize=7.5, colors=style.INK)


def _draw_path(axes: axes_lib.Axes, index: int, path: Path) -> None:
  look = style.line_look(index)
  halo = [patheffects.withStroke(linewidth=3.2, foreground='white')]
  x, y = np.asarray(path.places).T
  axes.plot(x, y, **look, linewidth=1.7, path_effects=halo, zorder=3)
  axes.scatter(x, y, s=8, color=look['color'], zorder=3)
  ends: dict[str, Any] = {
    'markersize': 8,
    'markeredgewidth': 1.7,
    'marker': 'o',
    'zorder': 3,
  }
  color = look['color']
  axes.plot(x[:1], y[:1], color=color, markerfacecolor='white', **ends)
  axes.plot(x[-1:], y[-1:], color=color, **ends)
