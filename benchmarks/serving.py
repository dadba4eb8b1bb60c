"""Measures a server of many personalized models; `make bench-serving` calls it.

python -m benchmarks.serving --clients=100000
"""

import argparse
import concurrent.futures
import contextlib
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
import psutil

from benchmarks import errors, watched
from tff_algos.serving import clients as clients_lib

_MODULE = 'benchmarks.serving'
# An 8x8 image, and a perceptron with 9,610 weights.
_NUM_INPUTS = 64
_HIDDEN_SIZES = (128,)
_NUM_CLASSES = 10
_BLOCK = 1000
_START_SECONDS = 600.0
_THREADS = 4
# Clients that are asked for again and again.
_NUM_KNOWN = 100
# Rows of a request that another process answers, each of a client of its own.
_LARGE_ROWS = 2000


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs the program; returns its exit status."""
  return errors.exit_status(lambda: _run(_parse(arguments)))


def _run(options: argparse.Namespace) -> None:
  with tempfile.TemporaryDirectory(prefix='bench_serving_') as folder:
    row = _measure(options, pathlib.Path(folder))
  print(json.dumps(row))
  if options.out is not None:
    options.out.write_text(json.dumps(row, indent=1) + '\n')


def _measure(
  options: argparse.Namespace, folder: pathlib.Path
) -> dict[str, Any]:
  exported = watched.run(_MODULE, 'export', (folder, options.clients), folder)
  (version,) = (folder / 'export' / 'personalized_models').glob('1')
  row = {
    'num_clients': options.clients,
    'bundle_mib': watched.size_mib(version),
    **{f'export_{name}': value for name, value in exported.items()},
  }
  start = time.monotonic()
  with _server(folder) as (process, url):
    row['start_seconds'] = time.monotonic() - start
    states = version / 'assets' / 'client_states.tfrecord'
    _forget(states)
    server = clients_lib.Server(url, timeout_seconds=120)
    row |= _ask(server, options.clients, options.seconds)
    row['server_peak_mib'] = watched.peak_mib(process.pid)
    _ask_much(server, options.clients)
    (large,) = psutil.Process(process.pid).children()
    row['large_requests_peak_mib'] = watched.peak_mib(large.pid)
  return row


def export(folder: str, num_clients: str) -> dict[str, float]:
  """Exports random models of clients, and one of them alone.

  Args:
    folder: The models are written to its `export`; the states before lie beside
      them, as on the disk of a training.
    num_clients: Number of clients.
  """
  import tensorflow as tf

  from tff_algos.algorithms import registry as algorithms
  from tff_algos.core import model as model_lib
  from tff_algos.export import manifest, personalized_models
  from tff_algos.models import registry as models

  model = models.build_model(
    models.parse_config({'name': 'mlp', 'hidden_sizes': _HIDDEN_SIZES}),
    task=model_lib.CLASSIFICATION,
    input_shape=(_NUM_INPUTS,),
    num_outputs=_NUM_CLASSES,
  )
  entry = algorithms.ALGORITHMS['ditto']
  algorithm = entry.build(model, entry.config_class(cohort_size=1))
  first = algorithm.init_client_state(tf.constant([0, 0]), tf.constant([0, 0]))
  leaves = tf.nest.flatten(first)
  sizes = [leaf.shape.num_elements() for leaf in leaves]
  states = _random_states(
    pathlib.Path(folder, 'states'), int(num_clients), sum(sizes)
  )

  def load_states(indices: np.ndarray) -> Any:
    columns = np.split(states[indices], np.cumsum(sizes)[:-1], axis=1)
    return tf.nest.pack_sequence_as(
      first,
      [
        column.reshape([len(indices), *leaf.shape])
        for column, leaf in zip(columns, leaves, strict=True)
      ],
    )

  base = pathlib.Path(folder, 'export')
  server_state = algorithm.init_server_state(
    tf.constant([0, 0]), int(num_clients)
  )
  x = np.zeros([1, _NUM_INPUTS], np.float32)
  provenance = manifest.Provenance('0' * 16, 1, 'none')
  start, cpu = time.monotonic(), time.process_time()
  personalized_models.export_personalized_models(
    base / 'personalized_models',
    algorithm,
    server_state,
    [f'client_{i}' for i in range(int(num_clients))],
    load_states,
    x,
    provenance,
  )
  figures = {
    'seconds': time.monotonic() - start,
    'cpu_seconds': time.process_time() - cpu,
  }
  personalized_models.export_client_model(
    base / 'resident',
    algorithm,
    server_state,
    'client_0',
    0,
    tf.nest.map_structure(lambda leaf: leaf[0], load_states(np.array([0]))),
    x,
    provenance,
  )
  return figures


def _random_states(
  path: pathlib.Path, num_clients: int, size: int
) -> np.ndarray:
  """Returns a mapped file of random states, float32 `[num_clients, size]`."""
  states = np.memmap(path, np.float32, 'w+', shape=(num_clients, size))
  rng = np.random.default_rng(0)
  for start in range(0, num_clients, _BLOCK):
    block = states[start : start + _BLOCK]
    block[:] = rng.standard_normal(block.shape, np.float32) / 10
  states.flush()
  return states


@contextlib.contextmanager
def _server(
  folder: pathlib.Path,
) -> Generator[tuple[subprocess.Popen[bytes], str]]:
  """Runs a server of the exported models; yields its process and its URL."""
  port_file = folder / 'ports.json'
  log = folder / 'server.log'
  with log.open('wb') as file:
    process = subprocess.Popen(
      [
        *(sys.executable, '-m', 'binaries.serve'),
        *(f'--model_base_path={folder / "export"}', '--rest_api_port=0'),
        *('--port=0', f'--port_file={port_file}'),
      ],
      cwd=pathlib.Path(__file__).parents[1],
      stdout=file,
      stderr=file,
      start_new_session=True,
    )
  deadline = time.monotonic() + _START_SECONDS
  try:
    while not port_file.exists():
      if process.poll() is not None or time.monotonic() > deadline:
        raise errors.BenchmarkError(f'no server:\n{log.read_text()[-3000:]}')
      time.sleep(0.05)
    port = json.loads(port_file.read_text())['rest_api_port']
    yield process, f'http://127.0.0.1:{port}'
  finally:
    process.terminate()
    process.wait()


def _ask(
  server: clients_lib.Server, num_clients: int, seconds: float
) -> dict[str, Any]:
  """Returns percentiles of the latency of kinds of requests, in turns.

  Each thread asks for a client that was not asked for before, for one that was,
  and for the model of one client, which the server holds in memory.
  """
  order = np.random.default_rng(1).permutation(num_clients).tolist()
  num_known = min(_NUM_KNOWN, num_clients // 2)
  known, unasked = order[:num_known], order[num_known:]
  with _rest(server, 'personalized_models') as ask:
    for client in known:
      ask(_content([client]))
  parts = [(unasked[i::_THREADS], known[i::_THREADS]) for i in range(_THREADS)]
  with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
    told = list(
      pool.map(lambda part: _ask_in_turns(server, *part, seconds), parts)
    )
  figures: dict[str, Any] = {}
  for kind in told[0]:
    times = np.concatenate([one[kind] for one in told])
    p50, p99 = np.percentile(times, [50, 99])
    figures |= {
      f'{kind}_requests': len(times),
      f'{kind}_p50_ms': 1000 * p50,
      f'{kind}_p99_ms': 1000 * p99,
    }
  resident = figures['resident_p50_ms']
  return figures | {
    'new_ratio': figures['new_p50_ms'] / resident,
    'known_ratio': figures['known_p50_ms'] / resident,
  }


def _ask_in_turns(
  server: clients_lib.Server,
  unasked: Sequence[int],
  known: Sequence[int],
  seconds: float,
) -> dict[str, list[float]]:
  times: dict[str, list[float]] = {'new': [], 'known': [], 'resident': []}
  with contextlib.ExitStack() as stack:
    ask_own, ask_resident = (
      stack.enter_context(_rest(server, model))
      for model in ('personalized_models', 'resident')
    )
    end = time.monotonic() + seconds
    for new, again in zip(unasked, itertools.cycle(known), strict=False):
      if time.monotonic() > end:
        break
      for kind, ask, content in (
        ('new', ask_own, _content([new])),
        ('known', ask_own, _content([again])),
        ('resident', ask_resident, _content([None])),
      ):
        start = time.perf_counter()
        ask(content)
        times[kind].append(time.perf_counter() - start)
  return times


def _ask_much(server: clients_lib.Server, num_clients: int) -> None:
  rows = np.arange(_LARGE_ROWS) % num_clients
  with _rest(server, 'personalized_models') as ask:
    ask(_content(rows.tolist()))


def _rest(
  server: clients_lib.Server, model: str
) -> contextlib.AbstractContextManager[clients_lib.Ask]:
  return clients_lib.rest(server, f'/v1/models/{model}:predict')


def _content(clients: Sequence[int | None]) -> bytes:
  """Returns the request with a row for each client; None has no name."""
  rows = [
    {'x': [0.5] * _NUM_INPUTS}
    | ({} if client is None else {'client_id': f'client_{client}'})
    for client in clients
  ]
  return json.dumps({'instances': rows}).encode()


def _forget(path: pathlib.Path) -> None:
  """Asks the system to forget what it has cached of a file."""
  with path.open('rb') as file:
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--clients', type=int, default=100_000)
  parser.add_argument('--seconds', type=float, default=30)
  parser.add_argument('--out', type=pathlib.Path)
  options = parser.parse_args(arguments)
  if options.clients < 2:
    parser.error(f'--clients must be >= 2, got {options.clients}')
  return options


if __name__ == '__main__':
  sys.exit(main())
