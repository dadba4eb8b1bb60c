"""Picture: how long the rounds of a committee and of others would take."""

import numpy as np
from matplotlib import figure as figure_lib

from tff_algos.metrics import round_time
from tff_algos.reports import run as run_lib
from tff_algos.reports import style

_SIZES = ('train/num_members', 'train/num_training', 'cost/downlink_floats')
_COMMUNICATION, _COMPUTATION = style.colors(2)


def draw(run: run_lib.Run) -> figure_lib.Figure | None:
  """Draws the virtual clock of a run's rounds beside those of other systems.

  The others are of the same clients and the same model, and were not run.

  Returns:
    None if the run had no committee.
  """
  if not all(name in run.rounds for name in _SIZES):
    return None
  members, training, down = (
    np.nansum(run.rounds.numbers(name)) / max(run.last_round, 1)
    for name in _SIZES
  )
  if not (members and training and down):
    return None
  num_floats = down / (members + training)
  figure = style.new_figure(
    11, 3.9, f'Virtual clock of {run.last_round:,} rounds'
  )
  panels = figure.subplots(1, len(round_time.RATES))
  for axes, rate in zip(panels, round_time.RATES, strict=True):
    transfer = round_time.transfer_seconds(num_floats, rate)
    _draw_rate(axes, run.last_round, transfer, members, training)
    axes.set_title(f'{rate / 1e6:,.0f} million floats a second')
  panels[0].set_ylabel('seconds')
  panels[-1].legend(loc='upper left', bbox_to_anchor=(1, 1))
  return figure


def _draw_rate(axes, num_rounds, transfer, members, training) -> None:
  """Draws a bar a system: communication, and computation on top of it."""
  systems = {
    'CMFL': round_time.cmfl(transfer, members, training),
    'FedAvg': round_time.fed_avg(transfer),
    'Brain-\nTorrent': round_time.brain_torrent(transfer, training),
    'Gossip': round_time.gossip(transfer, training),
  }
  names, below = [*systems], np.zeros(len(systems))
  times = np.array([one.times(num_rounds) for one in systems.values()])
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
  axes.set_ylim(0, 1.12 * below.max())
