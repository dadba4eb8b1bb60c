"""Picture: the membership of every client against its true mixture.

After Figure 2 of FedSoft (Ruan and Joe-Wong, 2021). Clusters are matched to
source distributions by the Hungarian method before anything is drawn.
"""

import numpy as np
from matplotlib import axes as axes_lib
from matplotlib import figure as figure_lib

from tff_algos.reports.plotting import client_axis, picture, style
from tff_algos.reports.run import membership_history
from tff_algos.reports.run import run as run_lib

# Horizontal spread of clients with equal true shares in the scatter plot.
_DODGE = 0.06
# With more clients, bars touch.
_MAX_PARTED = 100
# Multiples modulo 1 are a low-discrepancy sequence.
_GOLDEN = 0.618034


def draw(run: run_lib.Run) -> figure_lib.Figure | None:
  """Draws a scatter plot of two sources, or stacked bars of several.

  Returns:
    None if no client has a membership, or there is a single cluster.
  """
  if run.memberships is None or run.num_clusters == 1:
    return None
  membership, mixture = run.memberships
  if mixture is not None and membership.shape[1] == mixture.shape[1] == 2:
    return _draw_two_sources(run, membership, mixture)
  return _draw_stacks(run, membership, mixture)


def _draw_two_sources(run, membership, mixture) -> figure_lib.Figure:
  matched = run.matched_sources
  estimated = membership[:, np.flatnonzero(matched == 0)[0]]
  true = mixture[:, 0]
  # Clients of equal share keep their order, as in the figure.
  order = np.argsort(true, kind='stable')
  true, estimated = true[order], estimated[order]
  source_colors = style.planted_colors(run)
  colors = np.where(true >= 0.5, *source_colors)
  names = client_axis.shortened(run.planted_names)
  name = names[0]
  cluster = style.cluster_names(run)[np.flatnonzero(matched == 0)[0]]
  figure = style.new_figure(
    4.2, 'Membership of every client against its true mixture'
  )
  left, right = figure.subplots(1, 2, width_ratios=(2.1, 1))
  positions = np.arange(len(true))
  size = np.clip(1500 / len(true), 8, 34)
  known = membership_history.has_membership(membership[order])
  place, shown = positions[known], estimated[known]
  left.vlines(
    place, true[known], shown, colors=colors[known], linewidth=1.2, alpha=0.6
  )
  left.scatter(place, shown, c=colors[known], s=size, zorder=3, linewidth=0)
  left.scatter(
    positions, true, edgecolors=colors, facecolors='white', s=size, zorder=2
  )
  left.set_title(f'filled: membership of {cluster}; open: true share of {name}')
  client_axis.name(left.xaxis, [run.member_ids[index] for index in order])
  left.set_xlabel(f'{len(true):,} clients, by true share of {name}')
  left.set_ylabel('share of the training examples (%)')
  _draw_scatter(right, true[known], shown, colors[known])
  if known.any():
    # Both clusters are matched. The table has the error of all clients.
    errors = np.abs(membership - mixture[:, matched])[order][known]
    text = f'mean error {100 * errors.mean():.1f} points'
    if not known.all():
      text += f' of {known.sum():,} clients'
    right.set_title(style.wrapped(text))
  right.set_xlabel(f'true share of {name} (%)')
  right.set_ylabel(f'membership of {cluster} (%)')
  for axes in (left, right):
    axes.set_ylim(-0.04, max(1.04, estimated.max() + 0.04))
    style.format_percent(axes.yaxis)
  _name_halves(left, names, true, source_colors)
  return figure


def _name_halves(left: axes_lib.Axes, names, true, source_colors) -> None:
  """Labels the halves of the axis by the main source of their clients."""
  low = int(np.sum(true < 0.5))
  left.set_xlim(-1, len(true))
  if 0 < low < len(true):
    left.axvline(low - 0.5, color=style.FAINT, linewidth=1, zorder=0)
  halves = (
    (low, (low - 1) / 2, 0.93, 1),
    (len(true) - low, (low + len(true) - 1) / 2, 0.07, 0),
  )
  for count, middle, height, source in halves:
    if count:
      left.annotate(
        f'mostly {names[source]}',
        (middle, height),
        ha='center',
        va='center',
        color=source_colors[source],
        fontweight='bold',
      )


def _draw_scatter(axes: axes_lib.Axes, true, estimated, colors) -> None:
  axes.plot([0, 1], [0, 1], color=style.FAINT, linewidth=1.2, zorder=0)
  axes.scatter(
    true + _dodged(true), estimated, c=colors, s=26, alpha=0.75, linewidth=0
  )
  axes.set_xlim(-0.04, 1.04)
  style.format_percent(axes.xaxis)


def _dodged(true: np.ndarray) -> np.ndarray:
  """Returns small shifts that separate clients of equal true share."""
  shifts = np.zeros(len(true))
  for value in np.unique(true):
    same = np.flatnonzero(true == value)
    if len(same) > 1:
      shifts[same] = _DODGE * (np.arange(len(same)) * _GOLDEN % 1 - 0.5)
  return shifts


def _draw_stacks(run, membership, mixture) -> figure_lib.Figure:
  """Draws one stacked bar per client: true shares above, memberships below."""
  by = membership if mixture is None else mixture
  order = np.lexsort((-by.max(axis=1), by.argmax(axis=1)))
  # Matched clusters lie in the order of their sources, the others on top.
  columns = run.cluster_order
  cluster_colors, cluster_names = (
    [items[column] for column in columns]
    for items in (style.cluster_colors(run), style.cluster_names(run))
  )
  title = 'Membership of every client'
  if mixture is not None:
    title += ' against its true mixture'
  num_rows = 1 if mixture is None else 2
  figure = style.new_figure(1.2 + 2.5 * num_rows, title)
  grid = figure.subplots(num_rows, 1, squeeze=False, sharex=True)[:, 0]
  if mixture is not None:
    _draw_stack(
      grid[0], mixture[order], style.planted_colors(run), run.planted_names
    )
    grid[0].set_title('true mixture')
  _draw_stack(
    grid[-1], membership[order][:, columns], cluster_colors, cluster_names
  )
  grid[-1].set_title('membership of each cluster')
  client_axis.name(grid[-1].xaxis, [run.member_ids[index] for index in order])
  what = 'largest membership' if mixture is None else 'main source'
  grid[-1].set_xlabel(f'{len(order):,} clients, sorted by {what}')
  return figure


def _draw_stack(axes: axes_lib.Axes, shares, colors, names) -> None:
  """Draws one stacked bar per client."""
  positions = np.arange(len(shares))
  empty = np.flatnonzero(~membership_history.has_membership(shares))
  if len(empty):
    axes.bar(empty, 1.0, width=1.0, color=style.FAINT)
  bottoms = np.cumsum(shares, axis=1) - shares
  for color, heights, bottom in zip(colors, shares.T, bottoms.T, strict=True):
    axes.bar(
      positions,
      heights,
      bottom=bottom,
      width=1.0,
      color=color,
      edgecolor='white',
      # No lines between hundreds of thin bars.
      linewidth=0.4 if len(shares) <= _MAX_PARTED else 0,
    )
  axes.set_xlim(-0.5, len(shares) - 0.5)
  axes.set_ylim(0, max(1.0, shares.sum(axis=1).max()))
  axes.set_ylabel('share (%)')
  axes.grid(False)
  style.format_percent(axes.yaxis)
  if len(empty):
    names, colors = ['not sampled yet', *names], [style.FAINT, *colors]
  style.name_colors(axes, names, colors)


PICTURE = picture.Picture(
  name='memberships.png',
  caption=lambda run: (
    'Membership of each participating client in each cluster'
    + (
      ', and the ground-truth mixture of its data. Cluster ids are arbitrary: '
      'clusters are matched to sources so that memberships and mixtures agree '
      'best.'
      if run.planted_names
      else '.'
    )
    + (
      ' Clients that were never sampled have no membership.'
      if not membership_history.has_membership(run.memberships[0]).all()
      else ''
    )
  ),
  draw=draw,
)
