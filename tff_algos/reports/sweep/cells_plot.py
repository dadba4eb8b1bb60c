"""Picture: comparison of the cells of a sweep, one panel per measure."""

import textwrap

import numpy as np
from matplotlib import axes as axes_lib
from matplotlib import figure as figure_lib
from matplotlib import ticker

from tff_algos.evaluation import summaries
from tff_algos.reports.plotting import picture, style
from tff_algos.reports.sweep import measures, sweep_table
from tff_algos.reports.sweep import sweep as sweep_lib

_MAX_COLUMNS = 4
# Inches.
_PANEL_WIDTH = 2.3
_CHARACTER_WIDTH = 0.075
# Longer labels of cells are wrapped.
_MAX_LABEL = 40


def draw(sweep: sweep_lib.Sweep) -> figure_lib.Figure | None:
  """Draws a panel for each measure, and one for the success rate.

  Dots are means over seeds, bars standard deviations, ticks single seeds.

  Returns:
    None if no cell has a measure.
  """
  panels = list(sweep.measures)
  if not panels:
    return None
  rates = [cell.rate for cell in sweep.cells]
  num_panels = len(panels) + sweep.has_rates
  labels = [
    textwrap.fill(cell.label or 'all runs', _MAX_LABEL) for cell in sweep.cells
  ]
  longest = max(len(line) for label in labels for line in label.split('\n'))
  room = style.WIDTH - _CHARACTER_WIDTH * longest
  max_columns = min(_MAX_COLUMNS, int(room / _PANEL_WIDTH))
  num_rows, _ = style.panel_shape(num_panels, max_columns)
  num_lines = sum(1 + 0.6 * label.count('\n') for label in labels)
  figure = style.new_figure(
    0.7 + num_rows * (0.95 + 0.27 * num_lines),
    'Cells: mean and standard deviation over seeds',
  )
  places = style.new_panels(figure, num_panels, max_columns, sharey=True)
  measures.share_scores(places, panels, 'x')
  for axes, measure in zip(places, panels, strict=False):
    _draw_measure(axes, sweep, measure)
  if sweep.has_rates:
    _draw_rates(places[-1], rates)
  first = places[0]
  first.set_yticks(range(len(sweep.cells)), labels)
  first.set_ylim(len(sweep.cells) - 0.5, -0.5)
  return figure


def _draw_measure(
  axes: axes_lib.Axes, sweep: sweep_lib.Sweep, measure: measures.Measure
) -> None:
  _prepare(axes, measure.title, measure.label(sweep.example))
  for row, cell in enumerate(sweep.cells):
    spread = sweep_lib.spread(cell.last, measure.name)
    if not spread.num:
      continue
    color = style.line_look(row)['color']
    seeds = [summaries.whole(point, measure.name) for point in cell.last]
    axes.plot(
      seeds, [row] * len(seeds), '|', color=color, markersize=7, alpha=0.55
    )
    _draw_dot(axes, row, spread.mean, np.nan_to_num(spread.std), color)
    few = sweep_table.fewer_seeds(cell.last, measure.name)
    style.note(axes, few, (spread.mean, row))
  measure.format_axis(sweep.example, axes.xaxis)


def _draw_rates(axes: axes_lib.Axes, rates) -> None:
  _prepare(axes, 'clusters found', 'seeds (%), 95 % interval')
  for row, rate in enumerate(rates):
    if rate is None:
      continue
    value = rate.successes / rate.num
    # Rounding may place an end slightly inside the interval.
    ends = [[max(0.0, value - rate.low)], [max(0.0, rate.high - value)]]
    _draw_dot(axes, row, value, ends, style.line_look(row)['color'])
  axes.set_xlim(-0.03, 1.03)
  axes.xaxis.set_major_locator(ticker.MultipleLocator(0.25))
  style.format_percent(axes.xaxis)


def _prepare(axes: axes_lib.Axes, title: str, label: str) -> None:
  axes.set_title(style.wrapped(title))
  axes.set_xlabel(label)
  axes.grid(axis='x')
  axes.grid(visible=False, axis='y')
  axes.xaxis.set_major_locator(ticker.MaxNLocator(4))


def _draw_dot(axes: axes_lib.Axes, row: int, value, deviation, color) -> None:
  axes.errorbar(
    value,
    row,
    xerr=deviation,
    fmt='o',
    color=color,
    markersize=5,
    linewidth=1.6,
    capsize=2.5,
  )


PICTURE = picture.Picture(
  name='cells.png',
  caption=lambda sweep: (
    'Dot and bar: mean and standard deviation over seeds; small ticks: single '
    'seeds. Where a score is not finite for all clients of all seeds, the '
    'number of seeds of the mean is given.'
    f'{measures.RATES if sweep.has_rates else ""}'
  ),
  draw=draw,
)
