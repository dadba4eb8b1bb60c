"""Picture: objective of the trials of a search, and the best so far."""

import numpy as np
from matplotlib import figure as figure_lib
from matplotlib import ticker

from tff_algos.reports.plotting import picture, style
from tff_algos.reports.sweep import sweep as sweep_lib
from tff_algos.reports.sweep import trials as trials_lib


def draw(sweep: sweep_lib.Sweep) -> figure_lib.Figure | None:
  """Draws the objective against the number of the trial.

  Returns:
    None if no trial is finished.
  """
  search = sweep.plan.search
  means = {
    trial.number: trial.objective.mean for trial in trials_lib.ranked(sweep)
  }
  if search is None or not means:
    return None
  numbers = sorted(means)
  others = [
    trial.number
    for trial in trials_lib.read(sweep)
    if trial.number not in means
  ]
  values = np.array([means[number] for number in numbers])
  accumulate = np.maximum if search.higher_is_better else np.minimum
  figure = style.new_figure(3.4, 'Search: objective of each trial')
  axes = figure.subplots()
  axes.plot(numbers, values, 'o', color=style.line_look(0)['color'])
  axes.step(
    [*numbers, max([*numbers, *others]) + 0.5],
    [*accumulate.accumulate(values), accumulate.reduce(values)],
    where='post',
    color=style.INK,
  )
  # At the lower edge, whatever the scale.
  axes.plot(
    others,
    np.zeros(len(others)),
    'x',
    color=style.MUTED,
    transform=axes.get_xaxis_transform(),
    clip_on=False,
  )
  axes.set_xlabel('trial')
  axes.set_ylabel(style.wrapped(search.metric.replace('/', ' ')))
  axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
  return figure


PICTURE = picture.Picture(
  name='search_history.png',
  caption=(
    'Dot: objective of a finished trial, mean over seeds. Line: the best so '
    'far. Cross: any other trial; the table says why.'
  ),
  draw=draw,
)
