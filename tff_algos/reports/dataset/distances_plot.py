"""Picture: pairwise total variation between client distributions."""

import math

import numpy as np
from matplotlib import figure as figure_lib

from tff_algos.core import seeds
from tff_algos.evaluation import distances
from tff_algos.reports.dataset import facts as facts_lib
from tff_algos.reports.dataset import picture_rows
from tff_algos.reports.plotting import heat_map, picture, style

_MAX_PAIRS = 20_000
_PAIRS_AT_ONCE = 256
_CHANCE_COLOR = '#9aa0a6'


def draw(facts: facts_lib.Facts) -> figure_lib.Figure | None:
  """Draws a matrix of some clients and a histogram over pairs.

  Total variation between the label distributions of two clients; for regression
  between their shares of source distributions.

  Returns:
    None if fewer than two clients have examples, or there is only one class or
    source distribution.
  """
  counts, what = facts.labels, 'label distributions'
  if not facts.schema.num_classes:
    counts, what = facts.sources, 'source mixtures'
  clients = picture_rows.similar_side_by_side(facts)
  if len(clients) < 2 or counts.shape[1] < 2:
    return None
  figure = style.new_figure(4.6, f'Total variation between {what} of clients')
  left, right = figure.subplots(1, 2, width_ratios=(1.05, 1))
  _draw_matrix(figure, left, counts, clients)
  _draw_histogram(right, counts, clients)
  return figure


def _draw_matrix(figure, axes, counts: np.ndarray, clients: np.ndarray) -> None:
  shown = clients[heat_map.thin(len(clients), picture_rows.MAX_ROWS)]
  shares = picture_rows.shares_of(counts[shown])
  image = axes.imshow(
    distances.total_variation(shares[:, None], shares[None]),
    cmap='cividis',
    vmin=0,
    vmax=1,
  )
  bar = figure.colorbar(image, ax=axes, pad=0.02, fraction=0.045)
  bar.outline.set_visible(False)
  axes.grid(False)
  axes.spines[:].set_visible(False)
  axes.set_xticks([])
  axes.set_yticks([])
  some = '' if len(shown) == len(clients) else f' of {len(clients):,}'
  axes.set_title(f'{len(shown)}{some} clients, sorted by similarity')
  axes.set_xlabel('0: equal distributions; 1: disjoint support')


def _draw_histogram(axes, counts: np.ndarray, clients: np.ndarray) -> None:
  found, chance = pair_distances(counts, clients)
  bins = np.linspace(0, 1, 41)
  axes.set_axisbelow(True)
  for values, color, name in (
    (chance, _CHANCE_COLOR, 'IID clients'),
    (found, '#0b4f86', 'these clients'),
  ):
    weights = np.full(len(values), 1 / len(values))
    axes.hist(
      values,
      bins,
      weights=weights,
      color=color,
      alpha=0.65,
      label=f'{name}: mean {values.mean():.2f}',
    )
  axes.set_xlim(0, 1)
  axes.set_title(f'{len(found):,} pairs of clients')
  axes.set_xlabel('total variation')
  axes.set_ylabel('pairs (%)')
  style.format_percent(axes.yaxis)
  axes.margins(y=0.25)
  axes.legend(loc='upper right' if found.mean() < 0.5 else 'upper left')


def sample_pairs(clients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Returns all pairs of clients, or `_MAX_PAIRS` sampled by a fixed seed.

  Args:
    clients: At least two positions.

  Returns:
    First and second clients, `[num_pairs]` each; distinct.
  """
  n = len(clients)
  if n * (n - 1) // 2 <= _MAX_PAIRS:
    first, second = np.triu_indices(n, 1)
  else:
    generator = seeds.numpy_generator(0, 'reports/card/pairs')
    first = generator.integers(0, n, _MAX_PAIRS)
    second = (first + generator.integers(1, n, _MAX_PAIRS)) % n
  return clients[first], clients[second]


def pair_distances(
  counts: np.ndarray, clients: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the total variation of pairs of clients, and what it is by chance.

  Args:
    counts: Examples of each client of each kind, `[N, K]`.
    clients: At least two positions.

  Returns:
    That of each of `sample_pairs`, and of the same pairs of `redraw`'s clients,
    `[num_pairs]` each.
  """
  pairs = np.stack(sample_pairs(clients), axis=1)
  # Thousands of classes, such as words, of all pairs at once would take GiBs.
  parts = np.array_split(pairs, math.ceil(len(pairs) / _PAIRS_AT_ONCE))
  found, chance = (
    np.concatenate(
      [
        distances.total_variation(shares[first], shares[second])
        for first, second in (part.T for part in parts)
      ]
    )
    for shares in map(picture_rows.shares_of, (counts, redraw(counts)))
  )
  return found, chance


def redraw(counts: np.ndarray) -> np.ndarray:
  """Returns counts `[N, K]` of IID clients of the same sizes.

  Each draws its examples from the pooled distribution of all clients.
  """
  generator = seeds.numpy_generator(0, 'reports/card/chance')
  total = counts.sum(axis=0)
  return generator.multinomial(counts.sum(axis=1), total / total.sum())


PICTURE = picture.Picture(
  name='distances.png',
  caption=(
    'Pairwise distances between the training examples of clients. Grey: '
    'clients of the same sizes whose examples are drawn from the pooled '
    'distribution (IID); small clients differ by chance.'
  ),
  draw=draw,
)
