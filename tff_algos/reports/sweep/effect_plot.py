"""Picture: effect of a numeric config value on each measure."""

import functools
import re

import numpy as np
from matplotlib import axes as axes_lib
from matplotlib import figure as figure_lib
from matplotlib import ticker

from tff_algos.evaluation import summaries
from tff_algos.reports.plotting import picture, style
from tff_algos.reports.sweep import measures, sweep_table
from tff_algos.reports.sweep import sweep as sweep_lib

_MAX_COLUMNS = 3
# Values with a larger ratio are drawn on a logarithmic axis.
_MAX_LINEAR_RATIO = 20


def pictures(sweep: sweep_lib.Sweep) -> list[picture.Picture]:
  """Returns a picture for each numeric axis of a sweep."""
  return [
    picture.Picture(
      name=f'effect_{re.sub(r"[^a-zA-Z0-9_.-]", "_", axis.name)}.png',
      caption=(
        f'Each measure against {axis.key}: mean over seeds, a band of one '
        'standard deviation, and a dash for each seed. A line joins cells with '
        'equal values on all other axes. Where a score is not finite for all '
        'clients of all seeds, the number of seeds of the mean is given.'
        + (measures.RATES if sweep.has_rates else '')
      ),
      draw=functools.partial(draw, position=position),
    )
    for position, axis in enumerate(sweep.plan.axes)
    if axis.is_numeric
  ]


def draw(sweep: sweep_lib.Sweep, position: int) -> figure_lib.Figure | None:
  """Draws each measure, and the success rate, against a numeric axis.

  Args:
    sweep: The runs.
    position: Position of the axis in the plan. Cells with equal values on all
      other axes form one line.

  Returns:
    None if fewer than two values have finished runs.
  """
  lines = _lines(sweep, position)
  values = sorted({cell.values[position] for cell in sweep.cells})
  panels = sweep.measures
  if len(values) < 2 or not panels:
    return None
  axis = sweep.plan.axes[position]
  num_panels = len(panels) + sweep.has_rates
  num_rows, _ = style.panel_shape(num_panels, _MAX_COLUMNS)
  figure = style.new_figure_with_legend(
    0.9 + 2.5 * num_rows,
    f'Effect of {axis.name}: mean and standard deviation over seeds',
    list(lines),
  )
  places = style.new_panels(figure, num_panels, _MAX_COLUMNS)
  measures.share_scores(places, panels, 'y')
  for axes, measure in zip(places, panels, strict=False):
    _draw_measure(axes, sweep, position, measure, lines.values())
  if sweep.has_rates:
    _draw_rates(places[-1], position, lines.values())
  for axes in places:
    _scale(axes, values)
    axes.set_xlabel(axis.name)
  return figure


def _lines(sweep: sweep_lib.Sweep, position: int):
  """Returns label -> cells of each line, by ascending value."""
  by_value = lambda cell: cell.values[position]
  return {
    label: sorted(cells, key=by_value)
    for label, cells in sweep.groups(position).items()
  }


def _draw_measure(
  axes: axes_lib.Axes, sweep, position, measure: measures.Measure, lines
) -> None:
  for index, cells in enumerate(lines):
    spreads = [sweep_lib.spread(cell.last, measure.name) for cell in cells]
    mean = np.array([spread.mean for spread in spreads])
    std = np.nan_to_num([spread.std for spread in spreads])
    x = np.array([cell.values[position] for cell in cells], np.float64)
    where = index, len(lines)
    style.draw_line(axes, where, x, mean, (mean - std, mean + std), 'o')
    for value, height, cell in zip(x, mean, cells, strict=True):
      few = sweep_table.fewer_seeds(cell.last, measure.name)
      style.note(axes, few, (value, height))
      seeds = [summaries.whole(point, measure.name) for point in cell.last]
      color = style.line_look(index)['color']
      axes.plot(
        [value] * len(seeds), seeds, '_', color=color, markersize=6, alpha=0.5
      )
  axes.set_title(style.wrapped(measure.title))
  axes.set_ylabel(measure.label(sweep.example))
  measure.format_axis(sweep.example, axes.yaxis)


def _draw_rates(axes: axes_lib.Axes, position, lines) -> None:
  """Draws the success rates of cluster recovery, with Wilson's intervals."""
  for index, cells in enumerate(lines):
    known = [
      (cell.values[position], rate)
      for cell in cells
      if (rate := cell.rate) is not None
    ]
    if not known:
      continue
    x = np.array([value for value, _ in known], np.float64)
    middle = np.array([rate.successes / rate.num for _, rate in known])
    ends = (
      np.array([rate.low for _, rate in known]),
      np.array([rate.high for _, rate in known]),
    )
    style.draw_line(axes, (index, len(lines)), x, middle, ends, 'o')
  axes.set_title('clusters found')
  axes.set_ylabel('seeds (%), 95 % interval')
  axes.set_ylim(-0.03, 1.03)
  style.format_percent(axes.yaxis)


def _scale(axes: axes_lib.Axes, values: list[float]) -> None:
  """Selects the scale of the x axis, and marks the values that were run."""
  positive = [value for value in values if value > 0]
  spans = positive and max(values) > _MAX_LINEAR_RATIO * min(positive)
  if spans and values[0] > 0:
    axes.set_xscale('log')
  elif spans and values[0] == 0:
    # Zero has no logarithm: it is drawn one decade below the smallest value.
    axes.set_xscale('symlog', linthresh=min(positive))
  axes.xaxis.set_major_locator(ticker.FixedLocator(values))
  axes.xaxis.set_major_formatter(ticker.StrMethodFormatter('{x:.6g}'))
  axes.xaxis.set_minor_locator(ticker.NullLocator())
