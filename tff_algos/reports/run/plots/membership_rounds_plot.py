"""Picture: mean membership of clients with equal mixtures over rounds.

After the lower half of Figure 1 of FedSoft (Ruan and Joe-Wong, 2021).
"""

from typing import NamedTuple

import numpy as np
from matplotlib import axes as axes_lib
from matplotlib import figure as figure_lib

from tff_algos.reports.plotting import picture, style
from tff_algos.reports.run import run as run_lib

# With more mixtures than this, clients of one main source share a panel.
_MAX_MIXTURES = 4
_MAX_PANELS = 12
# With more clusters than this, a panel names and marks the main one only.
_MAX_LABELS = 4


class Group(NamedTuple):
  """Clients that share a panel.

  Attributes:
    title: Description of the group.
    members: Positions of its clients, int64 `[n]`.
    shares: Mean true shares, float64 `[num_sources]`.
  """

  title: str
  members: np.ndarray
  shares: np.ndarray


def draw(run: run_lib.Run) -> figure_lib.Figure | None:
  """Draws a panel for each mixture, a line for each cluster.

  Returns:
    None without saved memberships or true mixtures, or with too many sources
    for panels.
  """
  history = run.membership_history
  if history is None or run.num_clusters == 1:
    return None
  mixture = run.planted_mixture(history.num_clients)
  if mixture is None:
    return None
  groups = group_by_mixture(mixture, run.planted_names)
  if len(groups) > _MAX_PANELS:
    return None
  means = history.map(
    lambda membership: np.stack(
      [membership[group.members].mean(axis=0) for group in groups]
    )
  )
  max_columns = 2 if len(groups) <= 4 else 3
  num_rows, num_columns = style.panel_shape(len(groups), max_columns)
  figure = style.new_figure(
    0.7 + 2.8 * num_rows,
    'Mean membership by round (dashed: true share)',
  )
  panels = style.new_panels(figure, len(groups), max_columns, sharey=True)
  panels[0].set_ylim(-0.03, max(1.03, 1.03 * means.max()))
  style.format_percent(panels[0].yaxis)
  for index, (axes, group) in enumerate(zip(panels, groups, strict=True)):
    _draw_panel(run, axes, group, history.rounds, means[:, index])
    if index % num_columns == 0:
      axes.set_ylabel('mean membership (%)')
  return figure


def group_by_mixture(
  mixture: np.ndarray, names: tuple[str, ...]
) -> list[Group]:
  """Returns the clients by mixture, or by main source if there are too many.

  Args:
    mixture: float64 `[num_clients, num_sources]`.
    names: Names of the sources.

  Returns:
    Non-empty groups, by main source, in descending order of its share.
  """
  mixtures, group_of = np.unique(
    np.round(mixture, 6), axis=0, return_inverse=True
  )
  if len(mixtures) > _MAX_MIXTURES:
    _, group_of = np.unique(np.argmax(mixture, axis=1), return_inverse=True)
  groups = []
  for index in range(1 + group_of.max()):
    members = np.flatnonzero(group_of == index)
    shares = mixture[members].mean(axis=0)
    main = int(np.argmax(shares))
    is_mixed = np.ptp(mixture[members, main]) > 1e-6
    share = 'mostly' if is_mixed else f'{100 * shares[main]:.3g} %'
    noun = 'client' if len(members) == 1 else 'clients'
    title = f'{share} {names[main]} ({len(members):,} {noun})'
    groups.append(Group(title, members, shares))
  return sorted(
    groups, key=lambda group: (np.argmax(group.shares), -max(group.shares))
  )


def _draw_panel(
  run: run_lib.Run,
  axes: axes_lib.Axes,
  group: Group,
  rounds: np.ndarray,
  means: np.ndarray,
) -> None:
  """Draws the lines of one group; `means` is `[rounds, num_clusters]`."""
  main = int(np.argmax(group.shares))
  planted_colors = style.planted_colors(run)
  names, colors = style.cluster_names(run), style.cluster_colors(run)
  for source, share in enumerate(group.shares):
    if source == main or len(group.shares) <= _MAX_LABELS:
      axes.axhline(
        share,
        color=planted_colors[source],
        linewidth=1.1,
        linestyle='--',
        zorder=4,
      )
  largest = int(np.argmax(means[-1]))
  labels = []
  for cluster, values in enumerate(means.T):
    stands_out = cluster == largest
    axes.plot(
      rounds,
      values,
      color=colors[cluster],
      linewidth=3.0 if stands_out else 1.5,
      zorder=2 if stands_out else 3,
      marker='o' if len(rounds) == 1 else None,
    )
    if stands_out or run.num_clusters <= _MAX_LABELS:
      text = f'{names[cluster]}: {100 * values[-1]:.0f} %'
      labels.append(
        style.EndLabel(text, values[-1], colors[cluster], stands_out)
      )
  axes.set_title(style.wrapped(group.title), color=planted_colors[main])
  style.format_rounds(run, axes, 5)
  style.label_ends(axes, labels)


PICTURE = picture.Picture(
  name='membership_rounds.png',
  caption=lambda run: (
    'Mean membership of the clients with the same ground-truth mixture, one '
    'line for each cluster; dashed: the true shares of the sources. With more '
    'than four mixtures, the mean is over all clients with the same main '
    'source.'
    + (
      ' Clients that are not sampled yet count as 0.'
      if run.membership_history.has_unsampled
      else ''
    )
  ),
  draw=draw,
)
