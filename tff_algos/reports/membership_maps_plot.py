"""Picture: the memberships of all clients as heat maps, as training goes on."""

import numpy as np
from matplotlib import figure as figure_lib

from tff_algos.reports import client_order, heat_map, style
from tff_algos.reports import run as run_lib

_MAX_MAPS = 6
_MAX_CLIENTS = 400


def draw(run: run_lib.Run) -> figure_lib.Figure | None:
  """Draws client by cluster at up to six evaluations, the last one included.

  Returns:
    None if no memberships were kept, or there is a single cluster.
  """
  history = run.membership_history
  if history is None or run.num_clusters == 1:
    return None
  order = client_order.by_planted_source(run, history.main_clusters[-1])
  rows = order.thinned(_MAX_CLIENTS)
  shown = client_order.thin(len(history.rounds), _MAX_MAPS)
  maps = history.at(shown)[:, order.clients[rows]][..., run.cluster_order]
  figure = style.new_figure(
    10.5,
    1.7 + np.clip(0.09 * len(rows), 1.8, 5.0),
    'Memberships while training went on',
  )
  panels = figure.subplots(1, len(shown), squeeze=False)[0]
  for axes, values, round_num in zip(
    panels, maps, history.rounds[shown], strict=True
  ):
    image = axes.imshow(
      values,
      cmap=heat_map.SHADES,
      vmin=0,
      vmax=max(1.0, maps.max()),
      aspect='auto',
      interpolation='nearest',
    )
    axes.grid(False)
    axes.spines[:].set_visible(False)
    axes.set_title(f'round {round_num}')
    heat_map.number_clusters(run, axes)
    axes.tick_params(length=0)
    order.part_groups(axes, rows)
  order.name_groups(panels[0], rows)
  panels[len(panels) // 2].set_xlabel('cluster')
  bar = figure.colorbar(image, ax=list(panels), pad=0.015, aspect=28)
  bar.outline.set_visible(False)
  bar.ax.grid(False)
  bar.set_label('membership (%)')
  style.format_percent(bar.ax.yaxis)
  return figure
