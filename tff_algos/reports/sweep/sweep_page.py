"""The page of a sweep: tables and pictures over all its runs."""

import os
import pathlib
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from matplotlib import figure as figure_lib

from tff_algos.reports.plotting import html, style
from tff_algos.reports.run.plots import time_curves_plot
from tff_algos.reports.sweep import (
  cell_memberships_plot,
  cells_plot,
  curves_plot,
  effect_plot,
  measures,
  plan,
  sweep_table,
  worst_attack,
)
from tff_algos.reports.sweep import sweep as sweep_lib

_INDEX = 'index.html'
# With more sources, matched scores are in sweep_summary.csv only.
_MAX_SOURCES = 10


class Picture(NamedTuple):
  """A picture of the page.

  Attributes:
    name: Its file name.
    draw: Returns the figure, or None if there is nothing to draw.
    caption: How to read it.
  """

  name: str
  draw: Callable[[], figure_lib.Figure | None]
  caption: str


def pictures(sweep: sweep_lib.Sweep, least_ari: float) -> list[Picture]:
  """Returns what may be drawn of a sweep."""
  effects = [
    Picture(
      f'effect_{re.sub(r"[^a-zA-Z0-9_.-]", "_", axis.name)}.png',
      lambda position=position: effect_plot.draw(sweep, position, least_ari),
      f'Each measure against {axis.key}: mean over seeds, a band of one '
      'standard deviation, and a dash for each seed. Cells that agree on all '
      'else make a line. Last panel: the share of the seeds that found the '
      "clusters, with Wilson's 95 % interval.",
    )
    for position, axis in enumerate(sweep.plan.axes)
    if axis.is_numeric
  ]
  return [
    *effects,
    Picture(
      'cells.png',
      lambda: cells_plot.draw(sweep, least_ari),
      'Dot and bar: mean and standard deviation over seeds; small ticks: the '
      'seeds. Last panel: the share of the seeds that found the clusters, with '
      "Wilson's 95 % interval.",
    ),
    Picture(
      'memberships.png',
      lambda: cell_memberships_plot.draw(sweep),
      'A row a client, a column a cluster, as the first seed of each cell has '
      'them after its last round. Where two sources share a dark column, they '
      'share a cluster.',
    ),
    *_curves(sweep),
  ]


def _curves(sweep: sweep_lib.Sweep) -> list[Picture]:
  """Returns those of rounds, and of what rounds take."""
  return [
    Picture(
      'communication.png',
      lambda: curves_plot.draw_communication(sweep),
      'What the communication bought: numbers sent from the server to clients '
      'and back, summed over rounds. Both are means over seeds; the band is '
      "the score's standard deviation. Dotted: the target, if there is one.",
    ),
    Picture(
      'time_curves.png',
      lambda: time_curves_plot.draw_sweep(sweep),
      'The score over the seconds of a virtual clock: the cost model of CMFL '
      '(TPDS 2022, section 6.5), one transfer after the other, seconds of '
      "computation as in its authors' code. Re-timed: the scores of one cell "
      "after the same rounds, but rounds as long as another system's by "
      "formula, as in those authors' figures; that system was not run.",
    ),
    Picture(
      'rounds.png',
      lambda: curves_plot.draw_rounds(sweep),
      'The same scores round by round, and the mean loss of local training on '
      'its way. Dotted: the round from which on one cell has the lowest loss.',
    ),
    Picture(
      'variance.png',
      lambda: curves_plot.draw_variance(sweep),
      'Written by binaries.factors: how much the kernels differ that the next '
      'round may make, over cohorts and orders of examples; right, as a share '
      'of the squared norm of their mean.',
    ),
  ]


def write_report(
  sweep: sweep_lib.Sweep, least_ari: float, chosen: Sequence[str] = ()
) -> pathlib.Path:
  """Draws a sweep's pictures and writes its page.

  Everything is made beside its place and then moved there, the page last; a
  page that was there before is replaced.

  Args:
    sweep: The runs.
    least_ari: See `measures.found_clusters`.
    chosen: Of `choice.sentences`.

  Returns:
    `<workdir>/report/index.html`.
  """
  report = sweep.workdir / 'report'
  with tempfile.TemporaryDirectory(
    prefix='.report-', dir=sweep.workdir
  ) as temporary:
    made = pathlib.Path(temporary)
    drawn = [one for one in pictures(sweep, least_ari) if _draw(one, made)]
    page = _render(sweep, drawn, least_ari, chosen)
    (made / _INDEX).write_text(page, encoding='utf-8')
    names = [one.name for one in drawn]
    report.mkdir(exist_ok=True)
    for name in [*names, _INDEX]:
      os.replace(made / name, report / name)
  for old in report.glob('*.png'):
    if old.name not in names:
      old.unlink()
  return report / _INDEX


def _draw(picture: Picture, folder: pathlib.Path) -> bool:
  """Writes a picture; returns whether there was something to draw."""
  with style.applied():
    figure = picture.draw()
    if figure is None:
      return False
    (folder / picture.name).write_bytes(style.to_png(figure))
  return True


def _render(
  sweep: sweep_lib.Sweep,
  drawn: list[Picture],
  least_ari: float,
  chosen: Sequence[str],
) -> str:
  planned = sweep.plan
  return html.render(
    'sweep/sweep.html.jinja',
    name=planned.name,
    axes=[
      (axis.key, ', '.join(map(plan.value_text, axis.values)))
      for axis in planned.axes
    ],
    num_finished=sum(len(cell.runs) for cell in sweep.cells),
    num_planned=len(planned.runs),
    failed=[run for run in planned.runs if run.error],
    least_ari=least_ari,
    chosen=chosen,
    titles=[_title(sweep, measure) for measure in sweep.measures],
    rates=[
      sweep_table.ABSENT if rate is None else sweep_table.rate_text(rate)
      for rate in (cell.rate(least_ari) for cell in sweep.cells)
    ],
    tables=list(_tables(sweep)),
    attacked=worst_attack.table(sweep),
    matched=list(_matched(sweep)),
    pictures=drawn,
    runs=[
      (os.path.relpath(run.workdir, sweep.workdir), cell.label, seed)
      for cell in sweep.cells
      for run, seed in zip(cell.runs, cell.seeds, strict=True)
    ],
  )


def _title(sweep: sweep_lib.Sweep, measure: measures.Measure) -> str:
  """Returns a column's heading, with the unit in brackets."""
  label = measure.label(sweep.example)
  unit = '%' if '%' in label else label
  return f'{measure.title} ({unit})' if unit else measure.title


def _tables(sweep: sweep_lib.Sweep) -> Iterator[tuple]:
  """Yields (heading, rows) of each table of results."""
  yield 'After the last round', _rows(sweep, 'last')
  # Without validation examples no round is the best.
  if any(any(cell.best) for cell in sweep.cells):
    yield 'In the best round by validation', _rows(sweep, 'best')


def _rows(sweep: sweep_lib.Sweep, point: str):
  """Returns (label, number of runs, values) of each cell."""
  return [
    (
      cell.label or 'all runs',
      len(cell.runs),
      [
        sweep_table.spread_text(
          sweep, measure, sweep_lib.spread(getattr(cell, point), measure.name)
        )
        for measure in sweep.measures
      ],
    )
    for cell in sweep.cells
  ]


def _matched(sweep: sweep_lib.Sweep) -> Iterator[tuple]:
  """Yields (label, sources, rows of text) of each cell with matched scores."""
  for cell in sweep.cells:
    sources = cell.runs[0].source_names
    tables = [measures.matched_scores(run) for run in cell.runs]
    if len(sources) > _MAX_SOURCES or any(one is None for one in tables):
      continue
    score = measures.Measure('', '')
    rows = []
    for row, source in enumerate(sources):
      spreads = (
        sweep_lib.spread([{'': one[row, column]} for one in tables], score.name)  # pyright: ignore[reportOptionalSubscript]
        for column in range(len(sources))
      )
      texts = [sweep_table.spread_text(sweep, score, one) for one in spreads]
      rows.append((source, texts))
    yield cell.label or 'all runs', sources, rows
