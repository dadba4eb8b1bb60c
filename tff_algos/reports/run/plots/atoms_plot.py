"""Picture: filter atoms of each layer, and distances of clients' own atoms."""

from typing import NamedTuple

import numpy as np
from matplotlib import figure as figure_lib
from matplotlib import ticker

from tff_algos.reports.plotting import picture, style
from tff_algos.reports.plotting import table as table_lib
from tff_algos.reports.run import run as run_lib

# In layers with more atoms only those with the largest coefficients are drawn.
_MAX_ATOMS = 16
# Width of a panel of distances, in atoms.
_PANEL_WIDTH = 4


class _Layer(NamedTuple):
  """The atoms of one layer.

  Attributes:
    name: Name of the layer.
    norms: Norms of the atoms' coefficients, descending, float64 `[n]`.
    atoms: In the same order, float64 `[n, height, width]`.
  """

  name: str
  norms: np.ndarray
  atoms: np.ndarray


def draw(run: run_lib.Run) -> figure_lib.Figure | None:
  """Draws a row for each layer: atoms, and the distances of clients' own ones.

  Returns:
    None without tables of atoms by `binaries.factors`.
  """
  table = run.evaluation_table('atoms.csv')
  if table is None:
    return None
  layers = _layers(table)
  distances = _distances(run, layers)
  num_atoms = max(len(layer.norms) for layer in layers)
  num_columns = num_atoms + _PANEL_WIDTH * bool(distances)
  figure = style.new_figure(
    0.9 + (1.3 if distances else 1.1) * len(layers),
    f'Filter atoms of each layer{_after_round(run)}, and the norms of their '
    'coefficients',
  )
  grid = figure.add_gridspec(len(layers), num_columns)
  for row, layer in enumerate(layers):
    limit = np.abs(layer.atoms).max() or 1.0
    for column, (norm, atom) in enumerate(
      zip(layer.norms, layer.atoms, strict=True)
    ):
      axes = figure.add_subplot(grid[row, column])
      axes.imshow(atom, cmap='RdBu_r', vmin=-limit, vmax=limit)
      axes.grid(False)
      axes.set(xticks=[], yticks=[])
      axes.set_title(f'{norm:.3g}', loc='center', fontsize=8)
      if not column:
        axes.set_ylabel(
          layer.name, rotation=0, ha='right', va='center', fontweight='bold'
        )
    if distances:
      _draw_distances(figure.add_subplot(grid[row, num_atoms:]), distances[row])
  return figure


def _after_round(run: run_lib.Run) -> str:
  """Returns the round of the atoms, the last one of the table beside theirs."""
  factors = run.evaluation_table('factors.csv')
  if factors is None:
    return ''
  return f' after round {factors.numbers("round")[-1]:.0f}'


def _layers(table: table_lib.Table) -> list[_Layer]:
  names = np.array(table.texts('layer'))
  norms = table.numbers('coefficient_norm')
  heights, widths = table.numbers('height'), table.numbers('width')
  entries = table.matrix('entry_')
  layers = []
  for name in dict.fromkeys(names.tolist()):
    members = np.flatnonzero(names == name)
    chosen = members[np.argsort(-norms[members], kind='stable')][:_MAX_ATOMS]
    height, width = int(heights[chosen[0]]), int(widths[chosen[0]])
    shown = entries[chosen, : height * width]  # pyright: ignore[reportOptionalSubscript]
    layers.append(_Layer(name, norms[chosen], shown.reshape(-1, height, width)))
  return layers


def _distances(run: run_lib.Run, layers: list[_Layer]) -> list[np.ndarray]:
  """Returns each layer's distances by client; [] if no client has own atoms."""
  table = run.evaluation_table('own_atoms.csv')
  if table is None:
    return []
  found = [table.numbers(f'distance_{layer.name}') for layer in layers]
  return found if any(one.any() for one in found) else []


def _draw_distances(axes, distances: np.ndarray) -> None:
  """Draws a bar for each client with own atoms, by descending distance."""
  trained = np.sort(distances[distances > 0])[::-1]
  (color,) = style.colors(1)
  axes.set_axisbelow(True)
  axes.bar(np.arange(len(trained)), trained, width=0.85, color=color)
  axes.set_title(
    f'own atoms: {len(trained)} of {len(distances)} clients',
    fontsize=8,
  )
  axes.set_xticks([])
  axes.set_ylabel('distance')
  axes.yaxis.set_major_locator(ticker.MaxNLocator(3))


PICTURE = picture.Picture(
  name='atoms.png',
  caption=(
    'Filter atoms, measured by binaries.factors at the latest checkpoint then. '
    'Red is positive, blue negative, on one scale for each layer. The number '
    'above an atom is the norm of its coefficients; atoms are in the order of '
    "this norm. Right: Euclidean distance of the clients' own atoms from the "
    'global ones, in descending order; clients that never trained own atoms '
    'use the global ones and have no bar.'
  ),
  draw=draw,
)
