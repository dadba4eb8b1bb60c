"""Picture: pairwise distances between source distributions."""

import numpy as np
from matplotlib import colors as colors_lib
from matplotlib import figure as figure_lib

from tff_algos.evaluation import distances
from tff_algos.reports.dataset import client_rows
from tff_algos.reports.dataset import facts as facts_lib
from tff_algos.reports.plotting import picture, style

_DARK_ENOUGH_FOR_WHITE = 0.55
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
  largest = max(1.0, values.max())
  cmap = colors_lib.LinearSegmentedColormap.from_list(
    'distance', ('#f4f7fa', '#0b4f86')
  )
  axes.imshow(values, cmap=cmap, vmin=0, vmax=largest, aspect='auto')
  for row, column in np.ndindex(values.shape):
    value = values[row, column]
    dark = value / largest > _DARK_ENOUGH_FOR_WHITE
    axes.text(
      column,
      row,
      f'{value:.2f}',
      ha='center',
      va='center',
      color='white' if dark else style.INK,
    )
  axes.set_title(title)
  axes.grid(False)
  axes.spines[:].set_visible(False)
  axes.tick_params(length=0)
  axes.set_xticks(
    range(len(names)), names, rotation=20 if len(names) > 3 else 0
  )
  axes.set_yticks(range(len(names)), names)
  for ticks in (axes.get_xticklabels(), axes.get_yticklabels()):
    for tick, color in zip(ticks, style.colors(len(names)), strict=True):
      tick.set_color(color)
      tick.set_fontweight('bold')


PICTURE = picture.Picture(
  name='sources.png',
  caption=(
    "Distances between source distributions, over all clients' examples. Where "
    'both are near 0, the distributions may still differ in how labels depend '
    'on features, as with permuted labels.'
  ),
  draw=draw,
)
