"""Worst-case attack: the worst score of each cell of a sweep over attacks.

An aggregation rule is only as robust as under its worst attack, since an
adversary selects the attack.
"""

from typing import Any, NamedTuple

from tff_algos.reports.sweep import measures, plan, sweep_table
from tff_algos.reports.sweep import sweep as sweep_lib

KEY = 'attack.name'
# Of the honest clients: all clients without an attack.
_METRICS = (
  'attack/honest/test/personalized',
  'participating/test/personalized',
)


class Row(NamedTuple):
  """One combination of values of all axes but the attack.

  Attributes:
    label: Label of the combination.
    scores: Mean and deviation over seeds under each attack; missing ones are
      `sweep_table.ABSENT`.
    worst: Worst score.
    attack: Attack with the worst score.
  """

  label: str
  scores: tuple[str, ...]
  worst: str
  attack: str


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
  attack.
  """
  keys = [axis.key for axis in sweep.plan.axes]
  if KEY not in keys:
    return None
  position = keys.index(KEY)
  attacks = tuple(map(plan.value_text, sweep.plan.axes[position].values))
  others = lambda row: row[:position] + row[position + 1 :]
  groups: dict[tuple[Any, ...], dict[str, sweep_lib.Spread]] = {}
  for cell in sweep.cells:
    spread = _spread(sweep, cell)
    if spread.num:
      attack = plan.value_text(cell.values[position])
      groups.setdefault(others(cell.values), {})[attack] = spread
  rows = tuple(
    _row(sweep, plan.label(others(sweep.plan.axes), values), attacks, spreads)
    for values, spreads in groups.items()
  )
  return Table(attacks, rows) if rows else None


def sentences(sweep: sweep_lib.Sweep) -> list[str]:
  """Returns a sentence with the worst case of each row of the table."""
  found = table(sweep)
  unit = ' %' if sweep.example.higher_is_better else ''
  return [
    f'{row.label or "all runs"}: {row.worst}{unit} for honest clients under '
    f'their worst attack, {row.attack}.'
    for row in (found.rows if found else ())
  ]


def _spread(sweep, cell) -> sweep_lib.Spread:
  names = [f'{metric}/{sweep.example.score_name}' for metric in _METRICS]
  spreads = [sweep_lib.spread(cell.last, name) for name in names]
  return next((one for one in spreads if one.num), spreads[-1])


def _row(sweep, label, attacks, spreads) -> Row:
  measure = measures.Measure('', '')
  ahead = 1 if sweep.example.higher_is_better else -1
  worst = min(spreads, key=lambda attack: ahead * spreads[attack].mean)
  text = lambda spread: sweep_table.spread_text(sweep, measure, spread)
  return Row(
    label,
    tuple(
      text(spreads[attack]) if attack in spreads else sweep_table.ABSENT
      for attack in attacks
    ),
    text(spreads[worst]),
    worst,
  )
