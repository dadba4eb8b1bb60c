"""Rows as a table for people."""

from collections.abc import Sequence
from typing import Any

_HEADINGS = (
  'case',
  'contender',
  'algorithm',
  'clients',
  's/round',
  'min',
  'compile s',
  'peak MiB',
  'ratio',
  'to',
)


def table(rows: Sequence[dict[str, Any]]) -> str:
  """Returns a Markdown table, one line a row.

  Args:
    rows: Of `harness.run_case`.
  """
  lines = [_HEADINGS, *(_cells(row) for row in rows)]
  widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
  spelled = [
    '| ' + ' | '.join(map(str.ljust, line, widths)) + ' |' for line in lines
  ]
  rule = '|' + '|'.join('-' * (width + 2) for width in widths) + '|'
  return '\n'.join((spelled[0], rule, *spelled[1:]))


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
  return (
    row['case'],
    row['contender'],
    row['algorithm'],
    row['size'],
    f'{row["seconds_per_round"]:.4f}',
    f'{row["min_seconds"]:.4f}',
    f'{row["compile_seconds"]:.2f}',
    f'{row["peak_memory_mib"]:.0f}',
    _spell_ratio(row),
    row['ratio_to'] or '',
  )


def _spell_ratio(row: dict[str, Any]) -> str:
  if row['ratio'] is None:
    return ''
  spelled = f'{row["ratio"]:.2f}'
  if row['limit'] is None:
    return spelled
  verdict = '' if row['ratio'] <= row['limit'] else ', missed'
  return f'{spelled} (limit {row["limit"]:g}{verdict})'
