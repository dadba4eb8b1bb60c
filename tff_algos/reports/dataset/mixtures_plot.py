"""Picture: shares of source distributions in each client's examples."""

import itertools

import numpy as np
from matplotlib import figure as figure_lib

from tff_algos.reports.dataset import facts as facts_lib
from tff_algos.reports.dataset import picture_rows
from tff_algos.reports.plotting import client_axis, picture, style

_MAX_NAMED_CLUSTERS = 8


def draw(facts: facts_lib.Facts) -> figure_lib.Figure | None:
  """Draws one stacked bar per row of clients, and planned shares as lines.

  Returns:
    None if there is only one source distribution, or no client has examples.
  """
  clients = picture_rows.similar_side_by_side(facts)
  if facts.schema.num_sources == 1 or not len(clients):
    return None
  rows = picture_rows.cut(clients)
  shares = rows.mean(picture_rows.shares_of(facts.sources))
  figure = style.new_figure(3.9, 'Source distributions of the clients')
  axes = figure.subplots()
  positions = np.arange(len(shares))
  _draw_bars(axes, shares)
  if facts.mixture is not None:
    planned = np.cumsum(rows.mean(facts.mixture), axis=1)[:, :-1]
    for heights in planned.T:
      axes.hlines(
        heights,
        positions - 0.46,
        positions + 0.46,
        color=style.INK,
        linewidth=2,
      )
    axes.set_title('bars: examples; black lines: planned mixture')
  axes.grid(False)
  axes.set_ylim(0, 1)
  axes.set_xlim(-0.6, len(shares) - 0.4)
  if facts.clusters is None:
    client_axis.name(
      axes.xaxis, [facts.client_ids[row[0]] for row in rows.members]
    )
  else:
    axes.set_xticks([])
    _mark_clusters(axes, facts.clusters, rows)
  axes.set_xlabel(f'{rows.title}, sorted by similarity')
  axes.set_ylabel('share of the training examples (%)')
  style.format_percent(axes.yaxis)
  names = facts.schema.source_names
  style.name_colors(axes, names, style.colors(len(names)))
  return figure


def _draw_bars(axes, shares: np.ndarray) -> None:
  below = np.zeros(len(shares))
  colors = style.colors(shares.shape[1])
  for color, heights in zip(colors, shares.T, strict=True):
    axes.bar(np.arange(len(shares)), heights, 0.92, below, color=color)
    below += heights


def _mark_clusters(axes, clusters: np.ndarray, rows: picture_rows.Rows) -> None:
  """Separates the ground-truth clusters, and names them if there is room."""
  first = np.array([clusters[members[0]] for members in rows.members])
  starts = [0, *(np.flatnonzero(first[1:] != first[:-1]) + 1), len(first)]
  for start in starts[1:-1]:
    axes.axvline(start - 0.5, color='white', linewidth=3)
  if len(starts) <= _MAX_NAMED_CLUSTERS + 1:
    middles = [
      (start + end - 1) / 2 for start, end in itertools.pairwise(starts)
    ]
    names = [f'cluster {first[start]}' for start in starts[:-1]]
    axes.set_xticks(middles, names)
    axes.tick_params(axis='x', length=0)


PICTURE = picture.Picture(
  name='mixtures.png',
  caption=(
    'Share of each source distribution in the training examples of a client: '
    'the ground truth for clustering.'
  ),
  draw=draw,
)
