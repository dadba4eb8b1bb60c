"""Picture: selection counts, upload scores and attackers by role (CMFL)."""

import numpy as np
from matplotlib import figure as figure_lib
from matplotlib import ticker

from tff_algos.reports.plotting import picture, style
from tff_algos.reports.run import committee_history
from tff_algos.reports.run import run as run_lib

_HONEST, _FALSE = style.colors(2)
_MAX_BINS = 30


def draw(run: run_lib.Run) -> figure_lib.Figure | None:
  """Draws counts of clients, scores, and attackers round by round.

  Returns:
    None without an audit log of committees.
  """
  history = committee_history.read(run)
  if history is None:
    return None
  has_attackers = bool(history.is_attacker.any())
  figure = style.new_figure(3.9, 'Committee decisions')
  panels = figure.subplots(1, 3 if has_attackers else 2)
  _draw_counts(panels[0], history)
  _draw_scores(panels[1], history)
  if has_attackers:
    _draw_attackers(panels[2], history)
  return figure


def _draw_counts(axes, history: committee_history.CommitteeHistory) -> None:
  counts = history.num_averaged
  step = max(1, -(-(int(counts.max()) + 1) // _MAX_BINS))
  bins = np.arange(0, counts.max() + step + 1, step) - 0.5
  _draw_parts(axes, counts, history.is_attacker, bins, 'clients')
  never = int((counts == 0).sum())
  axes.set_title(f'never averaged: {never:,} of {len(counts):,}')
  axes.set_xlabel('rounds in which a client was averaged')
  axes.set_ylabel('clients')
  for axis in (axes.xaxis, axes.yaxis):
    axis.set_major_locator(ticker.MaxNLocator(6, integer=True))


def _draw_scores(axes, history: committee_history.CommitteeHistory) -> None:
  is_apart = history.distances > 0
  scores = 1 / history.distances[is_apart]
  title = 'committee scores'
  equal = int((~is_apart).sum())
  axes.set_title(f'{title} ({equal:,} at distance 0)' if equal else title)
  if len(scores):
    low, high = scores.min() / 1.01, scores.max() * 1.01
    bins = np.geomspace(low, high, _MAX_BINS + 1)
    _draw_parts(axes, scores, history.is_false[is_apart], bins, 'uploads')
    axes.set_xscale('log')
    # Powers would be written as formulas, which the style does not parse.
    axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(ticker.StrMethodFormatter('{x:g}'))
    axes.xaxis.set_minor_locator(ticker.NullLocator())
  axes.set_xlabel('1 / mean (squared) distance to the committee')
  axes.set_ylabel('uploads of training clients')


def _draw_parts(axes, values, is_false, bins, what: str) -> None:
  """Draws a histogram of honest clients, with attackers stacked on top."""
  axes.set_axisbelow(True)
  parts, labels = [values[~is_false]], [f'honest {what}']
  if is_false.any():
    parts.append(values[is_false])
    labels.append('attackers')
  axes.hist(
    parts,
    bins,
    rwidth=0.92,
    stacked=True,
    color=[_HONEST, _FALSE][: len(parts)],
    label=labels,
  )
  if len(parts) > 1:
    axes.set_ylim(0, 1.4 * axes.get_ylim()[1])  # Room for the legend.
    axes.legend(loc='upper left')


def _draw_attackers(axes, history: committee_history.CommitteeHistory) -> None:
  for index, role in enumerate(committee_history.ROLES):
    counts = history.attackers[:, index]
    axes.plot(
      history.rounds,
      counts,
      label=f'{role}: {counts.mean():.2g} per round',
      linewidth=style.line_width(index, len(committee_history.ROLES)),
      **style.line_look(index),
    )
  axes.set_title('attackers by role')
  axes.set_xlabel('round')
  axes.set_ylabel('attackers')
  top = max(1, 1.4 * history.attackers.max())
  axes.set_ylim(-0.04 * top, top)  # The axis hides no line at 0.
  for axis in (axes.xaxis, axes.yaxis):
    axis.set_major_locator(ticker.MaxNLocator(5, integer=True))
  axes.legend(loc='upper right')


PICTURE = picture.Picture(
  name='committee.png',
  caption=(
    'From the audit log. Number of rounds in which each client was averaged, '
    'of the rounds whose proposal was accepted; committee scores of all '
    'uploads, of which strategy I averages the highest and strategy II the '
    'lowest; under attack, the number of attackers in each role.'
  ),
  draw=draw,
)
