"""Picture: drift of labels, features and losses from the parent run."""

import numpy as np
from matplotlib import axes as axes_lib
from matplotlib import figure as figure_lib
from matplotlib import ticker

from tff_algos.evaluation import drift
from tff_algos.reports.plotting import picture, style
from tff_algos.reports.plotting import table as table_lib
from tff_algos.reports.run import drift_report
from tff_algos.reports.run import run as run_lib

# Column, name and colour.
_SHIFTS = (
  ('label_shift', 'labels', '#0072b2'),
  ('feature_shift', 'features', '#c98a00'),
)
# With more sources than this the bars cannot be read.
_MAX_SOURCES = 12
_CHANGED, _NEW = '#d55e00', '#009e73'


def draw(run: run_lib.Run) -> figure_lib.Figure | None:
  """Draws shifts by source and over clients, and the clients' losses.

  Returns:
    None without a drift report.
  """
  report = run.drift
  if report is None:
    return None
  content = report.content
  figure = style.new_figure(
    3.8, f'Drift of the data from the parent run {content["parent"]}'
  )
  panels = figure.subplots(1, 3 if _has_losses(report) else 2)
  _draw_sources(panels[0], report)
  _draw_clients(panels[1], report.clients)
  if _has_losses(report):
    _draw_losses(panels[2], run, report)
  return figure


def _has_losses(report: drift_report.DriftReport) -> bool:
  return 'loss' in report.clients and 'parent_loss' in report.clients


def _model_name(run: run_lib.Run) -> str:
  return 'global model' if run.num_clusters == 1 else 'best cluster model'


def _draw_sources(
  axes: axes_lib.Axes, report: drift_report.DriftReport
) -> None:
  """Draws bars of the shifts of all examples and of each source."""
  sources = report.content['sources']
  if not 1 < len(sources) <= _MAX_SOURCES:
    sources = {}
  bars = {'all examples': report.content['measures'], **sources}
  places = np.arange(len(bars))
  for offset, (shift, name, color) in zip((-0.2, 0.2), _SHIFTS, strict=True):
    if bars['all examples'].get(shift) is None:
      continue
    values = [one.get(shift) or 0.0 for one in bars.values()]
    axes.barh(places + offset, values, 0.36, color=color, label=name)
  axes.set_yticks(places, [*bars])
  axes.set_ylim(len(bars) - 0.4, -0.6)
  axes.set_xlim(left=0)
  axes.grid(visible=False, axis='y')
  axes.set_title('shift by source')
  axes.set_xlabel('shift')
  axes.legend(loc='upper center', bbox_to_anchor=(0.5, -0.2), ncols=2)


def _draw_clients(axes: axes_lib.Axes, clients: table_lib.Table) -> None:
  """Draws the share of the clients that stayed at or below each shift."""
  for shift, name, color in _SHIFTS:
    values = clients.numbers(shift) if shift in clients else np.array([])
    values = values[np.isfinite(values)]
    if values.size:
      median = np.median(values)
      axes.ecdf(
        values, color=color, linewidth=2, label=f'{name}: median {median:.3f}'
      )
  axes.set_ylim(0, 1)
  axes.set_xlim(left=0)
  axes.set_title('clients that stayed')
  axes.set_xlabel('shift')
  axes.set_ylabel('clients at or below the shift (%)')
  style.format_percent(axes.yaxis)
  if axes.lines:
    axes.legend(loc='upper center', bbox_to_anchor=(0.5, -0.2))


def _draw_losses(
  axes: axes_lib.Axes, run: run_lib.Run, report: drift_report.DriftReport
) -> None:
  """Draws each client's loss on the parent's data and on the new data."""
  clients = report.clients
  before, now = clients.numbers('parent_loss'), clients.numbers('loss')
  is_new = np.array(clients.texts('status')) == drift.NEW
  has_changed = clients.numbers('cluster_id') != clients.numbers(
    'parent_cluster_id'
  )
  both = np.isfinite(before) & np.isfinite(now)
  finite = np.concatenate([before, now])
  finite = finite[np.isfinite(finite)]
  if finite.min() > 0 and finite.max() > 20 * finite.min():
    axes.set(xscale='log', yscale='log')
    for axis in (axes.xaxis, axes.yaxis):
      axis.set_major_formatter(ticker.StrMethodFormatter('{x:g}'))
  margin = 1.15
  ends = finite.min() / margin, finite.max() * margin
  axes.plot(ends, ends, color=style.FAINT, linewidth=1, zorder=1)
  groups = [
    (both & ~has_changed, 'same cluster', style.MUTED),
    (both & has_changed, 'another cluster', _CHANGED),
  ]
  if run.num_clusters == 1:
    groups = [(both, drift.STAYED, style.MUTED)]
  for rows, name, color in groups:
    axes.scatter(
      before[rows],
      now[rows],
      s=16,
      color=color,
      zorder=2,
      label=f'{name}: {rows.sum()}',
    )
  rows = is_new & np.isfinite(now)
  axes.scatter(
    np.full(rows.sum(), ends[0]),
    now[rows],
    s=26,
    marker='>',
    color=_NEW,
    clip_on=False,
    zorder=3,
    label=f'new: {rows.sum()}',
  )
  far_loss = report.content['far_loss']
  axes.axhline(far_loss, color=style.INK, linewidth=1, linestyle=':')
  axes.set_xlim(ends)
  axes.set_ylim(ends)
  axes.set_title(f'loss of the {_model_name(run)}')
  axes.set_xlabel("on the parent's data")
  axes.set_ylabel('on the new data')
  axes.legend(
    loc='upper center', bbox_to_anchor=(0.5, -0.2), ncols=2, columnspacing=1
  )


def _caption(run: run_lib.Run) -> str:
  caption = (
    "Drift of the dataset from the parent run's. Shift of labels: total "
    'variation of the shares of classes, or distance of the means of numbers; '
    'of features: distance of their means; both distances in standard '
    'deviations.'
  )
  if run.drift is not None and _has_losses(run.drift):
    caption += (
      f" Losses are those of each client's {_model_name(run)} of the parent, "
      'on training examples; new clients above the dotted line count as far.'
    )
  return f'{caption} Values of all clients are in drift_clients.csv.'


PICTURE = picture.Picture(name='drift.png', caption=_caption, draw=draw)
