"""Picture: parallel coordinates of the trials of a search."""

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib import cm, colors
from matplotlib import figure as figure_lib

from tff_algos.reports.plotting import picture, style
from tff_algos.reports.sweep import sweep as sweep_lib
from tff_algos.reports.sweep import trials as trials_lib

# Values with a larger ratio lie on a logarithmic axis.
_MAX_LINEAR_RATIO = 20


def draw(sweep: sweep_lib.Sweep) -> figure_lib.Figure | None:
  """Draws a vertical axis for each searched key, and a line for each trial.

  Returns:
    None if fewer than two trials are finished.
  """
  best_first = trials_lib.ranked(sweep)
  search = sweep.plan.search
  if search is None or len(best_first) < 2:
    return None
  worst_first = best_first[::-1]  # The best are drawn above the others.
  scores = np.array([trial.objective.mean for trial in worst_first])
  names = [axis.name for axis in sweep.plan.axes[1:]]
  columns = list(zip(*(trial.values for trial in worst_first), strict=True))
  scaled = [_scaled(column) for column in columns]
  heights = np.array([height for height, _ in scaled])
  # The darkest for the best, and yellow, which is faint, for the worst.
  map_name = 'viridis_r' if search.higher_is_better else 'viridis'
  shades = cm.ScalarMappable(
    colors.Normalize(scores.min(), scores.max()), matplotlib.colormaps[map_name]
  )
  figure = style.new_figure(3.8, 'Search: values and objective')
  axes = figure.subplots()
  places = np.arange(len(names))
  for row, score in zip(heights.T, scores, strict=True):
    axes.plot(places, row, 'o-', color=shades.to_rgba(score), markersize=3)
  for place, (_, ticks) in zip(places, scaled, strict=True):
    axes.axvline(place, color=style.FAINT, zorder=0)
    for height, text in ticks:
      axes.annotate(
        text,
        (place, height),
        xytext=(4, 0),
        textcoords='offset points',
        va='center',
        color=style.MUTED,
      )
  axes.set_xticks(places, [style.wrapped(name) for name in names])
  axes.set_xlim(-0.2, len(names) - 0.6)
  axes.set_yticks([])
  axes.grid(visible=False)
  axes.spines[:].set_visible(False)
  figure.colorbar(
    shades, ax=axes, label=style.wrapped(search.metric.replace('/', ' '))
  )
  return figure


def _scaled(
  values: Sequence[Any],
) -> tuple[np.ndarray, list[tuple[float, str]]]:
  """Returns heights of values in [0, 1], and the labels of an axis.

  Numbers of a large ratio are scaled by their logarithms; other values than
  numbers lie at equal distances.
  """
  is_number = all(
    isinstance(value, (int, float)) and not isinstance(value, bool)
    for value in values
  )
  if not is_number:
    distinct = list(dict.fromkeys(values))
    step = 1 / max(1, len(distinct) - 1)
    heights = np.array([distinct.index(value) * step for value in values])
    labels = [(i * step, str(value)) for i, value in enumerate(distinct)]
    return heights, labels
  numbers = np.array(values, np.float64)
  low, high = numbers.min(), numbers.max()
  is_log = low > 0 and high > _MAX_LINEAR_RATIO * low
  scale = np.log if is_log else np.asarray
  width = (scale(high) - scale(low)) or 1.0
  heights = (scale(numbers) - scale(low)) / width
  ends = [(0.0, f'{low:.3g}'), (1.0, f'{high:.3g}')]
  return heights, ends[: 1 + (high > low)]


PICTURE = picture.Picture(
  name='search_coordinates.png',
  caption=(
    'Parallel coordinates: a line for each finished trial, which crosses the '
    "axis of each key at its value, in the colour of the trial's objective. "
    'The best are drawn last.'
  ),
  draw=draw,
)
