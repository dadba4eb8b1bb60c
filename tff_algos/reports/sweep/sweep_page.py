"""Report of a sweep: tables and pictures over all runs."""

import os
import pathlib
from collections.abc import Iterator, Sequence

from tff_algos.reports.plotting import html, picture, style
from tff_algos.reports.sweep import (
  cell_memberships_plot,
  cell_time_curves_plot,
  cells_plot,
  curves_plot,
  effect_plot,
  measures,
  plan,
  search_coordinates_plot,
  search_history_plot,
  sweep_table,
  trials,
  worst_attack,
)
from tff_algos.reports.sweep import sweep as sweep_lib

# With more sources, matched scores are in sweep_summary.csv only.
_MAX_SOURCES = 10


PICTURES = (
  cells_plot.PICTURE,
  cell_memberships_plot.PICTURE,
  curves_plot.COMMUNICATION,
  cell_time_curves_plot.PICTURE,
  curves_plot.ROUNDS,
  curves_plot.VARIANCE,
)
# A search has too many cells for pictures of each.
SEARCH_PICTURES = (
  search_history_plot.PICTURE,
  search_coordinates_plot.PICTURE,
)


def write_report(
  sweep: sweep_lib.Sweep, chosen: Sequence[str] = ()
) -> pathlib.Path:
  """Draws a sweep's pictures and writes its page.

  Args:
    sweep: The runs.
    chosen: Result of `choice.sentences`.

  Returns:
    `<workdir>/report/index.html`.
  """
  pictures = SEARCH_PICTURES
  if sweep.plan.search is None:
    pictures = (*effect_plot.pictures(sweep), *PICTURES)
  drawn = picture.draw_all(pictures, sweep)
  return picture.publish(sweep.workdir, drawn, _render(sweep, drawn, chosen))


def _render(
  sweep: sweep_lib.Sweep,
  drawn: list[picture.Drawn],
  chosen: Sequence[str],
) -> str:
  planned = sweep.plan
  return html.render(
    'sweep/sweep.html.jinja',
    name=planned.name,
    axes=[
      (axis.key, ', '.join(map(plan.value_text, axis.values)))
      for axis in planned.axes
    ]
    if planned.search is None
    else [],
    search=planned.search,
    trials=trials.rows(sweep),
    num_finished=sum(len(cell.runs) for cell in sweep.cells),
    num_planned=len(planned.runs),
    failed=[run for run in planned.runs if run.error],
    least_ari=measures.LEAST_ARI,
    chosen=chosen,
    titles=[_title(sweep, measure) for measure in sweep.measures],
    rates=[
      sweep_table.ABSENT if rate is None else sweep_table.rate_text(rate)
      for rate in (cell.rate for cell in sweep.cells)
    ]
    if sweep.has_rates
    else [],
    tables=list(_tables(sweep)),
    score_label=style.score_label(sweep.example).capitalize(),
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
  # Without validation examples there is no best round.
  if any(any(cell.best) for cell in sweep.cells):
    yield 'In the best round by validation', _rows(sweep, 'best')


def _rows(sweep: sweep_lib.Sweep, point: str):
  """Returns (label, number of runs, values) of each cell."""
  rows = []
  for cell in sweep.cells:
    points = getattr(cell, point)
    texts = [
      sweep_table.spread_text(
        sweep, measure, sweep_lib.spread(points, measure.name)
      )
      + sweep_table.fewer_seeds(points, measure.name)
      for measure in sweep.measures
    ]
    rows.append((cell.label or 'all runs', len(cell.runs), texts))
  return rows


def _matched(sweep: sweep_lib.Sweep) -> Iterator[tuple]:
  """Yields (label, sources, rows of text) of each cell with matched scores.

  A cell whose runs have different sources is left out.
  """
  for cell in sweep.cells:
    sources = cell.runs[0].source_names
    tables = [
      table
      for run in cell.runs
      if (table := measures.matched_scores(run)) is not None
    ]
    is_whole = len(tables) == len(cell.runs) and all(
      run.source_names == sources for run in cell.runs
    )
    if not (is_whole and 1 < len(sources) <= _MAX_SOURCES):
      continue
    rows = []
    for row, source in enumerate(sources):
      columns = zip(*(one[row] for one in tables), strict=True)
      texts = [
        sweep_table.score_text(sweep, sweep_lib.spread_of(scores))
        for scores in columns
      ]
      rows.append((source, texts))
    yield cell.label or 'all runs', sources, rows
