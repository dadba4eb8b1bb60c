"""Unpacks the figures of packed cases: JSON files to a Markdown table.

python -m benchmarks.accelerator.report mlp1000.json
"""

import argparse
import json
import pathlib
from collections.abc import Sequence
from typing import Any

# Time of the runtime's best form over that of the best round by hand.
LIMIT = 1.1
_HEADINGS = (
  *('case', 'device', 'form', 's/round', 'ratio', 'compile s', 'peak MiB'),
  *('GFLOP/s', 'share of peak', 'difference', 'to the CPU'),
)


def table(measured: Sequence[dict[str, Any]]) -> str:
  """Returns a table, a line a form.

  The ratio is to the best round by hand. The share is of the data sheet's peak,
  or, with a star, of a large product of matrices on the same device.

  Args:
    measured: Of `measure.measure`.
  """
  lines = [_HEADINGS, ('---',) * len(_HEADINGS)]
  for one in measured:
    best = min(row['seconds'] for row in one['rows'] if _is_by_hand(row))
    ours = min(row['seconds'] for row in one['rows'] if not _is_by_hand(row))
    lines += [_cells(one, row, best, ours) for row in one['rows']]
  return '\n'.join('| ' + ' | '.join(line) + ' |' for line in lines)


def _is_by_hand(row: dict[str, Any]) -> bool:
  return row['form'].startswith('by hand')


def _cells(
  measured: dict[str, Any], row: dict[str, Any], best: float, ours: float
) -> tuple[str, ...]:
  ratio = f'{row["seconds"] / best:.2f}'
  if row['seconds'] == ours:
    missed = ', missed' if ours > LIMIT * best else ''
    ratio += f' (limit {LIMIT:g}{missed})'
  star = '*' if measured['peak_is_measured'] else ''
  memory = row['peak_bytes']
  return (
    measured['case'],
    measured['device'],
    row['form'],
    f'{row["seconds"]:.4f}',
    ratio,
    f'{row["compile_seconds"]:.1f}',
    f'{memory / 2**20:.0f}' if memory else '',
    f'{row["flops_per_second"] / 1e9:.1f}',
    f'{row["share_of_peak"]:.1%}{star}',
    *(
      f'{row[name]:.1e}' if name in row else ''
      for name in ('difference', 'difference_to_cpu')
    ),
  )


def main(arguments: Sequence[str] | None = None) -> None:
  """Runs the program."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('files', nargs='+', type=pathlib.Path)
  options = parser.parse_args(arguments)
  measured = [json.loads(path.read_text()) for path in options.files]
  for versions in sorted({json.dumps(one['versions']) for one in measured}):
    print(versions)
  print(f'\n{table(measured)}')


if __name__ == '__main__':
  main()
