"""Pictures: scores over rounds and communication, one line per cell."""

import functools
from collections.abc import Sequence

import numpy as np
from matplotlib import axes as axes_lib
from matplotlib import figure as figure_lib
from matplotlib import ticker

from tff_algos.reports.plotting import picture, style
from tff_algos.reports.sweep import measures
from tff_algos.reports.sweep import sweep as sweep_lib

_MAX_COLUMNS = 3
_LOSS = measures.Measure('train/loss', 'training loss', '')
_VARIANCES = (
  measures.Measure('factors/variance', 'variance of the kernels', ''),
  measures.Measure('factors/relative_variance', 'variance / squared norm', ''),
)
_DIVERGED = (
  ' A cross ends a line before the round in which a seed became NaN or '
  'infinite; a cell with a seed that never was finite has no line.'
)
# Its name if the phase has another name (PPFL).
_OTHER_LOSSES = ('joint/loss', 'shared/loss')


def draw_rounds(sweep: sweep_lib.Sweep) -> figure_lib.Figure | None:
  """Draws every score and the loss of local training, round by round.

  Returns:
    None without scores and losses.
  """
  title = f'{style.score_word(sweep.example).capitalize()} by round'
  return _draw(sweep, title, (*_scores(sweep), _LOSS), by_cost=False)


def draw_communication(sweep: sweep_lib.Sweep) -> figure_lib.Figure | None:
  """Draws every score over the cumulative communication.

  Returns:
    None if no run has a score, or none counted its communication.
  """
  title = (
    f'{style.score_word(sweep.example).capitalize()} against communication'
  )
  return _draw(sweep, title, _scores(sweep), by_cost=True)


def draw_variance(sweep: sweep_lib.Sweep) -> figure_lib.Figure | None:
  """Draws the update variance of a round over training.

  Returns:
    None without results of `binaries.factors`.
  """
  title = 'Variance of the kernels after a round'
  return _draw(sweep, title, _VARIANCES, by_cost=False)


def _draw(
  sweep: sweep_lib.Sweep,
  title: str,
  shown: Sequence[measures.Measure],
  *,
  by_cost: bool,
) -> figure_lib.Figure | None:
  panels = [
    (measure, lines)
    for measure in shown
    if (lines := _lines(sweep, measure, by_cost))
  ]
  if not panels:
    return None
  num_rows, _ = style.panel_shape(len(panels), _MAX_COLUMNS)
  figure = style.new_figure_with_legend(
    0.9 + 2.9 * num_rows,
    f'{title}: mean and standard deviation over seeds',
    [cell.label for cell in sweep.cells],
  )
  places = style.new_panels(figure, len(panels), _MAX_COLUMNS)
  measures.share_scores(places, [measure for measure, _ in panels], 'y')
  for axes, (measure, lines) in zip(places, panels, strict=True):
    fitted = [
      _values(sweep, other, curves)
      for other, curves in panels
      if other is measure or {other.unit, measure.unit} == {'score'}
    ]
    style.fit_scores(sweep.example, axes, np.concatenate(fitted))
    _draw_panel(axes, sweep, measure, lines, by_cost)
    axes.set_title(style.wrapped(measure.title))
    axes.set_xlabel('communication (floats)' if by_cost else 'round')
    axes.set_ylabel(measure.label(sweep.example))
    if measure is _LOSS:
      _mark_lowest(axes, lines)
  return figure


def _scores(sweep: sweep_lib.Sweep) -> list[measures.Measure]:
  return [one for one in sweep.measures if one.unit == 'score']


def _lines(sweep: sweep_lib.Sweep, measure: measures.Measure, by_cost: bool):
  """Returns (position of the cell, its curve) of the cells with one."""
  names = [measure.name, *(_OTHER_LOSSES if measure is _LOSS else ())]
  lines = []
  for index, cell in enumerate(sweep.cells):
    curves = (cell.curve(name) for name in names)
    curve = next((one for one in curves if one is not None), None)
    if curve is not None and not (by_cost and curve.sent is None):
      lines.append((index, curve))
  return lines


def _values(sweep, measure: measures.Measure, lines) -> np.ndarray:
  """Returns all values of a panel: ends of its bands, and its target."""
  ends = [
    value
    for _, curve in lines
    for value in (curve.mean - curve.std, curve.mean + curve.std)
  ]
  return np.concatenate([*ends, _target(sweep, measure)])


def _target(sweep, measure: measures.Measure) -> list[float]:
  """Returns the target value of a panel, if it has one for all runs."""
  target = sweep.cells[0].target
  # A share of the final value is another value in every run.
  if target is None or target.is_share or target.metric != measure.name:
    return []
  return [target.value]


def _draw_panel(axes: axes_lib.Axes, sweep, measure, lines, by_cost) -> None:
  """Draws the curves over rounds, or over communication."""
  for value in _target(sweep, measure):
    axes.axhline(value, color=style.MUTED, linestyle=':', linewidth=1.1)
  for index, curve in lines:
    x = curve.sent if by_cost else curve.rounds
    style.draw_line(
      axes,
      (index, len(sweep.cells)),
      x,
      curve.mean,
      (curve.mean - curve.std, curve.mean + curve.std),
    )
    if curve.diverged is not None:
      color = style.line_look(index)['color']
      axes.plot(x[-1], curve.mean[-1], 'X', color=color, markersize=9)
  axes.set_xlim(left=0)
  axes.xaxis.set_major_locator(ticker.MaxNLocator(5, integer=not by_cost))
  if by_cost:
    axes.xaxis.set_major_formatter(ticker.EngFormatter(sep=''))
  measure.format_axis(sweep.example, axes.yaxis)


def _mark_lowest(axes: axes_lib.Axes, lines) -> None:
  """Marks the round from which one cell stays below all others."""
  found = _lowest_since(lines)
  if found is None:
    return
  index, since = found
  color = style.line_look(index)['color']
  axes.axvline(since, color=color, linestyle=':', linewidth=1.3)
  is_late = since > sum(axes.get_xlim()) / 2
  axes.annotate(
    f'lowest from round {since} on',
    xy=(since, 1),
    xycoords=axes.get_xaxis_transform(),
    xytext=(-4 if is_late else 4, -4),
    textcoords='offset points',
    ha='right' if is_late else 'left',
    va='top',
    color=color,
  )


def _lowest_since(lines) -> tuple[int, int] | None:
  """Returns the line that ends below all others, and its first such round.

  Returns:
    (position of the cell, round); None for a single line, if lines end in
    different rounds, or on a tie at the end.
  """
  curves = [curve for _, curve in lines]
  if len({curve.rounds[-1] for curve in curves}) > 1:
    return None
  rounds = functools.reduce(np.intersect1d, [one.rounds for one in curves])
  if len(lines) < 2 or not rounds.size:
    return None
  values = np.array(
    [one.mean[np.searchsorted(one.rounds, rounds)] for one in curves]
  )
  best = values[:, -1].argmin()
  is_above = np.delete(values, best, axis=0).min(axis=0) <= values[best]
  if is_above[-1]:
    return None
  # The round after the last one in which another line was as low.
  first = np.flatnonzero(is_above).max(initial=-1) + 1
  return lines[best][0], int(rounds[first])


COMMUNICATION = picture.Picture(
  name='communication.png',
  caption=(
    'Scores against cumulative communication (numbers sent from the server to '
    'all clients of the rounds and back); both are means over seeds. Band: '
    'standard deviation of the score. Dotted: the target, if there is one.'
    + _DIVERGED
  ),
  draw=draw_communication,
)
ROUNDS = picture.Picture(
  name='rounds.png',
  caption=(
    'The same scores by round, and the mean loss of local training. Dotted: '
    'the round from which one cell has the lowest loss.' + _DIVERGED
  ),
  draw=draw_rounds,
)
VARIANCE = picture.Picture(
  name='variance.png',
  caption=(
    'Measured by binaries.factors: variance of the convolution kernels after '
    'the next round, over cohorts and orders of examples; right, as a share '
    'of the squared norm of their mean.'
  ),
  draw=draw_variance,
)
