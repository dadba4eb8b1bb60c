"""Picture: clients by test accuracy, and how often committees averaged them."""

import numpy as np
from matplotlib import axes as axes_lib
from matplotlib import figure as figure_lib
from matplotlib import ticker

from tff_algos.reports.plotting import picture, style
from tff_algos.reports.run import committee_history
from tff_algos.reports.run import run as run_lib

_NUM_BINS = 10
_EDGES = np.linspace(0, 1, _NUM_BINS + 1)
_AVERAGED, _NEVER = style.colors(2)


def draw(run: run_lib.Run) -> figure_lib.Figure | None:
  """Draws clients, and how often they were averaged, by test accuracy.

  After Che et al. (TPDS 2022, CMFL), Figure 3 (b) and (c). Clients without test
  examples are in neither.

  Returns:
    None without an audit log of committees, or without accuracies of clients.
  """
  history = committee_history.read(run)
  name = 'test_personalized_accuracy'
  if history is None or name not in run.clients:
    return None
  accuracy = run.clients.numbers(name)[run.is_participating]
  known = np.isfinite(accuracy)
  if not known.any():
    return None
  accuracy, counts = accuracy[known], history.num_averaged[known]
  # Bins include their lower end; the last one includes both ends.
  bins = np.minimum((accuracy * _NUM_BINS + 1e-9).astype(int), _NUM_BINS - 1)
  figure = style.new_figure(
    3.9, 'Clients by test accuracy, and how often they were averaged'
  )
  clients, averages = figure.subplots(1, 2)
  _draw_clients(clients, bins, counts)
  _draw_averages(averages, bins, counts)
  return figure


def _draw_clients(axes: axes_lib.Axes, bins, counts) -> None:
  """Draws the clients of each bin; those never averaged are stacked on top."""
  never = counts == 0
  below = _count(bins[~never])
  _draw_bars(axes, below, color=_AVERAGED, label='averaged at least once')
  if never.any():
    _draw_bars(
      axes,
      _count(bins[never]),
      below,
      color=_NEVER,
      label='never averaged',
    )
    axes.set_ylim(0, 1.2 * _count(bins).max())  # Room for the legend.
    axes.legend(loc='upper left', ncols=2)
  axes.set_title(f'{len(bins):,} clients')
  axes.set_ylabel('clients')
  axes.yaxis.set_major_locator(ticker.MaxNLocator(6, integer=True))


def _draw_averages(axes: axes_lib.Axes, bins, counts) -> None:
  """Draws the mean count of each bin; a bin without clients has no bar."""
  sizes, sums = _count(bins), _count(bins, counts)
  means = np.divide(sums, sizes, out=np.zeros(_NUM_BINS), where=sizes > 0)
  _draw_bars(axes, means, color=_AVERAGED)
  axes.axhline(counts.mean(), color=style.MUTED, linestyle=':', linewidth=1.1)
  axes.set_title(f'mean of all clients: {counts.mean():.3g}')
  axes.set_ylabel('mean number of rounds averaged')


def _count(bins, weights=None) -> np.ndarray:
  return np.bincount(bins, weights, minlength=_NUM_BINS)


def _draw_bars(
  axes: axes_lib.Axes, heights, below: np.ndarray | float = 0.0, **look
) -> None:
  axes.set_axisbelow(True)
  middles = (_EDGES[:-1] + _EDGES[1:]) / 2
  axes.bar(middles, heights, 0.92 / _NUM_BINS, below, **look)
  axes.set_xlim(0, 1)
  axes.set_xticks(_EDGES[::2])
  axes.set_xlabel('test accuracy of a client (%)')
  style.format_percent(axes.xaxis)


PICTURE = picture.Picture(
  name='committee_bins.png',
  caption=(
    'Participating clients by accuracy of the last model on their test '
    'examples, in bins of 10 percentage points. Right: mean number of rounds '
    'in which uploads of these clients were averaged; dotted: mean of all '
    'clients. If the committees excluded clients of low accuracy, the bars on '
    'the left of this panel are the lowest.'
  ),
  draw=draw,
)
