"""Mutation check: do the tests near a line fail when the line is broken?

    python -m tests.mutations [room ...] [--jobs N]

Packages that are slow to import are imported once, here; every run of pytest
is a fork of this process, in a copy of the project with one mutation applied.
A mutation is killed if a test fails or the time is up. `lists.py` describes the
lists, `tests/mutations/<room>.toml`.

The score of a room is the share of killed mutations. Exit status 1: a score is
below 95 %; a mutation is broken; the tests fail without a mutation.
"""

import argparse
import gc
import importlib
import logging
import os
import pathlib
import signal
import sys
import tempfile
import warnings
from collections.abc import Sequence

from tests.mutations import lists, runs, supervision

_GOAL = 0.95
_SLOW_TO_IMPORT = (
  *('apache_beam', 'grpc', 'hypothesis', 'matplotlib.pyplot', 'pytest'),
  *('sklearn.cluster', 'sklearn.datasets', 'starlette.testclient'),
  *('tensorflow', 'tensorflow_federated'),
)


def _parse_arguments() -> argparse.Namespace:
  parser = argparse.ArgumentParser(
    prog='python -m tests.mutations', description=__doc__.partition('\n')[0]
  )
  parser.add_argument('rooms', nargs='*', help='default: all')
  parser.add_argument('--jobs', type=int, default=os.cpu_count())
  parser.add_argument(
    '--patience',
    type=float,
    default=60,
    help='limit of a run in seconds, besides three times what the tests of '
    'the room take without a mutation',
  )
  parser.add_argument(
    '--root', type=pathlib.Path, default=pathlib.Path(__file__).parents[2]
  )
  parser.add_argument('--preload', nargs='*', default=_SLOW_TO_IMPORT)
  return parser.parse_args()


def _read_lists(
  root: pathlib.Path, rooms: Sequence[str]
) -> dict[str, list[lists.Mutation]]:
  by_room = {room: lists.read(root, room) for room in rooms}
  for mutations in by_room.values():
    for mutation in mutations:
      mutation.apply((root / mutation.file).read_text())
  return by_room


def _preload(packages: Sequence[str]) -> None:
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
  logging.disable()
  with warnings.catch_warnings():
    warnings.simplefilter('ignore')
    for package in packages:
      importlib.import_module(package)
  # A package that warns gives the root logger a handler.
  logging.root.handlers.clear()
  logging.disable(logging.NOTSET)
  gc.freeze()


def _measure(
  by_room: dict[str, list[lists.Mutation]],
  trees: Sequence[pathlib.Path],
  patience: float,
) -> list[runs.Run]:
  """Returns the finished runs: those without a mutation, then the others.

  Raises:
    ValueError: Tests fail without a mutation.
  """
  unmutated = []
  for room, mutations in by_room.items():
    tests = {test: None for one in mutations for test in one.tests}
    unmutated.append(runs.Run(room, [*tests], 10 * patience))
  for run in runs.finished(unmutated, trees):
    if run.status:
      raise ValueError(f'{run.room}: fails unmutated:\n{run.output}')
    print(f'{run.seconds:6.1f} s  {run.room} passes unmutated', flush=True)
  mutated = [
    runs.Run(run.room, one.tests, patience + 3 * run.seconds, one)
    for run in unmutated
    for one in by_room[run.room]
  ]
  for run in runs.finished(mutated, trees):
    note = ' by the time limit' if run.status == supervision.TIMED_OUT else ''
    print(f'{run.seconds:6.1f} s  {run.mutation.title}: {run.verdict}{note}')
    sys.stdout.flush()
  return unmutated + mutated


def _table(finished: Sequence[runs.Run]) -> dict[str, dict[str, float]]:
  """Returns room -> its row."""
  table = {}
  for room in dict.fromkeys(run.room for run in finished):
    of_room = [run for run in finished if run.room == room]
    verdicts = [run.verdict for run in of_room if run.mutation is not None]
    killed = verdicts.count('killed')
    table[room] = {
      'mutations': len(verdicts),
      'killed': killed,
      'score': killed / len(verdicts),
      'seconds': round(sum(run.seconds for run in of_room), 1),
    }
  return table


def _report(finished: Sequence[runs.Run]) -> int:
  """Prints the table and what is wrong; returns the exit status."""
  table = _table(finished)
  print(f'\n{"room":24}mutations  killed  score  seconds')
  for room, row in table.items():
    print(
      f'{room:24}{row["mutations"]:9}{row["killed"]:8}{row["score"]:7.0%}'
      f'{row["seconds"]:9.0f}'
    )
  is_good = all(row['score'] >= _GOAL for row in table.values())
  for run in finished:
    if run.mutation is None or run.verdict == 'killed':
      continue
    print(f'{run.verdict}: {run.mutation.title} ({run.mutation.file})')
    if run.verdict == 'broken':
      print(f'pytest exits with {run.status}:\n{run.output}')
    is_good &= run.verdict == 'survived'
  return int(not is_good)


def main() -> int:
  """Returns the exit status."""
  arguments = _parse_arguments()
  signal.signal(signal.SIGTERM, lambda *unused_arguments: sys.exit(143))
  root = arguments.root.resolve()
  try:
    by_room = _read_lists(root, arguments.rooms or lists.rooms(root))
    _preload(arguments.preload)
    with tempfile.TemporaryDirectory(prefix='mutations_') as folder:
      trees = [pathlib.Path(folder, str(i)) for i in range(arguments.jobs)]
      for tree in trees:
        runs.copy_tree(root, tree)
      finished = _measure(by_room, trees, arguments.patience)
  except ValueError as error:
    print(f'error: {error}', file=sys.stderr)
    return 1
  except KeyboardInterrupt:
    return 130
  return _report(finished)


if __name__ == '__main__':
  exit_status = main()
  sys.stdout.flush()
  sys.stderr.flush()
  # TFF's default context complains when the interpreter goes.
  os._exit(exit_status)
