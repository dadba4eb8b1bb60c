"""Measures; `make bench` calls it.

python -m benchmarks.run --cases=mlp100,lin1000 --out=bench.json
"""

import argparse
import json
import os
import pathlib
import platform
import sys
from collections.abc import Collection, Sequence

from absl import logging

from benchmarks import cases as cases_lib
from benchmarks import errors, harness, report
from benchmarks.contenders import registry


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs the program; returns its exit status."""
  return errors.exit_status(lambda: _run(_parse(arguments)))


def _run(options: argparse.Namespace) -> None:
  logging.set_verbosity(logging.INFO)
  rows: list[harness.Row] = []
  failures: list[str] = []
  try:
    for name in options.cases:
      logging.info('%s: load average %.2f', name, os.getloadavg()[0])
      try:
        rows += harness.run_case(
          cases_lib.CASES[name],
          contenders=options.contenders,
          num_rounds=options.rounds,
        )
      except errors.BenchmarkError as error:
        logging.error('%s: %s', name, error)
        failures.append(f'{name}: {error}')
      if options.out is not None and rows:
        options.out.write_text(json.dumps(rows, indent=1) + '\n')
  finally:
    if rows:
      print(f'\n{_describe_run(rows)}\n\n{report.table(rows)}')
  if failures:
    raise errors.BenchmarkError('\n'.join(failures))
  if not rows:
    raise errors.BenchmarkError(
      'none of the contenders takes part in the cases'
    )


def _describe_run(rows: Sequence[harness.Row]) -> str:
  others = max(row['cores_used_by_others'] for row in rows)
  return (
    f'{platform.machine()}, {len(os.sched_getaffinity(0))} cores; others used '
    f'up to {others:.2f} cores while we measured.'
  )


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
  parser = argparse.ArgumentParser(
    description=__doc__.splitlines()[0],
    epilog='See benchmarks/README.md for the cases and the contenders.',
  )
  parser.add_argument(
    '--cases',
    type=lambda text: names('case', text, cases_lib.CASES),
    default=cases_lib.MEASURED,
    help='names, separated by commas; all measured ones by default',
  )
  parser.add_argument(
    '--contenders',
    type=lambda text: names('contender', text, registry.CONTENDERS),
    help='names, separated by commas; all by default',
  )
  parser.add_argument(
    '--rounds', type=_at_least_one, default=5, help='timed rounds (5)'
  )
  parser.add_argument('--out', type=pathlib.Path, help='file for JSON rows')
  return parser.parse_args(arguments)


def names(kind: str, text: str, known: Collection[str]) -> tuple[str, ...]:
  """Returns the names of a list with commas.

  Raises:
    argparse.ArgumentTypeError: If one is unknown; lists those that are known.
  """
  names = tuple(text.split(','))
  for name in names:
    if name not in known:
      raise argparse.ArgumentTypeError(
        f'no {kind} is called {name!r}; there are: {", ".join(known)}'
      )
  return names


def _at_least_one(text: str) -> int:
  if not text.isdecimal() or int(text) < 1:
    raise argparse.ArgumentTypeError(f'must be an integer >= 1, got {text!r}')
  return int(text)


if __name__ == '__main__':
  sys.exit(main())
