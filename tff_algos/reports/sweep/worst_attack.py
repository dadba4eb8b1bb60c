"""Worst-case attack: the worst score of each cell of a sweep over attacks.

An aggregation rule is only as robust as under its worst attack, since an
adversary selects the attack.
"""

from typing import NamedTuple

from tff_algos.evaluation import summaries
from tff_algos.reports.sweep import plan, sweep_table
from tff_algos.reports.sweep import sweep as sweep_lib

KEY = 'attack.name'
# Of the honest clients: all clients without an attack.
_METRICS = (
  'attack/honest/test/personalized',
  'participating/test/personalized',
)
_DIVERGED = 'diverged'


class Row(NamedTuple):
  """One combination of values of all axes but the attack.

  Attributes:
    label: Label of the combination.
    scores: Mean and deviation over seeds under each attack; missing ones are
      `sweep_table.ABSENT`, and one with seeds that are NaN or infinite, at
      least for a client, says how many diverged.
    worst: Worst score; the attack under which most seeds diverged, if any did.
    attack: Attack with the worst score.
  """

  label: str
  scores: tuple[str, ...]
  worst: str
  attack: str


class _Scores(NamedTuple):
  """Scores of a cell.

  Attributes:
    spread: Mean and deviation over the seeds with finite scores.
    num_seeds: Number of seeds, with those that diverged.
  """

  spread: sweep_lib.Spread
  num_seeds: int

  @property
  def num_diverged(self) -> int:
    return self.num_seeds - self.spread.num


class Table(NamedTuple):
  """Scores by attack.

  Attributes:
    attacks: Names of the attacks, in the order of the sweep.
    rows: Rows with at least one score.
  """

  attacks: tuple[str, ...]
  rows: tuple[Row, ...]


def table(sweep: sweep_lib.Sweep) -> Table | None:
  """Returns test scores of honest clients' personalized models by attack.

  After the last round, means over seeds. None if the runs have the same
  attack, or none has a finite score, as without test examples.
  """
  keys = [axis.key for axis in sweep.plan.axes]
  if KEY not in keys:
    return None
  position = keys.index(KEY)
  attacks = tuple(map(plan.value_text, sweep.plan.axes[position].values))
  groups = {
    label: {
      plan.value_text(cell.values[position]): scores
      for cell in cells
      if (scores := _scores(sweep, cell)).num_seeds
    }
    for label, cells in sweep.groups(position).items()
  }
  if not any(
    scores.spread.num for group in groups.values() for scores in group.values()
  ):
    return None
  rows = tuple(
    _row(sweep, label, attacks, group)
    for label, group in groups.items()
    if group
  )
  return Table(attacks, rows)


def sentences(sweep: sweep_lib.Sweep) -> list[str]:
  """Returns a sentence with the worst case of each row of the table."""
  found = table(sweep)
  unit = ' %' if sweep.example.higher_is_better else ''
  return [
    f'{row.label or "all runs"}: {row.worst}'
    f'{"" if row.worst.startswith(_DIVERGED) else unit} for honest clients '
    f'under their worst attack, {row.attack}.'
    for row in (found.rows if found else ())
  ]


def _scores(sweep, cell) -> _Scores:
  names = [f'{metric}/{sweep.example.score_name}' for metric in _METRICS]
  for name in names:
    means = [
      summaries.whole(point, name) for point in cell.last if name in point
    ]
    if means:
      return _Scores(sweep_lib.spread_of(means), len(means))
  return _Scores(sweep_lib.spread_of(()), 0)


def _row(sweep, label, attacks, group) -> Row:
  ahead = 1 if sweep.example.higher_is_better else -1
  worst = min(
    group,
    key=lambda attack: (
      -group[attack].num_diverged,
      ahead * group[attack].spread.mean,
    ),
  )
  return Row(
    label,
    tuple(
      _text(sweep, group[attack]) if attack in group else sweep_table.ABSENT
      for attack in attacks
    ),
    _text(sweep, group[worst]),
    worst,
  )


def _text(sweep, scores: _Scores) -> str:
  if scores.num_diverged:
    seeds = plan.seeds_text(scores.num_seeds)
    return f'{_DIVERGED} ({scores.num_diverged} of {seeds})'
  return sweep_table.score_text(sweep, scores.spread)
