"""Curves of cost over size: slopes, a table, and a picture of each."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib import figure as figure_lib

from tff_algos.reports.plotting import style

Points = Sequence[tuple[int, float]]


class Curve(NamedTuple):
  """One quantity over the size of the population or of the raw data.

  Attributes:
    name: Name of the quantity, with its unit.
    sizes: What the sizes count, `'clients'` or `'examples'`.
    points: Pairs of size and value, ascending, all above 0.
  """

  name: str
  sizes: str
  points: Points

  @property
  def slope(self) -> float:
    """Returns the slope between the two largest sizes, both axes logarithmic.

    0 is constant, 1 is linear.
    """
    (size, value), (larger, other) = self.points[-2:]
    return math.log(other / value) / math.log(larger / size)

  @property
  def file_name(self) -> str:
    """Returns the name of the picture's file."""
    return self.name.replace(',', '').replace(' ', '_') + '.png'


def collect(
  rows: Sequence[Mapping[str, float]], names: Mapping[str, str], sizes: str
) -> list[Curve]:
  """Returns the curves of some figures.

  Args:
    rows: Figures of each size, which is `num_<sizes>`.
    names: Figure -> name of the curve.
    sizes: `'clients'` or `'examples'`.
  """
  return [
    Curve(name, sizes, [(int(row[f'num_{sizes}']), row[key]) for row in rows])
    for key, name in names.items()
  ]


def table(curves: Sequence[Curve]) -> str:
  """Returns a Markdown table of curves over the same sizes, with slopes."""
  sizes = [f'{size:,}' for size, _ in curves[0].points]
  lines = [(curves[0].sizes, *sizes, 'slope'), ('---',) * (len(sizes) + 2)]
  for curve in curves:
    values = (f'{value:.3g}' for _, value in curve.points)
    lines.append((curve.name, *values, f'{curve.slope:.2f}'))
  return '\n'.join('| ' + ' | '.join(line) + ' |' for line in lines)


def draw(curve: Curve) -> figure_lib.Figure:
  """Draws a curve on logarithmic axes, with its slope."""
  figure = style.new_figure(3.4, f'{curve.name}: slope {curve.slope:.2f}')
  axes = figure.subplots()
  axes.plot(*zip(*curve.points, strict=True), 'o-', color=style.INK)
  axes.set_xscale('log')
  axes.set_yscale('log')
  low = min(value for _, value in curve.points)
  high = max(value for _, value in curve.points)
  # A constant is a flat line, not noise from edge to edge.
  axes.set_ylim(low / 3, high * 3)
  axes.xaxis.set_major_formatter('{x:,.0f}')
  axes.yaxis.set_major_formatter('{x:g}')
  axes.minorticks_off()
  axes.set_xlabel(curve.sizes)
  # `training, peak MiB, states on disk` is in MiB.
  axes.set_ylabel('MiB' if 'MiB' in curve.name else 'CPU seconds')
  return figure
