"""Picture: label distribution of each client."""

import numpy as np
from matplotlib import colors as colors_lib
from matplotlib import figure as figure_lib
from matplotlib import ticker

from tff_algos.reports.dataset import facts as facts_lib
from tff_algos.reports.dataset import picture_rows
from tff_algos.reports.plotting import client_axis, heat_map, picture, style

_MAX_NAMED_CLASSES = 30
# Least upper end of the colour scale, as a multiple of the uniform share.
_TIMES_EVEN = 3.0


def draw(facts: facts_lib.Facts) -> figure_lib.Figure | None:
  """Draws a heat map of client by label; for regression, label moments.

  Returns:
    None if no client has an example.
  """
  clients = picture_rows.similar_side_by_side(facts)
  if not len(clients):
    return None
  if not facts.schema.num_classes:
    return _draw_targets(facts, clients)
  rows = picture_rows.cut(clients)
  shares = rows.mean(picture_rows.shares_of(facts.labels))
  figure = style.new_figure(
    2.2 + 0.105 * max(len(shares), 12),
    'Label distribution of the clients',
  )
  axes = figure.subplots()
  cmap = colors_lib.LinearSegmentedColormap.from_list(
    'share', ('#f7f9fb', '#9cc3e0', '#0b4f86', '#062c4b')
  )
  image = axes.imshow(
    shares, cmap=cmap, vmin=0, vmax=_darkest(shares), aspect='auto'
  )
  bar = figure.colorbar(image, ax=axes, pad=0.015, fraction=0.035)
  bar.outline.set_visible(False)
  bar.set_label("share of a client's examples (%)")
  style.format_percent(bar.ax.yaxis)
  axes.grid(False)
  axes.spines[:].set_visible(False)
  axes.tick_params(length=0)
  axes.set_xlabel('class')
  if shares.shape[1] <= _MAX_NAMED_CLASSES:
    heat_map.name_columns(axes, facts.class_names)
  else:
    axes.xaxis.set_major_locator(ticker.MaxNLocator(15, integer=True))
  name_rows(facts, axes, rows)
  return figure


def name_rows(facts: facts_lib.Facts, axes, rows: picture_rows.Rows) -> None:
  """Labels the y axis of a picture whose rows are clients."""
  axes.set_ylabel(f'{rows.title}, sorted by similarity')
  client_axis.name(
    axes.yaxis, [facts.client_ids[row[0]] for row in rows.members]
  )


def _darkest(shares: np.ndarray) -> float:
  """Returns the upper end of the colour scale; similar clients look pale."""
  return min(1.0, max(np.max(shares), _TIMES_EVEN / shares.shape[1]))


def _draw_targets(
  facts: facts_lib.Facts, clients: np.ndarray
) -> figure_lib.Figure:
  """Draws mean and standard deviation of each client's labels."""
  means, deviations = (
    np.array(facts.clients[name], np.float64)[clients]
    for name in ('y_mean', 'y_std')
  )
  figure = style.new_figure(
    4, 'Labels of the clients: mean and standard deviation'
  )
  axes = figure.subplots()
  axes.grid(True, axis='both')
  main = np.argmax(facts.sources[clients], axis=1)
  colors = style.colors(facts.schema.num_sources)
  for source, color in enumerate(colors):
    rows = main == source
    axes.scatter(
      means[rows],
      deviations[rows],
      s=26 if len(clients) <= 1000 else 4,
      color=color,
      alpha=0.85 if len(clients) <= 1000 else 0.4,
      linewidths=0,
    )
  title = f'one dot per client, {len(clients):,} clients'
  if len(colors) > 1:
    title += ', in the colour of its main source'
    style.name_colors(axes, facts.schema.source_names, colors)
  axes.set_title(title)
  axes.set_xlabel("mean of the client's labels")
  axes.set_ylabel('standard deviation')
  return figure


def _caption(facts: facts_lib.Facts) -> str:
  if not facts.schema.num_classes:
    return 'Labels of all examples of each client with training examples.'
  text = 'Labels of the training examples of each client.'
  if len(picture_rows.similar_side_by_side(facts)) > picture_rows.MAX_ROWS:
    text += ' Each row is the mean of several similar clients.'
  return text


PICTURE = picture.Picture(name='labels.png', caption=_caption, draw=draw)
