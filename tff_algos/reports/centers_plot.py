"""Picture: the final score of every cluster model on every source."""

import numpy as np
from matplotlib import colors as colors_lib
from matplotlib import figure as figure_lib
from matplotlib import patches

from tff_algos.reports import run as run_lib
from tff_algos.reports import style

_DARK_ENOUGH_FOR_WHITE = 0.55


def draw(run: run_lib.Run) -> figure_lib.Figure | None:
  """Draws a heat map, cluster by source, darker is better.

  Returns:
    None if no cluster was scored on a source distribution.
  """
  scores = run.held_out_scores
  if not np.isfinite(scores).any():
    return None
  num_clusters, num_sources = scores.shape
  last = run.series(
    next(name for name in run.rounds.columns if name.startswith('held_out/'))
  )
  word = 'Accuracy (%)' if run.higher_is_better else 'Mean squared error'
  figure = style.new_figure(
    max(5.6, 2.2 + 1.15 * num_sources),
    1.9 + 0.55 * num_clusters,
    f'{word} on held-out examples, round {int(last.rounds[-1])}',
  )
  axes = figure.subplots()
  goodness = _goodness(scores, run.higher_is_better)
  cmap = colors_lib.LinearSegmentedColormap.from_list(
    'goodness', ('#eef3f8', '#0b4f86')
  )
  axes.imshow(goodness, cmap=cmap, vmin=0, vmax=1, aspect='auto')
  best = np.nanargmax(np.where(np.isnan(goodness), -1, goodness), axis=0)
  for cluster, source in np.ndindex(scores.shape):
    value = scores[cluster, source]
    dark = goodness[cluster, source] > _DARK_ENOUGH_FOR_WHITE
    axes.text(
      source,
      cluster,
      '–' if np.isnan(value) else _cell_text(run, value),
      ha='center',
      va='center',
      color='white' if dark else style.INK,
      fontweight='bold' if best[source] == cluster else 'normal',
    )
  if num_clusters > 1:
    for source, cluster in enumerate(best):
      if np.isfinite(scores[:, source]).any():
        _frame(axes, source, cluster)
  _name_axes(run, axes)
  return figure


def _frame(axes, source: int, cluster: int) -> None:
  axes.add_patch(
    patches.Rectangle(
      (source - 0.47, cluster - 0.45),
      0.94,
      0.9,
      fill=False,
      edgecolor=style.INK,
      linewidth=2,
    )
  )


def _name_axes(run: run_lib.Run, axes) -> None:
  axes.grid(False)
  axes.spines[:].set_visible(False)
  axes.tick_params(length=0)
  axes.set_xticks(range(len(run.source_names)), run.source_names)
  axes.set_yticks(range(run.num_clusters), style.cluster_names(run))
  for tick, color in zip(
    axes.get_xticklabels(), style.source_colors(run), strict=True
  ):
    tick.set_color(color)
    tick.set_fontweight('bold')
  for tick, color in zip(
    axes.get_yticklabels(), style.cluster_colors(run), strict=True
  ):
    tick.set_color(color)
    tick.set_fontweight('bold')
  note = 'source distribution (darker is better'
  axes.set_xlabel(
    note + ('; framed: the best cluster)' if run.num_clusters > 1 else ')')
  )


def _cell_text(run: run_lib.Run, value: float) -> str:
  return f'{100 * value:.1f}' if run.higher_is_better else f'{value:.3g}'


def _goodness(scores: np.ndarray, higher_is_better: bool) -> np.ndarray:
  """Returns scores scaled to [0, 1], 1 the best.

  The scale spans at least a tenth of the largest score, so that scores which
  are nearly the same look so.
  """
  signed = scores if higher_is_better else -scores
  high = np.nanmax(signed)
  span = max(high - np.nanmin(signed), 0.1 * np.nanmax(np.abs(scores)))
  return 1 - (high - signed) / (span or 1.0)
