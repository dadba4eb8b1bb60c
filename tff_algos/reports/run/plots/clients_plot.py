"""Picture: distribution of test scores over clients, and the worst decile."""

import numpy as np
from matplotlib import axes as axes_lib
from matplotlib import figure as figure_lib
from matplotlib import ticker

from tff_algos.evaluation import summaries
from tff_algos.reports.plotting import picture, style
from tff_algos.reports.run import run as run_lib

# With more clients than this single dots cannot be read.
_MAX_DOTS = 60
_CLUSTER_COLOR = '#8a6d1f'


def draw(run: run_lib.Run) -> figure_lib.Figure | None:
  """Draws personalized and cluster scores by client and as distributions.

  Returns:
    None if the clients have no scores.
  """
  scores = _scores(run)
  if scores is None:
    return None
  personalized, cluster, examples = scores
  word = 'accuracy' if run.higher_is_better else 'mean squared error'
  title = f'Test {word} of each client, by two models'
  if len(personalized) > _MAX_DOTS:
    figure = style.new_figure(8, 4.2, title)
    panels = [figure.subplots()]
  else:
    figure = style.new_figure(11.4, 4.2, title)
    panels = list(figure.subplots(1, 2, width_ratios=(1.5, 1)))
    _draw_dots(run, panels[0], personalized, cluster)
  lines = (
    ('personalized', personalized, style.INK, '-'),
    ('own cluster', cluster, _CLUSTER_COLOR, '--'),
  )
  _draw_shares(run, panels[-1], lines, examples)
  return figure


def _scores(run: run_lib.Run):
  """Returns (personalized, cluster, test examples) where both are known."""
  names = [
    f'test_{kind}_{run.score_name}' for kind in ('personalized', 'cluster')
  ]
  if not all(name in run.clients for name in names):
    return None
  personalized, cluster = (run.clients.numbers(name) for name in names)
  known = np.isfinite(personalized) & np.isfinite(cluster)
  examples = np.ones(len(known))
  if 'num_test_examples' in run.clients:
    examples = run.clients.numbers('num_test_examples')
    known &= examples > 0
  if not known.any():
    return None
  return personalized[known], cluster[known], examples[known]


def _draw_dots(
  run: run_lib.Run, axes: axes_lib.Axes, personalized, cluster
) -> None:
  """Draws two dots per client, by ascending personalized score."""
  sign = 1 if run.higher_is_better else -1
  order = np.lexsort((sign * cluster, sign * personalized))
  personalized, cluster = personalized[order], cluster[order]
  positions = np.arange(len(order))
  axes.axvspan(
    -0.6, max(1, len(order) // 10) - 0.5, color='#f3e3d3', zorder=0, linewidth=0
  )
  axes.vlines(
    positions, cluster, personalized, color=style.FAINT, linewidth=1.4, zorder=1
  )
  axes.scatter(
    positions,
    cluster,
    edgecolors=_CLUSTER_COLOR,
    facecolors='white',
    s=58,
    zorder=2,
    linewidth=1.3,
  )
  axes.scatter(positions, personalized, color=style.INK, s=30, zorder=3)
  axes.set_title(
    'filled: personalized; open: own cluster; shaded: worst decile'
  )
  axes.set_xlim(-0.6, len(order) - 0.4)
  axes.set_xlabel('client, from worst to best personalized model')
  axes.set_ylabel('test ' + style.score_label(run))
  axes.xaxis.set_major_locator(ticker.MaxNLocator(8, integer=True))
  style.format_scores(run, axes.yaxis)


def _draw_shares(
  run: run_lib.Run, axes: axes_lib.Axes, lines, examples
) -> None:
  """Draws the share of clients at or below each score."""
  texts = []
  for name, values, color, linestyle in lines:
    axes.ecdf(values, color=color, linewidth=2, linestyle=linestyle)
    worst = summaries.summarize(
      values, examples, higher_is_better=run.higher_is_better
    ).worst_decile
    axes.plot(
      [worst],
      [0 if run.higher_is_better else 1],
      marker='^' if run.higher_is_better else 'v',
      color=color,
      markersize=9,
      clip_on=False,
      zorder=4,
    )
    texts.append(f'{name}: worst decile {style.score_text(run, worst)}')
  for row, (text, line) in enumerate(zip(texts, lines, strict=True)):
    axes.text(
      0.03 if run.higher_is_better else 0.97,
      (0.93 if run.higher_is_better else 0.22) - 0.08 * row,
      text,
      transform=axes.transAxes,
      ha='left' if run.higher_is_better else 'right',
      color=line[2],
      fontweight='bold',
    )
  axes.set_title('share of clients at or below a score')
  axes.set_ylabel('clients (%)')
  axes.set_xlabel('test ' + style.score_label(run))
  axes.set_ylim(0, 1)
  style.format_percent(axes.yaxis)
  style.format_scores(run, axes.xaxis)


PICTURE = picture.Picture(
  name='clients.png',
  caption=(
    "Each client's personalized model beside its cluster's model, on "
    "the client's own test examples. The worst decile is the mean of "
    'the worst 10 % of the clients; triangles mark it.'
  ),
  draw=draw,
)
