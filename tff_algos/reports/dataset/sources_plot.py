"""Picture: pairwise distances between source distributions."""

import numpy as np
from matplotlib import figure as figure_lib

from tff_algos.data import statistics
from tff_algos.evaluation import distances
from tff_algos.reports.dataset import facts as facts_lib
from tff_algos.reports.dataset import picture_rows
from tff_algos.reports.plotting import client_axis, heat_map, picture, style

_MAX_SOURCES = 12


def draw(facts: facts_lib.Facts) -> figure_lib.Figure | None:
  """Draws distance matrices of features and of labels or covariances.

  Returns:
    None if there are fewer than two source distributions with examples, or
    too many to print each pair.
  """
  all_names = facts.schema.source_names
  found = [
    (name, color, facts.totals[statistics.SOURCE][name])
    for name, color in zip(all_names, style.colors(len(all_names)), strict=True)
    if facts.totals[statistics.SOURCE][name]['num_examples']
  ]
  if not 2 <= len(found) <= _MAX_SOURCES:
    return None
  names, colors, totals = zip(*found, strict=True)
  panels = []
  if not facts.schema.has_tokens:
    panels.append(
      ('features: shift of the means (standard deviations)', _shifts(totals))
    )
  if facts.schema.num_classes:
    counts = np.array([total['label_counts'] for total in totals])
    shares = picture_rows.shares_of(counts)
    values = distances.total_variation(shares[:, None], shares[None])
    panels.append(('labels: total variation', values))
  else:
    panels.append(
      ('label given features: distance of covariances', _links(totals))
    )
  size = 1.6 + 0.62 * len(names)
  figure = style.new_figure(
    size + 0.5, 'Distances between the source distributions'
  )
  places = style.new_panels(figure, len(panels), len(panels))
  for axes, (title, values) in zip(places, panels, strict=True):
    _draw_matrix(axes, title, values)
    heat_map.name_columns(axes, client_axis.shortened(names), colors)
    if len(names) > 3:
      axes.tick_params('x', rotation=20)
    heat_map.name_rows(axes, client_axis.shortened(names), colors)
  return figure


def _shifts(totals) -> np.ndarray:
  moments = [
    [np.array(total['features'][name]) for name in ('mean', 'std')]
    for total in totals
  ]
  return np.array(
    [
      [distances.standardized_shift(*first, *second) for second in moments]
      for first in moments
    ]
  )


def _links(totals) -> np.ndarray:
  links = np.array([one['features']['covariance_with_y'] for one in totals])
  return np.linalg.norm(links[:, None] - links[None], axis=-1)


def _draw_matrix(axes, title: str, values: np.ndarray) -> None:
  texts = [[f'{value:.2f}' for value in row] for row in values]
  heat_map.draw(axes, values / max(1.0, values.max()), texts)
  axes.set_title(title)


PICTURE = picture.Picture(
  name='sources.png',
  caption=(
    "Distances between source distributions, over all clients' examples. Where "
    'all are near 0, the distributions may still differ in how labels depend '
    'on features, as with permuted labels.'
  ),
  draw=draw,
)
