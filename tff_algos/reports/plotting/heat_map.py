"""Heat maps of tables of numbers: cells, texts, coloured names."""

from collections.abc import Sequence

import numpy as np
from matplotlib import axes as axes_lib
from matplotlib import colors as colors_lib
from matplotlib import patches

from tff_algos.reports.plotting import style
from tff_algos.reports.run import run as run_lib

_DARK_ENOUGH_FOR_WHITE = 0.55
# Characters of a name, of all names; longer ones of narrow columns are rotated.
_MAX_UPRIGHT_NAME = 12
_MAX_UPRIGHT_NAMES = 100
_MAX_SLANTED_NAMES = 20
SHADES = colors_lib.LinearSegmentedColormap.from_list(
  'shades', ('#eef3f8', '#0b4f86')
)


def draw(
  axes: axes_lib.Axes, shades: np.ndarray, texts: Sequence[Sequence[str]]
) -> None:
  """Draws the cells.

  Args:
    axes: Axes to draw in.
    shades: Darkness of each cell, `[num_rows, num_columns]` in [0, 1]; NaN is
      white.
    texts: Text of each cell.
  """
  axes.imshow(shades, cmap=SHADES, vmin=0, vmax=1, aspect='auto')
  axes.grid(False)
  axes.spines[:].set_visible(False)
  axes.tick_params(length=0)
  for row, column in np.ndindex(shades.shape):
    dark = shades[row, column] > _DARK_ENOUGH_FOR_WHITE
    axes.text(
      column,
      row,
      texts[row][column],
      ha='center',
      va='center',
      color='white' if dark else style.INK,
    )


def frame(axes: axes_lib.Axes, row: int, column: int) -> None:
  """Highlights a cell by a frame and bold text."""
  axes.add_patch(
    patches.Rectangle(
      (column - 0.47, row - 0.45),
      0.94,
      0.9,
      fill=False,
      edgecolor=style.INK,
      linewidth=2,
    )
  )
  for text in axes.texts:
    if text.get_position() == (column, row):
      text.set_fontweight('bold')


def name_columns(
  axes: axes_lib.Axes,
  names: Sequence[str],
  colors: Sequence[str] | None = None,
) -> None:
  """Names the columns below the map, in bold colours if there are any."""
  axes.set_xticks(range(len(names)), names)
  if colors is not None:
    _paint(axes.get_xticklabels(), colors)
  # Long names do not fit a narrow column.
  longest = max(map(len, names))
  if (len(names) > 4 and longest > _MAX_UPRIGHT_NAME) or (
    len(names) * (longest + 1) > _MAX_UPRIGHT_NAMES
  ):
    for label in axes.get_xticklabels():
      label.set(
        rotation=30 if len(names) <= _MAX_SLANTED_NAMES else 90,
        ha='right',
        va='center',
        rotation_mode='anchor',
      )


def number_clusters(run: run_lib.Run, axes: axes_lib.Axes) -> None:
  """Numbers the columns, which are in `run.cluster_order`."""
  colors = style.cluster_colors(run)
  name_columns(
    axes,
    [str(cluster) for cluster in run.cluster_order],
    [colors[cluster] for cluster in run.cluster_order],
  )


def name_rows(
  axes: axes_lib.Axes, names: Sequence[str], colors: Sequence[str]
) -> None:
  """Names the rows on the left of the map."""
  axes.set_yticks(range(len(names)), names)
  _paint(axes.get_yticklabels(), colors)


def _paint(labels, colors: Sequence[str]) -> None:
  for label, color in zip(labels, colors, strict=True):
    label.set_color(color)
    label.set_fontweight('bold')


def thin(size: int, count: int) -> np.ndarray:
  """Returns at most `count` of the numbers below `size`, with both ends."""
  return np.unique(np.linspace(0, size - 1, min(size, count)).astype(int))
