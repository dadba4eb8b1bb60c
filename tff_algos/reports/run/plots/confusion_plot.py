"""Picture: confusion matrix of ground-truth sources and clusters."""

import numpy as np
from matplotlib import figure as figure_lib

from tff_algos.evaluation import association
from tff_algos.reports.plotting import heat_map, picture, style
from tff_algos.reports.run import run as run_lib

# Cells of larger tables are too small to be read.
_MAX_CELLS = 16


def draw(run: run_lib.Run) -> figure_lib.Figure | None:
  """Draws clients by main source and cluster, and their mean membership.

  Returns:
    None if no client has a membership, there is no ground truth or a single
    cluster, or there are too many clusters or sources for a readable table.
  """
  if run.memberships is None or run.num_clusters == 1:
    return None
  membership, mixture = run.memberships
  if mixture is None or max(membership.shape[1], mixture.shape[1]) > _MAX_CELLS:
    return None
  found = association.associate(membership, mixture)
  order = run.cluster_order
  figure = style.new_figure(
    1.7 + 0.5 * len(found.num_by_cluster),
    'Confusion matrix of sources and clusters',
  )
  left, right = figure.subplots(1, 2, sharey=True)
  counts = found.num_by_cluster[:, order]
  heat_map.draw(
    left,
    counts / np.maximum(found.num_clients, 1)[:, None],
    [[f'{count:,}' for count in row] for row in counts],
  )
  left.set_title('number of clients')
  means = found.mean_membership[:, order]
  heat_map.draw(
    right,
    np.clip(means, 0, 1),
    [
      ['–' if np.isnan(mean) else f'{100 * mean:.0f}' for mean in row]
      for row in means
    ],
  )
  right.set_title('mean membership (%)')
  for axes in (left, right):
    heat_map.number_clusters(run, axes)
    axes.set_xlabel(
      'cluster of largest membership' if axes is left else 'cluster'
    )
  heat_map.name_rows(left, run.planted_names, style.planted_colors(run))
  left.set_ylabel('main source of the client')
  return figure


PICTURE = picture.Picture(
  name='confusion.png',
  caption=(
    'Each row is the main source of a client (the largest share of its '
    'ground-truth mixture), each column a cluster. Left: number of clients '
    'by cluster of largest membership, without clients of equal membership in '
    'all clusters. Right: mean membership in each cluster; clients that are '
    'not sampled yet count as 0.'
  ),
  draw=draw,
)
