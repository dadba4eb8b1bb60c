"""Picture: pairwise distances between source distributions."""

import numpy as np
from matplotlib import figure as figure_lib

from tff_algos.evaluation import distances
from tff_algos.reports.dataset import client_rows
from tff_algos.reports.dataset import facts as facts_lib
from tff_algos.reports.plotting import heat_map, picture, style

_MAX_SOURCES = 12


def draw(facts: facts_lib.Facts) -> figure_lib.Figure | None:
  """Draws distance matrices of features, and of labels or of covariances.

  Returns:
    None if there are fewer than two source distributions with examples, or
    too many to print each pair.
  """
  names = [
    name
    for name in facts.schema.source_names
    if facts.totals['source'][name]['num_examples']
  ]
  if not 2 <= len(names) <= _MAX_SOURCES:
    return None
  totals = [facts.totals['source'][name] for name in names]
  panels = [
    ('features: shift of the means (standard deviations)', _shifts(totals))
  ]
  if facts.schema.num_classes:
    counts = np.array([total['label_counts'] for total in totals])
    shares = client_rows.shares_of(counts)
    values = distances.jensen_shannon(shares[:, None], shares[None])
    panels.append(('labels: Jensen-Shannon divergence (bits)', values))
  else:
    panels.append(
      ('label given features: distance of covariances', _links(totals))
    )
  size = 1.6 + 0.62 * len(names)
  figure = style.new_figure(
    size + 0.5, 'Distances between the source distributions'
  )
  for axes, (title, values) in zip(figure.subplots(1, 2), panels, strict=True):
    _draw_matrix(axes, title, names, values)
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


def _draw_matrix(
  axes, title: str, names: list[str], values: np.ndarray
) -> None:
  texts = [[f'{value:.2f}' for value in row] for row in values]
  heat_map.draw(axes, values / max(1.0, values.max()), texts)
  axes.set_title(title)
  colors = style.colors(len(names))
  heat_map.name_columns(axes, names, colors)
  if len(names) > 3:
    axes.tick_params('x', rotation=20)
  heat_map.name_rows(axes, names, colors)


PICTURE = picture.Picture(
  name='sources.png',
  caption=(
    "Distances between source distributions, over all clients' examples. Where "
    'both are near 0, the distributions may still differ in how labels depend '
    'on features, as with permuted labels.'
  ),
  draw=draw,
)
