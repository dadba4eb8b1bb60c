"""Picture: latencies of a server's answers, over time and by percentile."""

import numpy as np
from matplotlib import figure as figure_lib
from matplotlib import ticker

from tff_algos.reports.plotting import style

_MAX_DOTS = 5000
_TICKS = (50, 90, 99, 99.9, 99.99)


def draw(
  title: str, starts: np.ndarray, milliseconds: np.ndarray
) -> figure_lib.Figure:
  """Draws each request by its start, and the latency of each percentile.

  Args:
    title: Heading, one line.
    starts: `[num_answers]`, seconds.
    milliseconds: `[num_answers]`, at least one.
  """
  figure = style.new_figure(3.9, title)
  over_time, by_percentile = figure.subplots(1, 2, sharey=True)
  color, line = style.colors(2)
  every = -(-len(starts) // _MAX_DOTS)
  shown = np.argsort(milliseconds)[::-1][::every]
  over_time.plot(
    starts[shown], milliseconds[shown], '.', color=color, markersize=2
  )
  over_time.set_yscale('log')
  over_time.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
  over_time.yaxis.set_major_formatter('{x:g}')
  over_time.minorticks_off()
  over_time.set_xlim(left=0)
  over_time.set_xlabel('start of the request, seconds')
  over_time.set_ylabel('latency, ms')
  over_time.set_title(
    'each request' if every == 1 else f'one of {every} requests, by latency'
  )
  _draw_percentiles(by_percentile, milliseconds, line)
  return figure


def _draw_percentiles(axes, milliseconds: np.ndarray, color: str) -> None:
  """Draws latencies by the share of slower requests, which is logarithmic."""
  slowest = np.sort(milliseconds)[::-1]
  share = np.arange(1, len(slowest) + 1) / len(slowest)
  axes.step(1 / share, slowest, where='pre', color=color)
  ticks = [q for q in _TICKS if 100 / (100 - q) <= len(slowest)]
  for q in ticks:
    value = np.percentile(milliseconds, q)
    axes.annotate(
      f'{value:.4g}',
      (100 / (100 - q), value),
      (0, 5),
      ha='right',
      textcoords='offset points',
      fontsize=8.5,
    )
  axes.set_xscale('log')
  axes.minorticks_off()
  axes.set_xticks([100 / (100 - q) for q in ticks])
  axes.set_xticklabels([f'p{q:g}' for q in ticks])
  axes.set_xlabel('percentile')
  axes.set_title(f'percentiles; slowest {slowest[0]:.4g} ms')
