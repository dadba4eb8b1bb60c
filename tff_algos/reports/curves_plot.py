"""Pictures: scores and loss over rounds and communication, a line a cell."""

import numpy as np
from matplotlib import axes as axes_lib
from matplotlib import figure as figure_lib
from matplotlib import ticker

from tff_algos.reports import measures, style
from tff_algos.reports import sweep as sweep_lib

_MAX_COLUMNS = 3
_LOSS = measures.Measure('train/loss', 'training loss', '')
# What it is called where the phase is called otherwise (PPFL).
_OTHER_LOSSES = ('joint/loss', 'shared/loss')


def draw_rounds(sweep: sweep_lib.Sweep) -> figure_lib.Figure | None:
  """Draws every score and the loss of local training, round by round.

  Returns:
    None if the runs have neither.
  """
  return _draw(sweep, 'round by round', (_LOSS,), by_cost=False)


def draw_communication(sweep: sweep_lib.Sweep) -> figure_lib.Figure | None:
  """Draws every score against the numbers that were sent so far.

  Returns:
    None if no run has a score, or counted what it sent.
  """
  return _draw(sweep, 'against communication', (), by_cost=True)


def _draw(
  sweep: sweep_lib.Sweep,
  how: str,
  others: tuple[measures.Measure, ...],
  *,
  by_cost: bool,
) -> figure_lib.Figure | None:
  scores = [one for one in sweep.measures if one.unit == 'score']
  panels = [
    (measure, lines)
    for measure in (*scores, *others)
    if (lines := _lines(sweep, measure, by_cost))
  ]
  if not panels:
    return None
  num_rows, num_columns = style.panel_shape(len(panels), _MAX_COLUMNS)
  word = 'Accuracy' if sweep.example.higher_is_better else 'Mean squared error'
  figure = style.new_figure_with_legend(
    0.6 + 3.7 * num_columns,
    0.9 + 2.9 * num_rows,
    f'{word} {how}: mean and deviation over seeds',
    [cell.label for cell in sweep.cells],
  )
  places = style.new_panels(figure, len(panels), _MAX_COLUMNS)
  divisor, unit = style.floats_unit(
    max(
      (curve.sent[-1] for _, lines in panels for _, curve in lines)
      if by_cost
      else (1,)
    )
  )
  for axes, (measure, lines) in zip(places, panels, strict=True):
    _draw_panel(axes, sweep, measure, lines, divisor if by_cost else None)
    axes.set_title(measure.title)
    axes.set_xlabel(f'sent so far ({unit})' if by_cost else 'round')
    axes.set_ylabel(measure.label(sweep.example))
  return figure


def _lines(sweep: sweep_lib.Sweep, measure: measures.Measure, by_cost: bool):
  """Returns (position of the cell, its curve) of the cells that have one."""
  names = [measure.name, *(_OTHER_LOSSES if measure is _LOSS else ())]
  lines = []
  for index, cell in enumerate(sweep.cells):
    curves = (cell.curve(name) for name in names)
    curve = next((one for one in curves if one is not None), None)
    if curve is not None and not (by_cost and curve.sent is None):
      lines.append((index, curve))
  return lines


def _draw_panel(axes: axes_lib.Axes, sweep, measure, lines, divisor) -> None:
  """Draws the curves; over what was sent by `divisor`, or over rounds."""
  shown = [
    value
    for _, curve in lines
    for value in (curve.mean - curve.std, curve.mean + curve.std)
  ]
  style.fit_scores(sweep.example, axes, np.concatenate(shown))
  for index, curve in lines:
    style.draw_line(
      axes,
      (index, len(sweep.cells)),
      curve.rounds if divisor is None else curve.sent / divisor,
      curve.mean,
      (curve.mean - curve.std, curve.mean + curve.std),
    )
  axes.set_xlim(left=0)
  axes.xaxis.set_major_locator(ticker.MaxNLocator(5, integer=divisor is None))
  measure.format_axis(sweep.example, axes.yaxis)
