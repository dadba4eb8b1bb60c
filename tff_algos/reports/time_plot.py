"""Picture: how long the rounds of a run without a server would take."""

from collections.abc import Mapping

import numpy as np
from matplotlib import figure as figure_lib

from tff_algos.metrics import round_time
from tff_algos.reports import run as run_lib
from tff_algos.reports import style

_SIZES = ('train/num_members', 'train/num_training', 'cost/downlink_floats')
# What clients that pull from each other leave, and nobody else.
_PULLED = (
  'train/consensus_distance',
  'train/num_messages',
  'cost/downlink_floats',
  'cost/local_solves',
)
_COMMUNICATION, _COMPUTATION = style.colors(2)
# A system's label -> what all rounds take.
Times = Mapping[str, round_time.RoundTime]


def draw(run: run_lib.Run) -> figure_lib.Figure | None:
  """Draws the virtual clock of a run's rounds.

  Beside a committee's stand those of other systems, of the same clients and the
  same model, which were not run: they are re-timed by formulas. A run of clients
  that pull from each other is timed by what each received.

  Returns:
    None if the run had a server.
  """
  systems = [_time_all(run, rate) for rate in round_time.RATES]
  if not all(systems):
    return None
  figure = style.new_figure(
    11, 3.9, f'Virtual clock of {run.last_round:,} rounds'
  )
  panels = figure.subplots(1, len(round_time.RATES))
  for axes, rate, times in zip(panels, round_time.RATES, systems, strict=True):
    _draw_rate(axes, times)
    axes.set_title(f'{rate / 1e6:,.0f} million floats a second')
  panels[0].set_ylabel('seconds')
  panels[-1].legend(loc='upper left', bbox_to_anchor=(1, 1))
  return figure


def _time_all(run, rate) -> Times:
  """Returns what the rounds take; nothing for a run with a server."""
  if all(name in run.rounds for name in _SIZES):
    return _time_committee(run, rate)
  if all(name in run.rounds for name in _PULLED):
    return {'this run': _time_pulls(run, rate)}
  return {}


def _time_committee(run, rate) -> Times:
  members, training, down = (
    np.nansum(run.rounds.numbers(name)) / max(run.last_round, 1)
    for name in _SIZES
  )
  if not (members and training and down):
    return {}
  transfer = round_time.transfer_seconds(down / (members + training), rate)
  systems = {
    'CMFL,\nthis run': round_time.cmfl(transfer, members, training),
    'FedAvg,\nre-timed': round_time.fed_avg(transfer),
    'Brain-\nTorrent,\nre-timed': round_time.brain_torrent(transfer, training),
    'Gossip,\nre-timed': round_time.gossip(transfer, training),
  }
  return {name: one.times(run.last_round) for name, one in systems.items()}


def _time_pulls(run, rate) -> round_time.RoundTime:
  """Adds up the rounds; who trains in one receives, all at the same time."""
  received, solves = (
    run.rounds.numbers(name)
    for name in ('cost/downlink_floats', 'cost/local_solves')
  )
  is_round = solves > 0
  rounds = [
    round_time.pulling(round_time.transfer_seconds(floats, rate), 1)
    for floats in received[is_round] / solves[is_round]
  ]
  return round_time.RoundTime(*np.sum(rounds, axis=0))


def _draw_rate(axes, systems: Times) -> None:
  """Draws a bar a system: communication, and computation on top of it."""
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
  axes.set_ylim(0, 1.12 * below.max())
