"""Picture: score of each model over rounds."""

import math

import numpy as np
from matplotlib import axes as axes_lib
from matplotlib import figure as figure_lib

from tff_algos.reports.plotting import picture, style
from tff_algos.reports.run import run as run_lib

# With more clusters than this, only the best one of a panel is labelled.
_MAX_LABELS = 4


def draw(run: run_lib.Run) -> figure_lib.Figure | None:
  """Draws one panel for each source distribution and one for the clients.

  Returns:
    None if the run has no evaluated score.
  """
  panels: list[tuple[str | None, list]] = [
    (source, lines)
    for source in run.source_names
    if (lines := _cluster_lines(run, source))
  ]
  client_lines = style.client_lines(run)
  if client_lines:
    panels.append((None, client_lines))
  if not panels:
    return None
  num_columns = 2 if len(panels) <= 5 else 3
  num_rows = math.ceil(len(panels) / num_columns)
  word = style.score_word(run).capitalize()
  figure = style.new_figure(
    0.7 + 2.8 * num_rows, f'{word} of every model by round'
  )
  grid = figure.add_gridspec(num_rows, num_columns)
  scores = [series.values for _, lines in panels for _, series, _ in lines]
  scores += [
    np.array([share])
    for source, _ in panels
    if (share := _majority_share(run, source)) is not None
  ]
  first = None
  for index, (source, lines) in enumerate(panels):
    row, column = divmod(index, num_columns)
    # The last panel fills the rest of its row.
    end = num_columns if index == len(panels) - 1 else column + 1
    axes = figure.add_subplot(grid[row, column:end], sharey=first)
    if first is None:
      first = axes
      style.fit_scores(run, axes, np.concatenate(scores))
    if column == 0:
      axes.set_ylabel(style.score_label(run))
    _draw_panel(run, axes, source, lines)
  return figure


def _draw_panel(run, axes: axes_lib.Axes, source, lines) -> None:
  """Draws the lines of one panel; `source` None is the clients' own data."""
  if source is None:
    axes.set_title("on the clients' own test examples")
    emphasised = 0
  else:
    color = style.source_colors(run)[run.source_names.index(source)]
    axes.set_title(style.wrapped(f'on held-out {source}'), color=color)
    sign = 1 if run.higher_is_better else -1
    emphasised = max(
      (i for i, (_, series, _) in enumerate(lines) if series.diverged is None),
      key=lambda index: sign * lines[index][1].values[-1],
      default=None,
    )
  labels = []
  for index, (name, series, color) in enumerate(lines):
    best = index == emphasised
    axes.plot(
      series.rounds,
      series.values,
      color=color,
      linewidth=3.2 if best else 1.3,
      # Thin lines above the thick one: none hides another.
      zorder=2 if best else 3,
      marker='o' if len(series.rounds) == 1 else None,
    )
    if best or len(lines) <= _MAX_LABELS:
      text = style.end_text(run, name, series)
      labels.append(style.EndLabel(text, series.values[-1], color, best))
  if (share := _majority_share(run, source)) is not None:
    axes.axhline(share, color=style.MUTED, linewidth=1.1, linestyle=':')
    text = f'majority class: {style.score_text(run, share)}'
    labels.append(style.EndLabel(text, share, style.MUTED))
  style.format_rounds(run, axes, 5)
  style.format_scores(run, axes.yaxis)
  style.label_ends(axes, labels)


def _cluster_lines(run: run_lib.Run, source: str):
  names, colors = style.cluster_names(run), style.cluster_colors(run)
  return [
    (names[cluster], series, colors[cluster])
    for cluster in range(run.num_clusters)
    if (series := run.held_out(source, cluster)) is not None
  ]


def _majority_share(run: run_lib.Run, source: str | None) -> float | None:
  """Returns the majority-class accuracy on the data of one panel, if known.

  Args:
    run: The run.
    source: Source of the held-out examples; None for the clients' own data.
  """
  name = 'per_client' if source is None else f'held_out/{source}'
  value = (run.summary.get('majority_class') or {}).get(name)
  if value is None or not math.isfinite(value) or not run.higher_is_better:
    return None
  return value


def _caption(run: run_lib.Run) -> str:
  texts, labels = [], []
  if any(_cluster_lines(run, source) for source in run.source_names):
    models = 'The global model'
    if run.num_clusters > 1:
      models = 'Every cluster model (thick: the best after the last round)'
    texts.append(f'{models} on held-out examples of each source distribution.')
    labels.append('the held-out examples')
  if style.client_lines(run):
    last = 'Last panel: the' if texts else 'The'
    texts.append(f'{last} models of clients on their test examples.')
    labels.append("each client's training examples")
  sources = (None, *run.source_names)
  if any(_majority_share(run, one) is not None for one in sources):
    texts.append(
      'Dotted: accuracy of always predicting the most frequent label of '
      f'{"; in the last panel, of ".join(labels)}.'
    )
  return ' '.join(texts)


PICTURE = picture.Picture(name='accuracy.png', caption=_caption, draw=draw)
