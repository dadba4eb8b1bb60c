"""Picture: heat maps of all memberships at several evaluations."""

from collections.abc import Sequence

import numpy as np
from matplotlib import axes as axes_lib
from matplotlib import figure as figure_lib

from tff_algos.reports.plotting import heat_map, picture, style
from tff_algos.reports.run import client_order, membership_history
from tff_algos.reports.run import run as run_lib

_MAX_MAPS = 6


def draw(run: run_lib.Run) -> figure_lib.Figure | None:
  """Draws client by cluster at up to six evaluations, the last one included.

  Returns:
    None without saved memberships, or with a single cluster.
  """
  history = run.membership_history
  if history is None or run.num_clusters == 1:
    return None
  order = client_order.by_planted_source(run, history.main_clusters[-1])
  rows = order.thinned()
  shown = heat_map.thin(len(history.rounds), _MAX_MAPS)
  maps = history.at(shown)[:, order.clients[rows]][..., run.cluster_order]
  figure = style.new_figure(
    1.7 + np.clip(0.09 * len(rows), 1.8, 5.0),
    'Memberships during training',
  )
  panels = figure.subplots(1, len(shown), squeeze=False)[0]
  highest = max(1.0, maps.max())
  for axes, values, round_num in zip(
    panels, maps, history.rounds[shown], strict=True
  ):
    draw_map(axes, run, values, highest)
    axes.set_title(f'round {round_num}')
    order.part_groups(axes, rows)
  order.name_groups(panels[0], rows)
  panels[len(panels) // 2].set_xlabel('cluster')
  add_scale(figure, list(panels))
  return figure


def draw_map(
  axes: axes_lib.Axes, run: run_lib.Run, values: np.ndarray, highest: float
) -> None:
  """Draws memberships as a heat map, one row per client.

  Clients without a membership are grey.

  Args:
    axes: Axes to draw in.
    run: Run; defines colour and number of a cluster.
    values: `[num_rows, num_clusters]`, columns in `run.cluster_order`.
    highest: Membership with the darkest shade.
  """
  axes.imshow(
    np.where(
      membership_history.has_membership(values)[:, None], values, np.nan
    ),
    cmap=heat_map.SHADES.with_extremes(bad=style.FAINT),
    vmin=0,
    vmax=highest,
    aspect='auto',
    interpolation='nearest',
  )
  axes.grid(False)
  axes.spines[:].set_visible(False)
  heat_map.number_clusters(run, axes)
  axes.tick_params(length=0)


def add_scale(
  figure: figure_lib.Figure, panels: Sequence[axes_lib.Axes]
) -> None:
  """Adds the colour scale of the maps in `panels`."""
  bar = figure.colorbar(panels[0].images[0], ax=panels, pad=0.015, aspect=28)
  bar.outline.set_visible(False)
  bar.ax.grid(False)
  bar.set_label('membership (%)')
  style.format_percent(bar.ax.yaxis)


PICTURE = picture.Picture(
  name='membership_maps.png',
  caption=lambda run: (
    'Each row is a client, each column a cluster.'
    + (
      ' Clusters are in the order of the sources that they are matched to. A '
      'cluster whose column is dark for the clients of one source only has '
      'recovered that source.'
      if run.planted_names
      else ''
    )
    + (
      ' Grey: client without a membership yet.'
      if run.membership_history.has_unsampled
      else ''
    )
  ),
  draw=draw,
)
