"""Picture: simulated duration of a run without a server."""

from collections.abc import Mapping

import numpy as np
from matplotlib import figure as figure_lib

from tff_algos.reports.plotting import picture, style
from tff_algos.reports.run import run as run_lib
from tff_algos.reports.run import run_clock

_COMMUNICATION, _COMPUTATION = style.colors(2)
# Labels with line breaks.
_WORDS = {run_clock.BRAIN_TORRENT: 'Brain-\nTorrent'}
# A system's label -> seconds of communication and computation of all rounds.
Times = Mapping[str, np.ndarray]


def draw(run: run_lib.Run) -> figure_lib.Figure | None:
  """Draws the virtual clock of a run's rounds.

  The clock of a committee is compared with other systems of the same clients
  and model, which were not run: they are re-timed by formulas. Peer-to-peer
  runs are timed by the numbers that each client received.

  Returns:
    None if the run had a server.
  """
  if run_clock.kind(run) in (None, run_clock.SERVER):
    return None
  rates = run.clock.rates
  systems = [_time_all(run, rate) for rate in rates]
  if not all(one.sum() for one in systems[0].values()):
    return None
  figure = style.new_figure(
    3.9, f'Simulated duration of {run.num_rounds:,} rounds'
  )
  panels = style.new_panels(figure, len(rates), len(rates))
  for axes, rate, times in zip(panels, rates, systems, strict=True):
    _draw_rate(axes, times)
    axes.set_title(run_clock.rate_text(rate))
  panels[0].set_ylabel('seconds')
  handles, labels = panels[0].get_legend_handles_labels()
  figure.legend(handles, labels, loc='outside lower left', ncols=2)
  return figure


def _time_all(run, rate) -> Times:
  """Returns the total time of each system, this run first."""
  name = 'CMFL,\nthis run'
  if run_clock.kind(run) == run_clock.PEERS:
    name = 'this run'
  rounds = {name: run_clock.own(run, rate)}
  for other, times in run_clock.retimed(run, rate).items():
    rounds[f'{_WORDS.get(other, other)},\nre-timed'] = times
  return {label: times.sum(axis=0) for label, times in rounds.items()}  # pyright: ignore[reportOptionalMemberAccess]


def _draw_rate(axes, systems: Times) -> None:
  """Draws one bar per system: communication, with computation on top."""
  names, below = [*systems], np.zeros(len(systems))
  times = np.array(list(systems.values()))
  axes.set_axisbelow(True)
  for part, color, label in (
    (times[:, 0], _COMMUNICATION, 'communication'),
    (times[:, 1], _COMPUTATION, 'computation'),
  ):
    axes.bar(names, part, 0.7, below, color=color, label=label)
    below = below + part
  for place, total in enumerate(below):
    axes.annotate(
      f'{total:.3g}', (place, total), ha='center', va='bottom', fontsize=8.5
    )
  axes.tick_params(axis='x', labelsize=8)
  axes.set_ylim(0, 1.12 * below.max())


PICTURE = picture.Picture(
  name='time.png',
  caption=(
    'Simulated duration of the rounds by the cost model of CMFL (TPDS 2022, '
    'section 6.5), with sequential transfers and the computation times of its '
    "authors' code; each panel has its own scale. Re-timed systems have the "
    'same clients and model; their durations are computed, they were not run.'
  ),
  draw=draw,
)
