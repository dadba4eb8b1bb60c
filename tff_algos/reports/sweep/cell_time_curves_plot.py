"""Picture: score of each cell over the virtual clock."""

from matplotlib import figure as figure_lib

from tff_algos.reports.plotting import picture, style
from tff_algos.reports.run import run_clock
from tff_algos.reports.run.plots import time_curves_plot
from tff_algos.reports.sweep import sweep as sweep_lib


def draw(sweep: sweep_lib.Sweep) -> figure_lib.Figure | None:
  """Draws the scores of all cells over the seconds of their rounds.

  If a single cell has a server, its scores are also drawn on the clocks of
  BrainTorrent and gossip, re-timed.

  Returns:
    None if a cell has no clock or no score, or if all cells have a server:
    then time is proportional to rounds.
  """
  run = sweep.example
  kinds = [{run_clock.kind(one) for one in cell.runs} for cell in sweep.cells]
  if {None} & set().union(*kinds) or all(
    one == {run_clock.SERVER} for one in kinds
  ):
    return None
  all_curves = (
    _curves(sweep, name) for name in time_curves_plot.score_names(run)
  )
  curves = next((found for found in all_curves if found is not None), None)
  if curves is None:
    return None
  is_retimed = kinds.count({run_clock.SERVER}) == 1
  clocks = [
    list(time_curves_plot.clocks(cell.runs, curve.rounds, _label(cell, curve)))
    for cell, curve in zip(sweep.cells, curves, strict=True)
  ]
  lines = [
    time_curves_plot.Line(label, seconds, curve.mean, curve.std)
    for clock, curve in zip(clocks, curves, strict=True)
    for label, seconds in (clock if is_retimed else clock[:1])
  ]
  # Cells have the same colours as in the other pictures.
  lines.sort(key=lambda line: time_curves_plot.RETIMED in line.label)
  return time_curves_plot.draw_lines(
    run, lines, f'Test {style.score_word(run)} (mean and deviation over seeds)'
  )


def _curves(sweep: sweep_lib.Sweep, name: str) -> list[sweep_lib.Curve] | None:
  """Returns a metric's curve of every cell; None if a cell lacks it."""
  curves = [
    curve for cell in sweep.cells if (curve := cell.curve(name)) is not None
  ]
  return curves if len(curves) == len(sweep.cells) else None


def _label(cell: sweep_lib.Cell, curve: sweep_lib.Curve) -> str:
  label = cell.label or 'all runs'
  if curve.diverged is None:
    return label
  return f'{label} (a seed diverged by round {curve.diverged})'


PICTURE = picture.Picture(
  name='time_curves.png',
  caption=(
    'Score over simulated time: the cost model of CMFL (TPDS 2022, section '
    '6.5), with sequential transfers and the computation times of its '
    "authors' code. Re-timed: the scores of one cell after the same rounds, "
    'with the round duration of another system by that model; that system was '
    'not run.'
  ),
  draw=draw,
)
