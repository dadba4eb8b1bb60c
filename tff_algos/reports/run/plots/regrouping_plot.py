"""Picture: diagnostics of k-means clustering of client uploads."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from matplotlib import axes as axes_lib
from matplotlib import figure as figure_lib
from matplotlib import ticker

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
  'stickiness and changes of the partition',
  'share (%)',
  {
    'upload_memory': 'received model in the upload',
    'moved_clients': 'clients that changed cluster',
  },
)
_PANELS = (
  _Panel(
    'distances between models',
    'mean Euclidean distance',
    {
      'cluster_model_distance': 'cluster models',
      'local_model_distance_between': 'uploads of two clusters',
      'local_model_distance': 'uploads',
      'local_model_distance_within': 'uploads of one cluster',
    },
  ),
  _SHARES,
  _Panel(
    'transition matrix - identity (Frobenius norm)',
    'Frobenius norm',
    {'transition_distance': ''},
  ),
  _Panel('work of k-means', 'iterations', {'k_means_iterations': ''}),
  _Panel(
    'within-cluster sum of squares of k-means',
    'squared distances to the means',
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
  num_rows, num_columns = style.panel_shape(len(panels), _MAX_COLUMNS)
  figure = style.new_figure(
    6.4 * num_columns,
    0.7 + 2.7 * num_rows,
    'Uploads and their clusters, round by round',
  )
  places = style.new_panels(figure, len(panels), _MAX_COLUMNS)
  for axes, (panel, lines) in zip(places, panels, strict=True):
    axes.set_title(panel.title)
    axes.set_ylabel(panel.label)
    axes.set_xlabel('round')
    axes.set_xlim(0, max(run.last_round, 1))
    axes.xaxis.set_major_locator(ticker.MaxNLocator(6, integer=True))
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
  for color, (name, series) in zip(
    style.colors(len(lines)), lines, strict=True
  ):
    axes.plot(
      series.rounds,
      series.values,
      color=color,
      linewidth=2.0,
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
    axes.set_yscale('log')
    # The default formatter writes formulas, which this style does not parse.
    axes.yaxis.set_major_formatter(ticker.StrMethodFormatter('{x:g}'))
    axes.set_ylim(low / 1.3, high * 1.3)
    return
  axes.set_ylim(0, 1.08 * high or 1)


PICTURE = picture.Picture(
  name='regrouping.png',
  caption=(
    'The uploads of clients, and their clustering by k-means. Where an '
    'upload is almost determined by the received model, clients cannot '
    'change cluster, so a stable assignment is no evidence for the '
    'clusters. Iterations are those of the best restart.'
  ),
  draw=draw,
)
