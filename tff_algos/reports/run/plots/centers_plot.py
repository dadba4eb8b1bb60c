"""Picture: the final score of every cluster model on every source."""

import numpy as np
from matplotlib import figure as figure_lib

from tff_algos.evaluation import association, recovery
from tff_algos.reports.plotting import heat_map, picture, style
from tff_algos.reports.run import run as run_lib

# Scores of more sources do not fit their cells.
_MAX_PRINTED = 20


def draw(run: run_lib.Run) -> figure_lib.Figure | None:
  """Draws a heat map, cluster by source; in a column, darker is better.

  Returns:
    None if no cluster was scored on a source distribution, or there is a
    single cluster.
  """
  scores = run.held_out_scores
  if not np.isfinite(scores).any() or run.num_clusters == 1:
    return None
  word = style.score_label(run).capitalize()
  figure = style.new_figure(
    1.9 + 0.55 * len(scores),
    f'{word} on held-out examples, round {run.evaluated_round}',
  )
  axes = figure.subplots()
  is_printed = scores.shape[1] <= _MAX_PRINTED
  heat_map.draw(
    axes,
    _goodness(scores, run.higher_is_better),
    [
      [_cell_text(run, value) if is_printed else '' for value in row]
      for row in scores
    ],
  )
  heat_map.name_columns(axes, run.source_names, style.source_colors(run))
  heat_map.name_rows(axes, style.cluster_names(run), style.cluster_colors(run))
  best = association.best_clusters(
    scores, higher_is_better=run.higher_is_better
  )
  for source in np.flatnonzero(best != recovery.UNMATCHED):
    heat_map.frame(axes, best[source], source)
  axes.set_xlabel(
    'source distribution (darker is better; framed: the best cluster)'
  )
  return figure


def _cell_text(run: run_lib.Run, value: float) -> str:
  if np.isnan(value):
    return '–'
  return f'{100 * value:.1f}' if run.higher_is_better else f'{value:.3g}'


def _goodness(scores: np.ndarray, higher_is_better: bool) -> np.ndarray:
  """Returns scores scaled to [0, 1] source by source, 1 the best.

  The scale spans at least a tenth of the source's largest score, so that
  nearly equal scores look alike.
  """
  signed = scores if higher_is_better else -scores
  # Unlike nanmax these do not warn about a source without scores.
  high, low = np.fmax.reduce(signed), np.fmin.reduce(signed)
  span = np.fmax(high - low, 0.1 * np.fmax.reduce(np.abs(scores)))
  return 1 - (high - signed) / np.where(span > 0, span, 1.0)


def _caption(run: run_lib.Run) -> str:
  text = (
    'Every cluster model on every source distribution at the evaluated round, '
    'shaded column by column.'
  )
  if len(run.source_names) > 1:
    text += (
      ' If the best cells of the columns lie in different rows, the clusters '
      'have specialised in different sources.'
    )
  return text


PICTURE = picture.Picture(name='centers.png', caption=_caption, draw=draw)
