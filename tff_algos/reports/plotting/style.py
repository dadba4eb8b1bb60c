"""Common style of all pictures: colours, legends, axes, labels."""

import contextlib
import io
import math
import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib.colors
import matplotlib.style
import numpy as np
from matplotlib import axes as axes_lib
from matplotlib import axis as axis_lib
from matplotlib import figure as figure_lib
from matplotlib import lines, patches, ticker
from matplotlib.backends import backend_agg
from sklearn import isotonic

from tff_algos.evaluation import recovery
from tff_algos.reports.plotting import client_axis
from tff_algos.reports.run import run as run_lib

INK = '#1a1a1a'
MUTED = '#5f6368'
FAINT = '#c8ccd0'

PERSONALIZED = INK
LOCAL = '#8b3a62'
OWN_CLUSTER = '#8a6d1f'
UNSEEN = '#7d8286'
UNSEEN_PERSONALIZED = '#3c6e71'

# Okabe and Ito's palette, safe for colour-blind readers; without yellow, which
# is too faint for a line, and with two more colours at the end.
_PALETTE = (
  '#0072b2',
  '#d55e00',
  '#009e73',
  '#b5538f',
  '#c98a00',
  '#3d9bd1',
  '#7a4f2b',
  '#6a5acd',
)

# Of each run through the palette: black or white, and its share.
_SHADES = ((0, 0.0), (0, 0.45), (1, 0.45))

# Inches. All pictures are equally wide, so that a page shows their texts in one
# size.
WIDTH = 10.0

_FONT_SIZE = 9.5
_MAX_MARKERS = 25
# Characters.
_LONGEST_LEGEND_LINE = 100
_LONGEST_LEGEND_NAME = 24
_LONGEST_PANEL_TITLE = 30
# Entries of a legend beside axes, which are 2.5 inches high or more.
_MAX_LEGEND_ROWS = 12
_DOTS_PER_INCH = 150
_STYLE = {
  'axes.edgecolor': MUTED,
  'axes.grid': True,
  'axes.grid.axis': 'y',
  'axes.labelcolor': INK,
  'axes.spines.right': False,
  'axes.spines.top': False,
  'axes.titlelocation': 'left',
  'axes.titlesize': _FONT_SIZE + 0.5,
  'axes.titleweight': 'bold',
  'figure.constrained_layout.h_pad': 0.09,
  'figure.constrained_layout.use': True,
  'figure.constrained_layout.w_pad': 0.09,
  'figure.dpi': _DOTS_PER_INCH,
  'figure.facecolor': 'white',
  'font.size': _FONT_SIZE,
  'grid.color': '#e6e8ea',
  'legend.frameon': False,
  'lines.solid_capstyle': 'round',
  'text.color': INK,
  # Names of sources are never parsed as formulas.
  'text.parse_math': False,
  'xtick.color': MUTED,
  'xtick.labelcolor': INK,
  'ytick.color': MUTED,
  'ytick.labelcolor': INK,
}


class EndLabel(NamedTuple):
  """A text beside the end of a line.

  Attributes:
    text: Text of the label.
    value: Height of the line's end, in data units.
    color: Colour of the text.
    bold: Whether the text is bold.
  """

  text: str
  value: float
  color: str
  bold: bool = False


@contextlib.contextmanager
def applied():
  """Applies this style inside the block, regardless of matplotlibrc."""
  with matplotlib.style.context(_STYLE, after_reset=True):
    yield


def new_figure(height: float, title: str) -> figure_lib.Figure:
  """Returns an empty figure of the common width, with a heading.

  Args:
    height: Height in inches.
    title: Heading, one line.
  """
  figure = figure_lib.Figure(figsize=(WIDTH, height))
  figure.suptitle(
    title, x=0.012, ha='left', fontsize=_FONT_SIZE + 3, fontweight='bold'
  )
  return figure


def to_png(figure: figure_lib.Figure) -> bytes:
  """Returns a figure as a PNG file, deterministically."""
  content = io.BytesIO()
  backend_agg.FigureCanvasAgg(figure).print_png(content)
  return content.getvalue()


def colors(count: int) -> tuple[str, ...]:
  """Returns the colours of the first `count` source distributions."""
  return tuple(_color(index) for index in range(count))


def line_look(index: int) -> dict[str, Any]:
  """Returns colour and line style of a line by its number, from 0."""
  styles = ('-', '--', ':', '-.')
  return {
    'color': _color(index),
    'linestyle': styles[index // len(_PALETTE) % len(styles)],
  }


def line_width(index: int, count: int) -> float:
  """Returns the width of a line: later lines are thinner, so none is hidden."""
  return 1.3 + 2.5 * (1 - (index + 1) / count)


def draw_line(
  axes: axes_lib.Axes,
  position: tuple[int, int],
  x: np.ndarray,
  middle: np.ndarray,
  ends: tuple[np.ndarray, np.ndarray],
  marker: str | None = None,
) -> None:
  """Draws one of several lines, with a band around it.

  With many lines the bands are fainter.

  Args:
    axes: Axes to draw in.
    position: Number of the line, from 0, and number of lines.
    x: `[n]`.
    middle: `[n]`.
    ends: Lower and upper end of the band, `[n]` each.
    marker: Marker of the points.
  """
  index, count = position
  look = line_look(index)
  width = line_width(index, count)
  axes.plot(x, middle, linewidth=width, marker=marker, markersize=4, **look)
  alpha = min(0.15, 0.5 / count)
  axes.fill_between(x, *ends, color=look['color'], alpha=alpha, linewidth=0)


def new_figure_with_legend(
  height: float, title: str, labels: Sequence[str]
) -> figure_lib.Figure:
  """Returns an empty figure with a legend below.

  Args:
    height: Height in inches, without the legend.
    title: Heading, one line.
    labels: Labels of the lines 0, 1, ... of `line_look`; a single line gets no
      legend. Long labels are wrapped.
  """
  if len(labels) == 1:
    return new_figure(height, title)
  labels = [textwrap.fill(label, _LONGEST_LEGEND_LINE) for label in labels]
  texts = [label.split('\n') for label in labels]
  entry_inches = 0.6 + 0.085 * max(len(line) for text in texts for line in text)
  num_columns = min(len(labels), max(1, int(WIDTH / entry_inches)))
  num_lines = math.ceil(len(labels) / num_columns) * max(map(len, texts))
  figure = new_figure(height + 0.1 + 0.2 * num_lines, title)
  handles = [
    lines.Line2D([], [], linewidth=1.8, label=label, **line_look(index))
    for index, label in enumerate(labels)
  ]
  figure.legend(
    handles=handles,
    loc='outside lower left',
    ncols=num_columns,
    fontsize=_FONT_SIZE - 0.5,
  )
  return figure


def name_colors(
  axes: axes_lib.Axes, names: Sequence[str], colors: Sequence[str]
) -> None:
  """Adds a legend of colours beside the axes, the first name at the bottom.

  There is none of more than 24 colours, which cannot be told apart.

  Args:
    axes: Axes to add it to.
    names: Names in the stacking order of the bars; long ones are shortened.
    colors: Their colours.
  """
  if len(names) > len(_PALETTE) * len(_SHADES):
    return
  handles = [
    patches.Patch(color=color, label=name)
    for name, color in zip(
      client_axis.shortened(names, _LONGEST_LEGEND_NAME), colors, strict=True
    )
  ]
  axes.legend(
    handles=handles[::-1],
    loc='center left',
    bbox_to_anchor=(1, 0.5),
    handlelength=0.9,
    ncols=math.ceil(len(names) / _MAX_LEGEND_ROWS),
  )


def wrapped(title: str) -> str:
  """Returns the title of one of several panels side by side, in lines."""
  return textwrap.fill(title, _LONGEST_PANEL_TITLE)


def new_panels(
  figure: figure_lib.Figure, count: int, max_columns: int, **options: Any
) -> list[axes_lib.Axes]:
  """Adds a grid of axes, row by row, in rows of about the same length.

  Args:
    figure: Empty figure.
    count: Number of axes, >= 1.
    max_columns: Largest number in a row.
    **options: Options of `subplots`, such as `sharey`.
  """
  grid = figure.subplots(
    *panel_shape(count, max_columns), squeeze=False, **options
  )
  for spare in grid.flat[count:]:
    spare.set_axis_off()
  return list(grid.flat[:count])


def panel_shape(count: int, max_columns: int) -> tuple[int, int]:
  """Returns the rows and columns that `new_panels` makes."""
  num_rows = math.ceil(count / max_columns)
  return num_rows, math.ceil(count / num_rows)


def source_colors(run: run_lib.Run) -> tuple[str, ...]:
  """Returns one colour for each source distribution."""
  return colors(len(run.source_names))


def planted_colors(run: run_lib.Run) -> tuple[str, ...]:
  """Returns one colour for each column of the true mixture."""
  return colors(len(run.planted_names))


def cluster_colors(run: run_lib.Run) -> tuple[str, ...]:
  """Returns the colour of each cluster: that of its matched source."""
  if run.num_clusters == 1:
    return (OWN_CLUSTER,)
  spare = len(run.planted_names) or len(run.source_names)
  found = []
  for source in run.matched_sources:
    if source == recovery.UNMATCHED:
      source, spare = spare, spare + 1
    found.append(_color(source))
  return tuple(found)


def cluster_names(run: run_lib.Run) -> tuple[str, ...]:
  """Returns the name of each cluster in pictures."""
  if run.num_clusters == 1:
    return ('global model',)
  return tuple(f'cluster {index}' for index in range(run.num_clusters))


def client_lines(
  run: run_lib.Run,
) -> list[tuple[str, run_lib.Series, str]]:
  """Returns (name, series, colour) of each score on clients' test examples."""
  lines = (
    ('participating/test/personalized', 'personalized', PERSONALIZED),
    ('participating/test/local', 'local', LOCAL),
    ('participating/test/cluster', own_cluster_name(run), OWN_CLUSTER),
    ('unseen/test/personalized', 'unseen, personalized', UNSEEN_PERSONALIZED),
    ('unseen/test/cluster', 'unseen clients', UNSEEN),
  )
  return [
    (name, series, color)
    for prefix, name, color in lines
    if (series := run.series(f'{prefix}/{run.score_name}')) is not None
  ]


def score_word(run: run_lib.Run) -> str:
  """Returns the score in words, without its unit."""
  return 'accuracy' if run.higher_is_better else 'mean squared error'


def score_label(run: run_lib.Run) -> str:
  """Returns the axis label of the score, with its unit."""
  return score_word(run) + (' (%)' if run.higher_is_better else '')


def score_text(run: run_lib.Run, value: float) -> str:
  """Returns a score as readable text."""
  if run.higher_is_better:
    return f'{100 * value:.1f} %'
  return f'{value:#.3g}'.rstrip('.')


def end_text(run: run_lib.Run, name: str, series: run_lib.Series) -> str:
  """Returns the label of a line of scores: its name and last score."""
  if series.diverged is not None:
    return f'{name}: diverged by round {series.diverged}'
  return f'{name}: {score_text(run, series.values[-1])}'


def own_cluster_name(run: run_lib.Run) -> str:
  """Returns the name of the cluster model that serves a client."""
  return 'global model' if run.num_clusters == 1 else 'own cluster'


def models_of_client(run: run_lib.Run) -> dict[str, str]:
  """Returns the names of a client's models, by their names in metrics."""
  return {
    'personalized': 'personalized models',
    'local': 'local models',
    'cluster': own_cluster_name(run),
  }


def format_scores(run: run_lib.Run, axis: axis_lib.Axis) -> None:
  """Formats an axis of scores in per cent, or in plain numbers."""
  if run.higher_is_better:
    format_percent(axis)


def format_percent(axis: axis_lib.Axis) -> None:
  """Formats an axis of shares in per cent; its label names the unit."""
  axis.set_major_formatter(
    ticker.FuncFormatter(lambda value, _: f'{100 * value:g}')
  )


def format_rounds(run: run_lib.Run, axes: axes_lib.Axes, ticks: int) -> None:
  """Labels the x axis with the rounds of a run, at most `ticks` of them."""
  axes.set_xlim(run.round_limits)
  axes.set_xlabel('round')
  axes.xaxis.set_major_locator(ticker.MaxNLocator(ticks, integer=True))


def fit_logarithm(axes: axes_lib.Axes, low: float, high: float) -> None:
  """Makes the y axis logarithmic, with limits around values > 0."""
  axes.set_yscale('log')
  # The default formatter writes formulas, which this style does not parse.
  axes.yaxis.set_major_formatter(ticker.StrMethodFormatter('{x:g}'))
  axes.set_ylim(low / 1.3, high * 1.3)


def fit_scores(
  run: run_lib.Run, axes: axes_lib.Axes, values: np.ndarray
) -> None:
  """Sets the limits of the y axis to all `values` of a score."""
  low, high = float(np.min(values)), float(np.max(values))
  if not run.higher_is_better and low > 0 and high > 20 * low:
    fit_logarithm(axes, low, high)
    return
  margin = 0.06 * (high - low) or 0.05
  floor = 0.0 if low >= 0 else low - margin
  axes.set_ylim(max(low - margin, floor), high + margin)


def marker(series: run_lib.Series) -> str | None:
  """Returns a marker for the points of a line with few points."""
  return 'o' if len(series.rounds) <= _MAX_MARKERS else None


def label_ends(axes: axes_lib.Axes, labels: list[EndLabel]) -> None:
  """Writes labels to the right of the axes, beside their lines' ends.

  Labels that would overlap are moved apart by as little as possible. The
  limits of the y axis must have been set.
  """
  if not labels:
    return
  size = _FONT_SIZE - 0.5
  height_inches = axes.get_window_extent().height / axes.figure.dpi
  gap = 1.35 * size / 72 / height_inches
  to_axes = axes.transData + axes.transAxes.inverted()
  middle = sum(axes.get_xlim()) / 2
  wanted = np.array(
    [to_axes.transform((middle, label.value))[1] for label in labels]
  )
  for label, y in zip(labels, spread(wanted, gap), strict=True):
    axes.annotate(
      label.text,
      xy=(1.0, y),
      xycoords='axes fraction',
      xytext=(4, 0),
      textcoords='offset points',
      va='center',
      color=label.color,
      fontsize=size,
      fontweight='bold' if label.bold else 'normal',
    )


def note(axes: axes_lib.Axes, text: str, place: tuple[float, float]) -> None:
  """Writes a small text, if there is any, above a point with finite numbers."""
  if text and np.isfinite(place).all():
    axes.annotate(
      text.strip(),
      place,
      xytext=(0, 6),
      textcoords='offset points',
      ha='center',
      color=MUTED,
      fontsize=_FONT_SIZE - 2.5,
    )


def spread(positions: np.ndarray, gap: float) -> np.ndarray:
  """Moves positions apart to at least `gap`, by the least squares.

  Args:
    positions: `[n]`, n >= 1, in [0, 1]; others are moved there.
    gap: Least distance between two of them, > 0; where that leaves no room,
      the last ones end above 1.

  Returns:
    `[n]`, in the order of `positions`.
  """
  order = np.argsort(positions, kind='stable')
  steps = gap * np.arange(len(positions))
  top = max(0.0, 1.0 - steps[-1])
  placed = np.empty(len(positions))
  placed[order] = steps + isotonic.isotonic_regression(
    positions[order] - steps, y_min=0.0, y_max=top
  )
  return placed


def _color(index: int) -> str:
  """Returns the palette, then the same darker, then lighter."""
  cycle, place = divmod(index, len(_PALETTE))
  toward, share = _SHADES[cycle % len(_SHADES)]
  red, green, blue = (
    (1 - share) * part + share * toward
    for part in matplotlib.colors.to_rgb(_PALETTE[place])
  )
  return matplotlib.colors.to_hex((red, green, blue))
