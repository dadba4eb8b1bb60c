"""Picture: diagnostics of k-means clustering of client uploads."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from matplotlib import axes as axes_lib
from matplotlib import figure as figure_lib

from tff_algos.reports.plotting import picture, style
from tff_algos.reports.run import run as run_lib

_PREFIX = 'train/'
_MAX_COLUMNS = 2
# Ratio of largest to smallest value from which a y axis is logarithmic.
_WIDE = 50


class _Panel(NamedTuple):
  """Lines that share their axes.

  Attributes:
    title: Title.
    label: Label of the y axis, with the unit.
    metrics: Metric -> name of its line, empty for a single line.
  """

  title: str
  label: str
  metrics: Mapping[str, str]


_SHARES = _Panel(
  'weight of the received model, cluster changes',
  'share (%)',
  {
    'upload_memory': 'received model',
    'moved_clients': 'changed clients',
  },
)
_PANELS = (
  _Panel(
    'distances between models',
    'mean Euclidean distance',
    {
      'cluster_model_distance': 'cluster models',
      'local_model_distance_between': 'between clusters',
      'local_model_distance': 'all uploads',
      'local_model_distance_within': 'within clusters',
    },
  ),
  _SHARES,
  _Panel(
    'distance of the transition matrix from identity',
    'Frobenius norm',
    {'transition_distance': ''},
  ),
  _Panel('iterations of k-means', 'iterations', {'k_means_iterations': ''}),
  _Panel(
    'inertia of k-means',
    'within-cluster sum of squares',
    {'k_means_inertia': ''},
  ),
)


def draw(run: run_lib.Run) -> figure_lib.Figure | None:
  """Draws model distances, reassigned clients and k-means iterations.

  Returns:
    None if the run's server did not cluster uploads.
  """
  if run.series(_PREFIX + 'k_means_iterations') is None:
    return None
  panels = [
    (panel, lines) for panel in _PANELS if (lines := _lines(run, panel))
  ]
  num_rows, _ = style.panel_shape(len(panels), _MAX_COLUMNS)
  figure = style.new_figure(
    0.7 + 2.7 * num_rows, 'k-means clustering of the uploads by round'
  )
  places = style.new_panels(figure, len(panels), _MAX_COLUMNS)
  for axes, (panel, lines) in zip(places, panels, strict=True):
    axes.set_title(panel.title)
    axes.set_ylabel(panel.label)
    style.format_rounds(run, axes, 6)
    _draw_lines(axes, lines, is_share=panel is _SHARES)
  return figure


def _lines(run: run_lib.Run, panel: _Panel):
  return [
    (name, series)
    for metric, name in panel.metrics.items()
    if (series := run.series(_PREFIX + metric)) is not None
  ]


def _draw_lines(axes: axes_lib.Axes, lines, *, is_share: bool) -> None:
  _fit(axes, np.concatenate([series.values for _, series in lines]), is_share)
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
    text = f'{100 * last:.3g} %' if is_share else f'{last:.3g}'
    text = f'{name}: {text}' if name else text
    labels.append(style.EndLabel(text, last, color))
  style.label_ends(axes, labels)


def _fit(axes: axes_lib.Axes, values: np.ndarray, is_share: bool) -> None:
  """Sets limits and scale of the y axis to all values."""
  if is_share:
    axes.set_ylim(-0.03, 1.05)
    style.format_percent(axes.yaxis)
    return
  low, high = values.min(), values.max()
  if low > 0 and high > _WIDE * low:
    style.fit_logarithm(axes, low, high)
    return
  axes.set_ylim(0, 1.08 * high or 1)


PICTURE = picture.Picture(
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
  draw=draw,
)
