"""Picture: the main cluster of every client at every evaluation."""

import numpy as np
from matplotlib import axes as axes_lib
from matplotlib import colors as colors_lib
from matplotlib import figure as figure_lib
from matplotlib import patches, ticker

from tff_algos.evaluation import association
from tff_algos.reports.plotting import heat_map, picture, style
from tff_algos.reports.run import client_order
from tff_algos.reports.run import run as run_lib

# Largest number of columns; more are subsampled.
_MAX_ROUNDS = 400


def draw(run: run_lib.Run) -> figure_lib.Figure | None:
  """Draws a row per client and a column per evaluation, coloured by cluster.

  Returns:
    None without saved memberships, or with a single cluster.
  """
  history = run.membership_history
  if history is None or run.num_clusters == 1:
    return None
  clusters = history.main_clusters
  order = client_order.by_planted_source(run, clusters[-1])
  rows = order.thinned()
  columns = heat_map.thin(len(clusters), _MAX_ROUNDS)
  figure = style.new_figure(
    1.6 + np.clip(0.11 * len(rows), 1.8, 5.5),
    'Cluster of every client by round',
  )
  axes = figure.subplots()
  colors = style.cluster_colors(run)
  # Undecided clients (-1) take the last colour.
  axes.pcolormesh(
    _edges(history.rounds[columns]),
    np.arange(len(rows) + 1) - 0.5,
    clusters[np.ix_(columns, order.clients[rows])].T % (len(colors) + 1),
    cmap=colors_lib.ListedColormap([*colors, style.FAINT]),
    vmin=-0.5,
    vmax=len(colors) + 0.5,
  )
  axes.grid(False)
  axes.invert_yaxis()
  axes.set_xlabel('round')
  axes.xaxis.set_major_locator(ticker.MaxNLocator(10, integer=True))
  order.part_groups(axes, rows)
  order.name_groups(axes, rows)
  _add_legend(run, axes, (clusters == association.UNDECIDED).any())
  _mark_settled_round(axes, history)
  return figure


def _edges(rounds: np.ndarray) -> np.ndarray:
  """Returns the edges of columns: halfway between evaluations."""
  middles = (rounds[1:] + rounds[:-1]) / 2
  return np.concatenate([[rounds[0] - 0.5], middles, [rounds[-1] + 0.5]])


def _add_legend(run: run_lib.Run, axes: axes_lib.Axes, has_undecided) -> None:
  names, colors = style.cluster_names(run), style.cluster_colors(run)
  entries = [(names[cluster], colors[cluster]) for cluster in run.cluster_order]
  if has_undecided:
    entries.append(('undecided', style.FAINT))
  axes.legend(
    handles=[patches.Patch(color=color, label=name) for name, color in entries],
    loc='center left',
    bbox_to_anchor=(1.0, 0.5),
    handlelength=0.9,
  )


def _mark_settled_round(axes: axes_lib.Axes, history) -> None:
  settled = history.settled_round
  if settled is not None:
    axes.axvline(settled, color=style.INK, linewidth=1.6, linestyle='--')
    axes.set_title(f'no client changes its cluster after round {settled}')
  elif history.last_change is not None:
    position = history.last_change
    before, after = history.main_clusters[position - 1 : position + 1]
    axes.set_title(
      f'{np.sum(before != after):,} of {len(after):,} clients changed their '
      f'cluster as late as round {history.rounds[position]}'
    )


PICTURE = picture.Picture(
  name='cluster_map.png',
  caption=(
    'Cluster of largest membership: each row is a client, each column an '
    'evaluation. Dashed: the round after which no client changes its cluster. '
    'Undecided: equal membership in all clusters, as of clients that have not '
    'been sampled yet.'
  ),
  draw=draw,
)
