"""Measures a packed case on the machine's accelerator: `python CASE.pyz`.

The worker of the runtime `pjrt`, in this process, answers what was recorded of
a round: the message is sent, every block of clients is computed, the sums come
back. That is timed in turns with the round by hand. What a simulation does
besides, on the host, is not in it: the plan, and the server's update from the
sums.

Python, jax and NumPy only.
"""

import argparse
import functools
import io
import json
import pathlib
import platform
import statistics
import time
import zipfile
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import worker as worker_lib  # Of `tff_algos.runtimes.pjrt`; packed.

from benchmarks import workload as workload_lib
from benchmarks.accelerator import rounds

_PRODUCT_SIDE = {'cpu': 1024, 'gpu': 8192, 'tpu': 8192}

Arrays = dict[str, np.ndarray]


class Case:
  """A packed case.

  Attributes:
    described: What `pack` wrote.
    workload: The sizes.
    rows: Rows of all clients' examples, and one of zeros: x and y.
  """

  def __init__(self, path: str):
    """Reads a file of `pack`."""
    with zipfile.ZipFile(path) as archive:
      self.described = json.loads(archive.read('case.json'))
      with np.load(io.BytesIO(archive.read('arrays.npz'))) as stored:
        self._arrays = dict(stored)
    fields = self.described['workload']
    fields['input_shape'] = tuple(fields['input_shape'])
    self.workload = workload_lib.Workload(**fields)
    self.examples = self.workload.examples()
    self.rows = [
      np.concatenate([one.reshape(-1, *one.shape[2:]), zeros])
      for one, zeros in (
        (one, np.zeros((1, *one.shape[2:]), one.dtype)) for one in self.examples
      )
    ]

  def array(self, key: str, times: int) -> np.ndarray:
    """Returns a stored array, or the repeats of its row."""
    array = self._arrays[key]
    return np.stack([array] * times) if times else array

  def by_name(self, keys: dict[str, Any]) -> Arrays:
    """Returns stored arrays by name."""
    return {name: self.array(*key) for name, key in keys.items()}

  def requests(self, form: str, call: str) -> list[tuple[Any, list[Any]]]:
    """Returns header and arrays of each request of a phase call."""
    return [
      (
        one['header'],
        self.rows
        if one['arrays'] == 'examples'
        else [self.array(*key) for key in one['arrays']],
      )
      for one in self.described['forms'][form][call]
    ]


class Recorded:
  """A form of the runtime: its recorded requests, and a worker for them.

  Attributes:
    compile_seconds: Of its programs.
    results: Sums and collected outputs of the first round; in later ones,
      clients begin with the states that they have after it.
  """

  def __init__(self, case: Case, form: str, device: str):
    """Runs the first round, which compiles.

    Args:
      case: The case.
      form: Of the case.
      device: Name such as `'GPU:0'`.
    """
    self._worker = worker_lib.Worker()
    self._worker.hello([device])
    self._later = case.requests(form, 'later')
    answers = [
      self._worker.answer(*one) for one in case.requests(form, 'first')
    ]
    self.compile_seconds = sum(one.get('seconds', 0.0) for one, _ in answers)
    self.results = answers[-1][1]

  def run(self) -> None:
    """Runs a round, and waits for its results."""
    for request in self._later:
      self._worker.answer(*request)


def _first_block(case: Case, form: str, device: str) -> list[np.ndarray]:
  """Returns the results of the first block of clients alone."""
  worker, results = worker_lib.Worker(), []
  worker.hello([device])
  for header, arrays in case.requests(form, 'first'):
    header = dict(header)
    if header['request'] == 'run':
      if header['first']:
        continue
      arrays = [one[:1] for one in arrays]
      header['old'], header['new'] = header['old'][:1], header['new'][:1]
    results = worker.answer(header, arrays)[1]
  return results


def _means(case: Case, results: Sequence[np.ndarray], before: Arrays) -> Arrays:
  """Returns the weights after the round, from its sums.

  A cluster without clients has the weight 0, and its old model stays.
  """
  leaves = case.described['result']
  weight = results[leaves['weight']]
  means = {}
  for name, number in leaves['value'].items():
    total = results[number]
    by = weight.reshape(weight.shape + (1,) * (total.ndim - weight.ndim))
    is_empty = by == 0
    mean = total / np.where(is_empty, 1, by)
    means[name] = np.where(is_empty, before[name], mean)
  return means


# `np.max` of all leaves: unlike `max`, it is NaN if any of them is.
def _difference(one: Arrays, other: Arrays, before: Arrays) -> float:
  """Returns max |one - other| / max |other - before|."""
  apart = [np.max(np.abs(one[name] - leaf)) for name, leaf in other.items()]
  change = [np.max(np.abs(leaf - before[name])) for name, leaf in other.items()]
  return float(np.max(apart) / np.max(change))


def _relative(one: Sequence[np.ndarray], other: Sequence[np.ndarray]) -> float:
  """Returns the largest difference as a share of its array's largest value."""
  shares = [
    np.max(np.abs(a - b)) / np.maximum(np.max(np.abs(b)), 1e-30)
    for a, b in zip(one, other, strict=True)
    if a.size and a.dtype.kind == 'f'
  ]
  return float(np.max(shares))


def _peak_flops(device: jax.Device) -> float:
  """Returns the operations a second of a large product of float32 matrices."""
  side = _PRODUCT_SIDE.get(device.platform, 1024)
  matrix = jax.device_put(np.ones((side, side), np.float32), device)
  product = jax.jit(jnp.matmul)
  seconds = []
  for _ in range(6):
    start = time.perf_counter()
    jax.block_until_ready(product(matrix, matrix))
    seconds.append(time.perf_counter() - start)
  return 2 * side**3 / min(seconds[1:])


def _peak_bytes(device: jax.Device) -> int:
  """Returns the most memory in use so far; 0 where jax does not know it."""
  return (device.memory_stats() or {}).get('peak_bytes_in_use', 0)


def _by_hand(case: Case, device: jax.Device) -> tuple[Any, rounds.Client]:
  """Returns the weights and the clients of the rounds by hand."""
  stored = case.described['by_hand']
  weights = case.by_name(stored['weights'])
  clients = rounds.Client(
    case.by_name(stored['given']), *case.examples, case.array(*stored['order'])
  )
  return jax.device_put((weights, clients), device)


def measure(
  path: str,
  num_rounds: int = 5,
  peak_flops: float = 0.0,
  compares_to_cpu: bool = True,
) -> dict[str, Any]:
  """Measures a case.

  Args:
    path: A file of `pack`.
    num_rounds: Timed rounds, >= 1.
    peak_flops: Of the device, from its data sheet; 0 measures a product.
    compares_to_cpu: Whether another device's first block is computed on the
      CPU, too.

  Returns:
    The machine and a row for each form.
  """
  case = Case(path)
  device = jax.devices()[0]
  name = f'{device.platform.upper()}:{device.id}'
  weights, clients = _by_hand(case, device)
  before = {key: np.asarray(leaf) for key, leaf in weights.items()}
  one = jax.tree.map(lambda leaf: leaf[0], clients)
  flops = rounds.count_operations(case.workload, weights, one)
  peak = peak_flops or _peak_flops(device)
  runs: list[Callable[[], Any]] = []
  rows: list[dict[str, Any]] = []
  recorded = []
  for form in case.described['forms']:
    recorded.append(Recorded(case, form, name))
    runs.append(recorded[-1].run)
    rows.append(
      {
        'form': f'pjrt ({form})',
        'compile_seconds': recorded[-1].compile_seconds,
        'peak_bytes': _peak_bytes(device),
      }
    )
    if compares_to_cpu and device.platform != 'cpu':
      rows[-1]['difference_to_cpu'] = _relative(
        *(_first_block(case, form, one) for one in (name, 'CPU:0'))
      )
  by_hand: dict[str, Arrays] = {}
  for block in case.described['blocks']:
    start = time.perf_counter()
    call = (
      jax.jit(rounds.build_round(case.workload, block))
      .lower(weights, clients)
      .compile()
    )
    label = f'by hand (vmap, {block})' if block > 1 else 'by hand (scan)'
    row = {'form': label, 'compile_seconds': time.perf_counter() - start}
    by_hand = jax.tree.map(np.asarray, call(weights, clients))
    row['peak_bytes'] = _peak_bytes(device)
    runs.append(functools.partial(_run_by_hand, call, weights, clients))
    rows.append(row)
  samples: list[list[float]] = [[] for _ in rows]
  for turn in range(num_rounds + 1):
    for i in range(len(runs)):
      number = (i + turn) % len(runs)
      start = time.perf_counter()
      runs[number]()
      samples[number].append(time.perf_counter() - start)
  for row, seconds in zip(rows, samples, strict=True):
    row['samples'] = seconds[1:]  # The first one warmed up.
    row['seconds'] = statistics.median(seconds[1:])
    row['flops_per_second'] = flops / row['seconds']
    row['share_of_peak'] = row['flops_per_second'] / peak
  for row, form in zip(rows, recorded, strict=False):
    means = _means(case, form.results, before)
    row['difference'] = _difference(means, by_hand, before)
  return {
    'case': case.described['case'],
    'device': device.device_kind,
    'platform': device.platform,
    'versions': {
      'python': platform.python_version(),
      'jax': jax.__version__,
      'numpy': np.__version__,
    },
    'flops': flops,
    'peak_flops': peak,
    'peak_is_measured': not peak_flops,
    'rows': rows,
  }


def _run_by_hand(call: Callable[..., Any], *arguments: Any) -> None:
  jax.block_until_ready(call(*arguments))


def main(path: str, arguments: Sequence[str]) -> int:
  """Runs the program; returns its exit status."""
  parser = argparse.ArgumentParser(
    prog=path, description='Measures a case on the first device of jax.'
  )
  parser.add_argument('--rounds', type=int, default=5, help='timed rounds (5)')
  parser.add_argument(
    '--peak_tflops',
    type=float,
    default=0.0,
    help='peak of the device, from its data sheet; else a product is measured',
  )
  parser.add_argument(
    '--no_cpu',
    action='store_true',
    help='leave out the first block on the CPU, which can take minutes',
  )
  parser.add_argument(
    '--out', type=pathlib.Path, help='file for the figures, JSON'
  )
  options = parser.parse_args(arguments)
  if options.rounds < 1:
    parser.error(f'--rounds must be >= 1, got {options.rounds}')
  measured = measure(
    path, options.rounds, options.peak_tflops * 1e12, not options.no_cpu
  )
  words = json.dumps(measured, indent=1)
  if options.out:
    options.out.write_text(words + '\n')
  else:
    print(words)
  return 0
