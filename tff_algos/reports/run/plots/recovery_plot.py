"""Picture: recovery of the ground-truth clusters over rounds."""

from matplotlib import figure as figure_lib

from tff_algos.reports.plotting import picture, style
from tff_algos.reports.run import run as run_lib

_PREFIX = 'participating/membership/'
_MEASURES = (
  ('purity', 'purity', '#009e73'),
  ('nmi', 'NMI', '#d55e00'),
  ('ari', 'ARI', '#0072b2'),
)


def draw(run: run_lib.Run) -> figure_lib.Figure | None:
  """Draws agreement with the ground-truth labels, and membership errors.

  Returns:
    None if the run has no ground truth.
  """
  agreement = [
    (name, series, color)
    for key, name, color in _MEASURES
    if (series := run.series(_PREFIX + key)) is not None
  ]
  error = run.series(_PREFIX + 'error')
  panels = [lines for lines in (agreement, error) if lines]
  if not panels:
    return None
  figure = style.new_figure(3.6, 'Recovery of the ground-truth clusters')
  grid = list(figure.subplots(1, len(panels), squeeze=False)[0])
  if agreement:
    _draw_agreement(grid.pop(0), agreement)
  if error:
    _draw_error(grid.pop(0), error)
  for axes in figure.axes:
    style.format_rounds(run, axes, 6)
  return figure


def _draw_agreement(axes, lines) -> None:
  lowest = min(series.values.min() for _, series, _ in lines)
  axes.set_ylim(min(-0.05, lowest - 0.05), 1.05)
  styles = ('-', '--', ':')
  labels = []
  for (name, series, color), linestyle in zip(lines, styles, strict=False):
    axes.plot(
      series.rounds,
      series.values,
      color=color,
      linewidth=2.2,
      linestyle=linestyle,
      marker=style.marker(series),
      markersize=3.5,
    )
    text = f'{name}: {series.values[-1]:.2f}'
    labels.append(style.EndLabel(text, series.values[-1], color, True))
  axes.set_title('main cluster vs. main source')
  axes.set_ylabel('agreement')
  style.label_ends(axes, labels)


def _draw_error(axes, series: run_lib.Series) -> None:
  axes.set_ylim(0, 1.08 * max(series.values.max(), 0.01))
  axes.plot(
    series.rounds,
    series.values,
    color=style.INK,
    linewidth=2.2,
    marker=style.marker(series),
    markersize=3.5,
  )
  axes.set_title('memberships against true shares')
  axes.set_ylabel('mean error (percentage points)')
  style.format_percent(axes.yaxis)
  value = series.values[-1]
  text = f'{100 * value:.1f} points'
  style.label_ends(axes, [style.EndLabel(text, value, style.INK, True)])


PICTURE = picture.Picture(
  name='recovery.png',
  caption=(
    'Agreement of the cluster of largest membership with the main source of '
    'each client: ARI (adjusted Rand index; about 0 for a random partition), '
    'NMI (normalized mutual information) and purity; 1 for equal partitions. '
    'Error: mean absolute difference between memberships and true shares.'
  ),
  draw=draw,
)
