"""Pictures of metrics over rounds: k-means of client uploads, recovery."""

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib import axes as axes_lib
from matplotlib import figure as figure_lib

from tff_algos.reports.plotting import picture, style
from tff_algos.reports.run import run as run_lib

_MAX_COLUMNS = 2
# Ratio of largest to smallest value from which a y axis is logarithmic.
_WIDE = 50


class _Panel(NamedTuple):
  """Lines that share their axes.

  Attributes:
    title: Title.
    label: Label of the y axis, with the unit.
    metrics: Metric -> name of its line, empty for a single line.
    unit: `'share'` for numbers up to 1 in per cent, `'index'` for other numbers
      up to 1, `''` for an axis that is logarithmic if values range widely.
  """

  title: str
  label: str
  metrics: Mapping[str, str]
  unit: str = ''


_REGROUPING = (
  _Panel(
    'distances between models',
    'mean Euclidean distance',
    {
      'train/cluster_model_distance': 'cluster models',
      'train/local_model_distance_between': 'between clusters',
      'train/local_model_distance': 'all uploads',
      'train/local_model_distance_within': 'within clusters',
    },
  ),
  _Panel(
    'weight of the received model, cluster changes',
    'share (%)',
    {
      'train/upload_memory': 'received model',
      'train/moved_clients': 'changed clients',
    },
    'share',
  ),
  _Panel(
    'distance of the transition matrix from identity',
    'Frobenius norm',
    {'train/transition_distance': ''},
  ),
  _Panel(
    'iterations of k-means', 'iterations', {'train/k_means_iterations': ''}
  ),
  _Panel(
    'inertia of k-means',
    'within-cluster sum of squares',
    {'train/k_means_inertia': ''},
  ),
)
_RECOVERY = (
  _Panel(
    'main cluster vs. main source',
    'agreement',
    {
      'participating/membership/purity': 'purity',
      'participating/membership/nmi': 'NMI',
      'participating/membership/ari': 'ARI',
    },
    'index',
  ),
  _Panel(
    'memberships against true shares',
    'mean absolute error (%)',
    {'participating/membership/error': ''},
    'share',
  ),
)


def _draw(
  run: run_lib.Run, title: str, panels: Sequence[_Panel]
) -> figure_lib.Figure | None:
  """Draws the panels with a metric; None without any."""
  shown = [(panel, lines) for panel in panels if (lines := _lines(run, panel))]
  if not shown:
    return None
  num_rows, _ = style.panel_shape(len(shown), _MAX_COLUMNS)
  figure = style.new_figure(0.7 + 2.7 * num_rows, title)
  places = style.new_panels(figure, len(shown), _MAX_COLUMNS)
  for axes, (panel, lines) in zip(places, shown, strict=True):
    axes.set_title(panel.title)
    axes.set_ylabel(panel.label)
    style.format_rounds(run, axes, 6)
    _draw_lines(axes, lines, panel.unit)
  return figure


def _lines(run: run_lib.Run, panel: _Panel):
  return [
    (name, series)
    for metric, name in panel.metrics.items()
    if (series := run.series(metric)) is not None
  ]


def _draw_lines(axes: axes_lib.Axes, lines, unit: str) -> None:
  _fit(axes, np.concatenate([series.values for _, series in lines]), unit)
  labels = []
  for index, (name, series) in enumerate(lines):
    color = style.line_look(index)['color']
    axes.plot(
      series.rounds,
      series.values,
      color=color,
      linewidth=style.line_width(index, len(lines)),
      marker=style.marker(series),
      markersize=3.5,
    )
    last = series.values[-1]
    text = f'{100 * last:.3g} %' if unit == 'share' else f'{last:.3g}'
    text = f'{name}: {text}' if name else text
    labels.append(style.EndLabel(text, last, color))
  style.label_ends(axes, labels)


def _fit(axes: axes_lib.Axes, values: np.ndarray, unit: str) -> None:
  """Sets limits and scale of the y axis to all values."""
  low, high = values.min(), values.max()
  if not unit and low > 0 and high > _WIDE * low:
    style.fit_logarithm(axes, low, high)
    return
  top = 1.08 * high if high > 0 else 1
  axes.set_ylim(min(0, low) - 0.03 * top, top)
  if unit == 'share':
    style.format_percent(axes.yaxis)


RECOVERY = picture.Picture(
  name='recovery.png',
  caption=(
    'Agreement of the cluster of largest membership with the main source of '
    'each client: ARI (adjusted Rand index; about 0 for a random partition), '
    'NMI (normalized mutual information) and purity; 1 for equal partitions. '
    'Error: mean absolute difference between memberships and true shares.'
  ),
  draw=functools.partial(
    _draw, title='Recovery of the ground-truth clusters', panels=_RECOVERY
  ),
)
REGROUPING = picture.Picture(
  name='regrouping.png',
  caption=(
    'Clustering of the uploaded models by k-means: distances between uploads '
    'of the same and of different clusters and between cluster models; weight '
    'of the received model in an upload, and share of the clients that '
    'changed cluster; change of the partition; iterations and inertia of the '
    'best k-means restart. Where an upload is almost determined by the '
    'received model, clients cannot change cluster, so a stable partition is '
    'no evidence for the clusters.'
  ),
  draw=functools.partial(
    _draw,
    title='k-means clustering of the uploads by round',
    panels=_REGROUPING,
  ),
)
