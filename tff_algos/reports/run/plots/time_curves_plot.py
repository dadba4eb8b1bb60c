"""Picture: score over the virtual clock, one panel per connection speed."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from matplotlib import axes as axes_lib
from matplotlib import figure as figure_lib
from matplotlib import ticker

from tff_algos.reports.plotting import picture, style
from tff_algos.reports.run import run as run_lib
from tff_algos.reports.run import run_clock

# The global model; without a server the mean of the client models.
_MODELS = ('cluster', 'personalized')
RETIMED = '(re-timed)'


class Line(NamedTuple):
  """A line of all panels.

  Attributes:
    label: Name in the legend.
    seconds: Time of each evaluation by connection, float64 `[rates, n]`.
    middle: Score, float64 `[n]`.
    spread: Half the height of the band around it, float64 `[n]`.
  """

  label: str
  seconds: np.ndarray
  middle: np.ndarray
  spread: np.ndarray


def draw(run: run_lib.Run) -> figure_lib.Figure | None:
  """Draws a run's score over the seconds of its rounds.

  The score of a run with a server is also drawn on the clocks of BrainTorrent
  and gossip, re-timed.

  Returns:
    None if the run has no clock or no score.
  """
  series = next(
    (one for name in score_names(run) if (one := run.series(name)) is not None),
    None,
  )
  if run_clock.kind(run) is None or series is None:
    return None
  lines = [
    Line(label, seconds, series.values, np.zeros(len(series.values)))
    for label, seconds in clocks((run,), series.rounds, 'this run')
  ]
  return draw_lines(run, lines, f'Test {style.score_word(run)}')


def clocks(runs, rounds, label: str) -> Iterator[tuple[str, np.ndarray]]:
  """Yields (label, mean seconds until each of the rounds, `[rates, n]`)."""
  own = [[run_clock.own(one, r) for r in one.clock.rates] for one in runs]
  yield label, _until(runs, rounds, own)
  if {run_clock.kind(one) for one in runs} != {run_clock.SERVER}:
    return
  others = [
    [run_clock.retimed(one, r) for r in one.clock.rates] for one in runs
  ]
  for name in others[0][0]:
    times = [[systems[name] for systems in of_run] for of_run in others]
    yield (
      f"{label} on {name}'s clock {RETIMED}",
      _until(runs, rounds, times),
    )


def _until(runs, rounds, times) -> np.ndarray:
  """Returns cumulative seconds by connection, averaged over runs."""
  found = []
  for run, of_run in zip(runs, times, strict=True):
    rows = np.searchsorted(run.rounds.numbers('round'), rounds)
    found.append([seconds.sum(axis=1).cumsum()[rows] for seconds in of_run])
  return np.mean(found, axis=0)


def score_names(run: run_lib.Run) -> list[str]:
  """Returns the metrics to draw, the preferred one first."""
  return [f'participating/test/{model}/{run.score_name}' for model in _MODELS]


def draw_lines(
  run: run_lib.Run, lines: list[Line], title: str
) -> figure_lib.Figure:
  """Draws lines, one panel per connection speed of a run's clock."""
  rates = run.clock.rates
  figure = style.new_figure_with_legend(
    3.8,
    f'{title} over simulated time',
    [line.label for line in lines],
  )
  panels = style.new_panels(figure, len(rates), len(rates), sharey=True)
  values = np.concatenate(
    [line.middle + sign * line.spread for line in lines for sign in (-1, 1)]
  )
  style.fit_scores(run, panels[0], values)
  for place, (axes, rate) in enumerate(zip(panels, rates, strict=True)):
    _draw_panel(axes, lines, place)
    axes.set_title(run_clock.rate_text(rate))
    style.format_scores(run, axes.yaxis)
  panels[0].set_ylabel(style.score_label(run))
  return figure


def _draw_panel(axes: axes_lib.Axes, lines: list[Line], place: int) -> None:
  for index, line in enumerate(lines):
    style.draw_line(
      axes,
      (index, len(lines)),
      line.seconds[place],
      line.middle,
      (line.middle - line.spread, line.middle + line.spread),
    )
  axes.set_xlim(left=0)
  axes.set_xlabel('seconds')
  axes.xaxis.set_major_locator(ticker.MaxNLocator(5))


PICTURE = picture.Picture(
  name='time_curves.png',
  caption=(
    'Score over simulated time (the cost model of CMFL, TPDS 2022, section '
    '6.5), for several connection speeds with a time axis each. Re-timed: the '
    'scores of this run after the same rounds, with the round duration of '
    'another system by that model; that system was not run.'
  ),
  draw=draw,
)
