"""Picture: final memberships in each cell of a sweep.

After Figures 7 and 10 of PPFL (Di et al., arXiv:2310.14337), with one heat map
for each number of canonical models.
"""

import textwrap

import numpy as np
from matplotlib import figure as figure_lib

from tff_algos.reports.plotting import picture, style
from tff_algos.reports.run import client_order
from tff_algos.reports.run import run as run_lib
from tff_algos.reports.run.plots import membership_maps_plot
from tff_algos.reports.sweep import sweep as sweep_lib

_MAX_CELLS = 12
_MAX_COLUMNS = 4
# Characters per line of the title above a map.
_MAX_TITLE = 24


def draw(sweep: sweep_lib.Sweep) -> figure_lib.Figure | None:
  """Draws client by cluster for the first seed of each cell.

  Cells with a single cluster are left out.

  Returns:
    None if fewer than two cells have memberships, or too many to be readable.
  """
  cells = [cell for cell in sweep.cells if _has_memberships(cell.runs[0])]
  if not 2 <= len(cells) <= _MAX_CELLS:
    return None
  num_rows, num_columns = style.panel_shape(len(cells), _MAX_COLUMNS)
  figure = style.new_figure(
    0.9 + 3.2 * num_rows,
    'Memberships after the last round, one seed of each cell',
  )
  panels = style.new_panels(figure, len(cells), _MAX_COLUMNS)
  highest = max(1.0, *(cell.runs[0].memberships[0].max() for cell in cells))  # pyright: ignore[reportOptionalSubscript]
  for index, (axes, cell) in enumerate(zip(panels, cells, strict=True)):
    run = cell.runs[0]
    values = run.memberships[0]  # pyright: ignore[reportOptionalSubscript]
    order = client_order.by_planted_source(run, np.argmax(values, axis=1))
    rows = order.thinned()
    shown = values[order.clients[rows]][:, run.cluster_order]
    membership_maps_plot.draw_map(axes, run, shown, highest)
    axes.set_title(textwrap.fill(cell.label, _MAX_TITLE))
    order.part_groups(axes, rows)
    if index % num_columns == 0:
      order.name_groups(axes, rows)
    if index >= len(cells) - num_columns:
      axes.set_xlabel('cluster')
  membership_maps_plot.add_scale(figure, panels)
  return figure


def _has_memberships(run: run_lib.Run) -> bool:
  return run.memberships is not None and run.num_clusters > 1


PICTURE = picture.Picture(
  name='memberships.png',
  caption=lambda sweep: (
    'First seed of each cell after the last round: each row is a client, each '
    'column a cluster. Grey: client without a membership.'
    + (
      ' Sources whose clients have the same dark column share a cluster.'
      if sweep.example.planted_names
      else ''
    )
  ),
  draw=draw,
)
