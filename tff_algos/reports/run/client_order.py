"""Order of the clients of a run by their ground-truth sources."""

import itertools
from typing import NamedTuple

import numpy as np
from matplotlib import axes as axes_lib

from tff_algos.reports.plotting import client_axis, heat_map, style
from tff_algos.reports.run import run as run_lib

# More groups than this are separated by lines, but not named.
_MAX_NAMES = 16
# Clients that a picture has room for.
_MAX_CLIENTS = 400


class ClientOrder(NamedTuple):
  """Clients, group by group.

  Attributes:
    clients: Client indices, int64 `[num_clients]`.
    ids: Client ids, in this order.
    groups: Group of each client, int64 `[num_clients]`, ascending.
    names: Name of each group, or none.
    colors: Colour of each group.
    what: Description of the order, for an axis label.
  """

  clients: np.ndarray
  ids: tuple[str, ...]
  groups: np.ndarray
  names: tuple[str, ...]
  colors: tuple[str, ...]
  what: str

  def thinned(self) -> np.ndarray:
    """Returns positions of the clients to draw, evenly spread."""
    return heat_map.thin(len(self.clients), _MAX_CLIENTS)

  def part_groups(self, axes: axes_lib.Axes, rows: np.ndarray) -> None:
    """Draws a line between each two groups.

    Args:
      axes: Axes; row i is at height i.
      rows: Positions of the drawn clients, ascending.
    """
    for _, end in self._spans(rows)[:-1]:
      axes.axhline(end - 0.5, color='white', linewidth=2)
    axes.set_yticks([])

  def name_groups(self, axes: axes_lib.Axes, rows: np.ndarray) -> None:
    """Names the groups on the y axis, or the clients if groups have no names.

    The arguments are those of `part_groups`.
    """
    groups = self.groups[rows]
    spans = self._spans(rows)
    if self.names and len(spans) <= _MAX_NAMES:
      middles = [(start + end - 1) / 2 for start, end in spans]
      found = [groups[start] for start, _ in spans]
      axes.set_yticks(middles, [self.names[group] for group in found])
      for label, group in zip(axes.get_yticklabels(), found, strict=True):
        label.set_color(self.colors[group])
        label.set_fontweight('bold')
      axes.tick_params(axis='y', length=0)
    elif not self.names:
      client_axis.name(axes.yaxis, [self.ids[row] for row in rows])
    shown = f'{len(rows):,} of ' if len(rows) < len(self.clients) else ''
    axes.set_ylabel(f'{shown}{len(self.clients):,} clients, {self.what}')

  def _spans(self, rows: np.ndarray) -> list[tuple[int, int]]:
    """Returns start and end of each group among some rows."""
    changes = 1 + np.flatnonzero(np.diff(self.groups[rows]))
    return list(itertools.pairwise([0, *changes, len(rows)]))


def by_planted_source(
  run: run_lib.Run, main_clusters: np.ndarray
) -> ClientOrder:
  """Sorts the participating clients by main planted source, then by index.

  Args:
    run: Run with the true mixtures.
    main_clusters: Sort keys without ground truth, int64 `[num_clients]`.
  """
  mixture = run.planted_mixture(len(main_clusters))
  if mixture is None:
    groups = main_clusters
    names, colors = (), ()
    what = f'by cluster after round {run.evaluated_round}'
  else:
    groups = np.argmax(mixture, axis=1)
    names, colors = run.planted_names, style.planted_colors(run)
    what = 'by main source'
  clients = np.argsort(groups, kind='stable')
  ids = tuple(run.participating_ids[index] for index in clients)
  return ClientOrder(clients, ids, groups[clients], names, colors, what)
