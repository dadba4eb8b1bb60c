"""Runs a case: the same weights first, then rounds in turns.

Every contender lives in a process of its own, and only one computes at a time:
round 1 of each (which compiles), round 2 of each, comparison of the weights,
then one timed round of each in turn, again and again, so that whatever else
the machine does hits all alike.
"""

import contextlib
import pathlib
import statistics
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import psutil
from absl import logging

from benchmarks import cases as cases_lib
from benchmarks import errors, preparation, process
from benchmarks import workload as workload_lib
from benchmarks.contenders import registry

# Largest difference between two contenders' weights after two rounds, as a
# share of the largest change that the reference made to any weight. Orders of
# summation differ, and a ReLU or a pooling near its kink may fall to the other
# side; in the CNN with few clients one such fall moves the result by some 1e-2
# (README.md). So the CNN's comparison finds gross errors only.
_TOLERANCES = {'linear': 1e-4, 'mlp': 1e-3, 'cnn': 5e-2, 'lenet': 5e-2}
_UNTIMED_ROUNDS = 2
# For what a contender still tidies up after its answer.
_PAUSE_SECONDS = 0.1

Row = dict[str, Any]


def run_case(
  case: cases_lib.Case,
  *,
  contenders: Collection[str] | None = None,
  num_rounds: int = 5,
) -> list[Row]:
  """Returns a row for each entry of a case.

  Args:
    case: What to run.
    contenders: Those that take part; None for all.
    num_rounds: Timed rounds, >= 1.

  Raises:
    BenchmarkError: If a contender fails, or its weights are others.
  """
  entries = [
    entry
    for entry in case.entries
    if (contenders is None or entry.contender in contenders)
    and _is_installed(entry.contender)
  ]
  with contextlib.ExitStack() as stack:
    folder = pathlib.Path(
      stack.enter_context(tempfile.TemporaryDirectory(prefix='benchmark-'))
    )
    inputs = _prepare(entries, folder, _UNTIMED_ROUNDS + num_rounds)
    runners = [
      (entry, form)
      for entry in entries
      for form in _choose_forms(entry, inputs[entry.workload])
    ]
    started = [
      stack.enter_context(_start(entry, inputs[entry.workload], form))
      for entry, form in runners
    ]
    for running in started:
      running.answer()
    compile_seconds = [_compile(running) for running in started]
    for running in started:
      running.ask('round', round_num=_UNTIMED_ROUNDS)
    differences = _compare(runners, started, inputs)
    samples, others = _time(started, num_rounds)
    rows = [
      {
        'case': case.name,
        'contender': entry.contender,
        'algorithm': entry.workload.method,
        'num_clients': entry.workload.num_clients,
        'size': entry.workload.size,
        'seconds_per_round': statistics.median(samples[i]),
        'min_seconds': min(samples[i]),
        'samples': samples[i],
        'compile_seconds': compile_seconds[i],
        'peak_memory_mib': started[i].peak_memory_mib(),
        'form': form,
        'difference': differences[i],
        'cores_used_by_others': others,
      }
      for i, (entry, form) in enumerate(runners)
    ]
  fastest = [_fastest(entry, runners, rows) for entry in entries]
  _add_ratios(case, entries, fastest)
  return fastest


def tolerance(workload: workload_lib.Workload) -> float:
  """Returns how far results may be apart; counts of batches not at all."""
  if workload.algorithm == workload_lib.BATCHING:
    return 0.0
  return _TOLERANCES[workload.model]


def _is_installed(name: str) -> bool:
  python = registry.CONTENDERS[name].python
  if pathlib.Path(python).exists():
    return True
  logging.warning(
    '%s is left out: there is no %s; `make bench-peers` makes the environments',
    name,
    python,
  )
  return False


def _prepare(
  entries: Sequence[cases_lib.Entry], folder: pathlib.Path, num_rounds: int
) -> dict[workload_lib.Workload, pathlib.Path]:
  """Writes the inputs of all workloads; returns where."""
  folders: dict[workload_lib.Workload, pathlib.Path] = {}
  for entry in entries:
    if entry.workload not in folders:
      path = folder / f'workload_{len(folders)}'
      path.mkdir()
      preparation.prepare(entry.workload, path, num_rounds)
      folders[entry.workload] = path
  return folders


def _start(
  entry: cases_lib.Entry, folder: pathlib.Path, form: dict[str, Any]
) -> process.ContenderProcess:
  return process.ContenderProcess(
    entry.label,
    registry.CONTENDERS[entry.contender],
    folder,
    folder / f'{entry.contender}.log',
    form,
  )


def _choose_forms(
  entry: cases_lib.Entry, folder: pathlib.Path
) -> list[dict[str, Any]]:
  """Returns the forms that take part.

  With scouts, the fastest form of each, tried in short runs: scouts run at
  different times, and so at different loads.
  """
  contender = registry.CONTENDERS[entry.contender]
  chosen = []
  for scout in contender.scouts:
    with _start(entry, folder, dict(scout)) as running:
      running.answer()
      tried = running.ask('scout')['forms']
    for form, seconds in tried:
      logging.info('%s tried %s: %.4f s', entry.label, form, seconds)
    if tried:
      chosen.append(min(tried, key=lambda one: one[1])[0])
  return chosen or [dict(form) for form in contender.forms]


def _fastest(
  entry: cases_lib.Entry,
  runners: Sequence[tuple[cases_lib.Entry, dict[str, Any]]],
  rows: Sequence[Row],
) -> Row:
  """Returns the row of an entry's fastest form."""
  forms = [
    row for (owner, _), row in zip(runners, rows, strict=True) if owner == entry
  ]
  return min(forms, key=lambda row: row['seconds_per_round'])


def _compile(running: process.ContenderProcess) -> float:
  """Returns the seconds from examples in memory to the end of round 1."""
  return (
    running.ask('build')['seconds']
    + running.ask('round', round_num=1)['seconds']
  )


def _compare(
  runners: Sequence[tuple[cases_lib.Entry, dict[str, Any]]],
  started: Sequence[process.ContenderProcess],
  inputs: dict[workload_lib.Workload, pathlib.Path],
) -> list[float]:
  """Returns how far each contender is from the first on its workload.

  Raises:
    BenchmarkError: If one is further away than `tolerance`.
  """
  references: dict[workload_lib.Workload, tuple[str, Any]] = {}
  differences = []
  for (entry, _), running in zip(runners, started, strict=True):
    weights = _weights_of(running, inputs[entry.workload])
    name, reference = references.setdefault(
      entry.workload, (entry.label, weights)
    )
    initial = workload_lib.Inputs(inputs[entry.workload]).initial_weights
    difference = _difference(weights, reference, initial)
    if not difference <= tolerance(entry.workload):
      raise errors.BenchmarkError(
        f'{entry.label} and {name} compute different weights: the largest '
        f'difference is {difference:.2g} of the largest change, at most '
        f'{tolerance(entry.workload):g} is allowed. Nothing was timed.'
      )
    differences.append(difference)
  return differences


def _weights_of(
  running: process.ContenderProcess, folder: pathlib.Path
) -> dict[str, np.ndarray]:
  path = folder / 'weights.npz'
  running.ask('weights', path=str(path))
  with np.load(path) as saved:
    return {name: saved[name] for name in saved.files}


def _difference(
  weights: dict[str, np.ndarray],
  reference: dict[str, np.ndarray],
  initial: dict[str, np.ndarray],
) -> float:
  """Returns max |weights - reference| / max |reference - initial|."""
  shapes = [
    {name: leaf.shape for name, leaf in one.items()}
    for one in (weights, reference)
  ]
  if shapes[0] != shapes[1]:
    return float('inf')
  apart = [np.max(np.abs(weights[n] - leaf)) for n, leaf in reference.items()]
  changes = [
    np.max(np.abs(leaf - initial.get(n, 0.0))) for n, leaf in reference.items()
  ]
  # A maximum by Python's own would lose a NaN.
  return float(np.max(apart) / np.max(changes))


def _time(
  started: Sequence[process.ContenderProcess], num_rounds: int
) -> tuple[list[list[float]], float]:
  """Returns each contender's seconds, and the cores that others used."""
  samples: list[list[float]] = [[] for _ in started]
  with _others(started) as used:
    for round_num in range(1, num_rounds + 1):
      for i in _turns(len(started), round_num):
        time.sleep(_PAUSE_SECONDS)
        answer = started[i].ask('round', round_num=_UNTIMED_ROUNDS + round_num)
        samples[i].append(answer['seconds'])
  return samples, used[0]


def _turns(count: int, round_num: int) -> list[int]:
  """Returns an order in which neighbours change from round to round.

  Williams' design: in `count` rounds (an even number) each comes after each
  other once, so that nobody always finds the caches as one other left them.
  """
  zigzag = [(i + 1) // 2 if i % 2 else -(i // 2) for i in range(count)]
  return [(i + round_num) % count for i in zigzag]


@contextlib.contextmanager
def _others(
  started: Sequence[process.ContenderProcess],
) -> Iterator[list[float]]:
  """Yields a list that gets the mean number of cores used by others."""

  def busy() -> tuple[float, float]:
    times = psutil.cpu_times()
    idle = times.idle + times.iowait
    ours = sum(running.cpu_seconds() for running in started)
    return sum(times[:8]) - idle - ours, sum(times[:8])

  used: list[float] = []
  before = busy()
  yield used
  after = busy()
  share = (after[0] - before[0]) / max(after[1] - before[1], 1e-9)
  used.append(max(share, 0.0) * psutil.cpu_count())


def _add_ratios(
  case: cases_lib.Case,
  entries: Sequence[cases_lib.Entry],
  rows: Sequence[Row],
) -> None:
  """Divides by the measure, where it took part."""
  for entry, row in zip(entries, rows, strict=True):
    row.update(ratio=None, ratio_to=None, limit=entry.limit)
    if entry.measure is None:
      continue
    measure = case.entries[entry.measure]
    if measure in entries:
      seconds = rows[entries.index(measure)]['seconds_per_round']
      row['ratio'] = row['seconds_per_round'] / seconds
      row['ratio_to'] = measure.label
