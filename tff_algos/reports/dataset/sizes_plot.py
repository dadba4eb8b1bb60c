"""Picture: number of training examples of each client."""

import numpy as np
from matplotlib import figure as figure_lib
from matplotlib import ticker

from tff_algos.data import schema as schema_lib
from tff_algos.reports.dataset import facts as facts_lib
from tff_algos.reports.dataset import picture_rows
from tff_algos.reports.plotting import client_axis, picture, style

_SPLIT_COLORS = ('#0b4f86', '#c98a00', '#9aa0a6')
# Ratio of largest to smallest size from which the axis is logarithmic.
_WIDE = 30


def draw(facts: facts_lib.Facts) -> figure_lib.Figure | None:
  """Draws a bar per client, or a histogram of many clients.

  Returns:
    None if there are no clients.
  """
  if not facts.client_ids:
    return None
  totals = np.sum([*facts.sizes.values()], axis=0)
  figure = style.new_figure(3.6, 'Examples of the clients')
  axes = figure.subplots()
  axes.set_axisbelow(True)
  if len(totals) <= picture_rows.MAX_ROWS:
    _draw_bars(axes, facts, np.argsort(-totals, kind='stable'))
  else:
    _draw_histogram(axes, facts.sizes[schema_lib.TRAIN])
  return figure


def _draw_bars(axes, facts: facts_lib.Facts, order: np.ndarray) -> None:
  below, positions = np.zeros(len(order)), np.arange(len(order))
  for split, color in zip(schema_lib.SPLITS, _SPLIT_COLORS, strict=True):
    heights = facts.sizes[split][order]
    if heights.any():
      axes.bar(positions, heights, 0.82, below, color=color, label=split)
    below += heights
  axes.set_xlim(-0.6, len(order) - 0.4)
  client_axis.name(axes.xaxis, [facts.client_ids[index] for index in order])
  axes.set_xlabel(f'{len(order)} clients, in descending order of size')
  axes.set_ylabel('examples')
  axes.yaxis.set_major_locator(ticker.MaxNLocator(6, integer=True))
  axes.legend(loc='center left', bbox_to_anchor=(1, 0.5))


def _draw_histogram(axes, sizes: np.ndarray) -> None:
  low, high = int(sizes.min()), int(sizes.max())
  if low > 0 and high > _WIDE * low:
    bins = np.unique(np.geomspace(low, high + 1, 41).round())
    axes.set_xscale('log')
    axes.xaxis.set_major_formatter(ticker.StrMethodFormatter('{x:,.0f}'))
    axes.xaxis.set_minor_formatter(ticker.NullFormatter())
  else:
    step = max(1, -(-(high + 1 - low) // 40))
    bins = np.arange(low, high + 1 + step, step) - 0.5
    axes.xaxis.set_major_locator(ticker.MaxNLocator(10, integer=True))
    axes.set_xlim(bins[0] - step, bins[-1] + step)
  axes.hist(sizes, bins, rwidth=0.94, color=_SPLIT_COLORS[0])
  median = float(np.median(sizes))
  axes.axvline(median, color=style.INK, linewidth=1.2, linestyle=':')
  axes.set_title(
    f'{len(sizes):,} clients: {low:,} to {high:,} training examples, '
    f'median {median:,g} (dotted)'
  )
  axes.set_xlabel('training examples per client')
  axes.set_ylabel('clients')
  axes.yaxis.set_major_formatter(ticker.StrMethodFormatter('{x:,.0f}'))


PICTURE = picture.Picture(
  name='sizes.png',
  caption='Quantity skew: the number of examples of each client.',
  draw=draw,
)
