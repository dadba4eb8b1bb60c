"""Picture: distribution of test scores over clients, and the worst decile."""

from typing import NamedTuple

import numpy as np
from matplotlib import axes as axes_lib
from matplotlib import figure as figure_lib

from tff_algos.evaluation import summaries
from tff_algos.reports.plotting import client_axis, picture, style
from tff_algos.reports.run import run as run_lib

# With more clients than this single dots cannot be read.
_MAX_DOTS = 60


class _Scores(NamedTuple):
  """Scores of n clients on their test examples; may not be finite.

  Attributes:
    client_ids: `[n]`.
    personalized: Score of the personalized model, float64 `[n]`.
    cluster: Score of the cluster model, float64 `[n]`.
    num_examples: Test examples, `[n]`.
  """

  client_ids: np.ndarray
  personalized: np.ndarray
  cluster: np.ndarray
  num_examples: np.ndarray


def draw(run: run_lib.Run) -> figure_lib.Figure | None:
  """Draws personalized and cluster scores by client and as distributions.

  Returns:
    None if the clients have no scores.
  """
  scores = _read_scores(run)
  if scores is None:
    return None
  word = style.score_word(run)
  title = f'Test {word} of clients: personalized and cluster models'
  if run.num_clusters == 1:
    title = f'Test {word} of clients: personalized models and global model'
  both = np.isfinite(scores.personalized) & np.isfinite(scores.cluster)
  if not 0 < both.sum() <= _MAX_DOTS:
    figure = style.new_figure(4.2, title)
    panels = [figure.subplots()]
  else:
    figure = style.new_figure(4.6, title)
    panels = list(figure.subplots(1, 2, width_ratios=(1.5, 1)))
    _draw_dots(run, panels[0], _Scores(*(column[both] for column in scores)))
  lines = (
    ('personalized', scores.personalized, style.PERSONALIZED, '-'),
    (style.own_cluster_name(run), scores.cluster, style.OWN_CLUSTER, '--'),
  )
  _draw_shares(run, panels[-1], lines, scores.num_examples)
  return figure


def _read_scores(run: run_lib.Run) -> _Scores | None:
  """Returns the participating clients with examples; None without a score."""
  names = [
    f'test_{kind}_{run.score_name}' for kind in ('personalized', 'cluster')
  ]
  if not all(name in run.clients for name in names):
    return None
  personalized, cluster = (run.clients.numbers(name) for name in names)
  examples = run.clients.numbers('num_test_examples')
  # Unseen clients may have scores of a fitted mixture.
  known = run.is_participating & (examples > 0)
  if not np.isfinite([personalized[known], cluster[known]]).any():
    return None
  ids = np.array(run.clients.texts('client_id'))
  return _Scores(
    ids[known], personalized[known], cluster[known], examples[known]
  )


def _draw_dots(run: run_lib.Run, axes: axes_lib.Axes, scores: _Scores) -> None:
  """Draws two dots per client, the worst client first."""
  sign = 1 if run.higher_is_better else -1
  order = np.lexsort((sign * scores.cluster, sign * scores.personalized))
  personalized, cluster = scores.personalized[order], scores.cluster[order]
  num_worst = max(1, len(order) // 10)
  positions = np.arange(len(order))
  axes.axvspan(-0.6, num_worst - 0.5, color='#f3e3d3', zorder=0, linewidth=0)
  axes.vlines(
    positions, cluster, personalized, color=style.FAINT, linewidth=1.4, zorder=1
  )
  axes.scatter(
    positions,
    cluster,
    edgecolors=style.OWN_CLUSTER,
    facecolors='white',
    s=58,
    zorder=2,
    linewidth=1.3,
  )
  axes.scatter(positions, personalized, color=style.INK, s=30, zorder=3)
  axes.set_title(
    f'filled: personalized; open: {style.own_cluster_name(run)}; shaded: worst '
    'decile'
  )
  axes.set_xlim(-0.6, len(order) - 0.4)
  client_axis.name(
    axes.xaxis, scores.client_ids[order].tolist(), range(num_worst)
  )
  axes.set_xlabel(
    f'{len(order)} clients, from worst to best personalized model'
  )
  axes.set_ylabel('test ' + style.score_label(run))
  style.format_scores(run, axes.yaxis)


def _draw_shares(
  run: run_lib.Run, axes: axes_lib.Axes, lines, examples
) -> None:
  """Draws the share of clients at or below each score."""
  for index, (name, values, color, linestyle) in enumerate(lines):
    counted = values[~np.isnan(values)]
    if not counted.size:
      continue
    worst = summaries.summarize(
      values, examples, higher_is_better=run.higher_is_better
    ).worst_decile
    axes.plot(
      [worst],
      [0 if run.higher_is_better else 1],
      marker='^' if run.higher_is_better else 'v',
      color=color,
      markersize=11 - 4 * index,
      clip_on=False,
      zorder=4,
    )
    axes.ecdf(
      counted,
      color=color,
      linewidth=2,
      linestyle=linestyle,
      label=f'{name}: worst decile {style.score_text(run, worst)}',
    )
  axes.legend(loc='upper center', bbox_to_anchor=(0.5, -0.2))
  axes.set_title('cumulative distribution over clients')
  axes.set_ylabel('clients at or below the score (%)')
  axes.set_xlabel('test ' + style.score_label(run))
  axes.set_ylim(0, 1)
  style.format_percent(axes.yaxis)
  style.format_scores(run, axes.xaxis)


PICTURE = picture.Picture(
  name='clients.png',
  caption=lambda run: (
    'The personalized model of each participating client and '
    f'{"the global model" if run.num_clusters == 1 else "its cluster model"}, '
    "on the client's test examples. Triangles: mean of the worst 10 % of the "
    'clients (worst decile). Scores of all clients are in '
    'evaluation/clients.csv.'
  ),
  draw=draw,
)
