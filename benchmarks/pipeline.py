"""Measures how datasets are built and read; `make bench-data` calls it.

python -m benchmarks.pipeline --examples=1000000 --clients=100000 --workers=1,2
"""

import argparse
import contextlib
import itertools
import json
import pathlib
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks import errors, watched

_MODULE = 'benchmarks.pipeline'
_CHUNK = 10_000
# Clients of the dataset that the large one is compared with.
_SMALL = 1000


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs the program; returns its exit status."""
  return errors.exit_status(lambda: _run(_parse(arguments)))


def _run(options: argparse.Namespace) -> None:
  rows: list[dict[str, Any]] = []
  with tempfile.TemporaryDirectory(prefix='bench_pipeline_') as folder:
    for row in _measure(options, pathlib.Path(folder)):
      print(json.dumps(row), flush=True)
      rows.append(row)
  if options.out is not None:
    options.out.write_text(json.dumps(rows, indent=1) + '\n')


def _measure(
  options: argparse.Namespace, folder: pathlib.Path
) -> Iterator[dict[str, Any]]:
  """Yields a row for each build, then for each dataset that is read."""
  per_client = options.examples // options.clients
  cases = [('large', options.clients, options.workers)]
  if options.clients > _SMALL:
    cases.insert(0, ('small', _SMALL, options.workers[:1]))
  for name, num_clients, workers in cases:
    engines = [('local', count) for count in workers]
    if name == 'large' and options.dask_workers:
      engines.append(('dask', options.dask_workers))
    raw = folder / name
    raw.mkdir()
    num_examples = max(per_client * num_clients, num_clients)
    write_images(raw, num_examples, options.side)
    for number, (engine, count) in enumerate(engines):
      dataset = raw / f'dataset_{number}'
      yield {
        'what': 'build',
        'num_examples': num_examples,
        'num_clients': num_clients,
        'side': options.side,
        'engine': engine,
        'workers': count,
        **watched.run(
          _MODULE, 'build', (raw, dataset, num_clients, engine, count), raw
        ),
      }
    figures = watched.run(_MODULE, 'read', (dataset,), raw)
    yield {'what': 'read', 'num_clients': num_clients, **figures}


def build(
  raw: str, dataset: str, num_clients: str, engine: str, workers: str
) -> dict[str, Any]:
  """Builds a dataset of raw files; returns seconds and CPU seconds."""
  from pipelines import build_dataset, options
  from tff_algos.core import config as config_lib

  config = config_lib.from_dict(
    options.DatasetConfig,
    {
      'source': {'name': 'idx', 'options': {'folder': raw}},
      'partition': {'law': 'iid', 'num_clients': int(num_clients)},
      'splits': {'test_ratio': 0.25},
      'num_shards': 16,
    },
  )
  with _start_engine(engine, int(workers)) as flags:
    start = time.perf_counter()
    result = build_dataset.build(config, dataset, flags)
    seconds = time.perf_counter() - start
  usages = map(
    resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
  )
  cpu_seconds = sum(usage.ru_utime + usage.ru_stime for usage in usages)
  count = result.manifest['counters']['raw_examples']
  start = time.perf_counter()
  build_dataset.build(config, dataset)
  return {
    'seconds': round(seconds, 3),
    'cpu_seconds': round(cpu_seconds, 1),
    'examples_per_second': round(count / seconds),
    'seconds_when_there': round(time.perf_counter() - start, 2),
  }


@contextlib.contextmanager
def _start_engine(engine: str, workers: int) -> Iterator[list[str]]:
  """Yields Beam's flags; a Dask cluster is up before the clock starts."""
  if engine == 'local':
    mode = 'multi_processing' if workers > 1 else 'in_memory'
    yield [f'--direct_num_workers={workers}', f'--direct_running_mode={mode}']
    return
  import distributed

  with distributed.LocalCluster(
    n_workers=workers,
    threads_per_worker=1,
    host='127.0.0.1',
    dashboard_address=None,
  ) as cluster:
    yield [
      '--runner=DaskRunner',
      f'--dask_client_address={cluster.scheduler_address}',
    ]


def read(path: str) -> dict[str, float]:
  """Reads a dataset: returns times of its opening, single clients, cohorts."""
  from tff_algos.data import dataset as dataset_lib

  opening = {
    name: _median(
      lambda verify=verify: dataset_lib.FederatedDataset.open(
        path, verify=verify
      ).close(),
      3,
    )
    for name, verify in (('open', False), ('open_and_verify', True))
  }
  generator = np.random.default_rng(0)
  with dataset_lib.FederatedDataset.open(path, verify=False) as dataset:
    order = generator.permutation(len(dataset.client_ids))
    # Drawn before the clock starts, and again when all have had their turn.
    turns = itertools.cycle([dataset.client_ids[i] for i in order])

    def read_next(count: int) -> None:
      for client_id in itertools.islice(turns, count):
        dataset.examples(client_id, 'train')

    first = _median(lambda: read_next(1), 1)
    opening['one_client'] = _median(lambda: read_next(1), 1001)
    opening['cohort_of_100'] = _median(lambda: read_next(100), 51)
  return {
    f'{name}_ms': round(1000 * seconds, 3)
    for name, seconds in (*opening.items(), ('first_client', first))
  }


def _median(function: Callable[[], None], times: int) -> float:
  samples = []
  for _ in range(times):
    start = time.perf_counter()
    function()
    samples.append(time.perf_counter() - start)
  return float(np.median(samples))


def write_images(folder: pathlib.Path, num_train: int, side: int) -> None:
  """Writes IDX files of noise: what is in them does not change the time."""
  generator = np.random.default_rng(0)
  for part, count in (('train', num_train), ('t10k', 1000)):
    sizes: Mapping[str, tuple[int, ...]] = {
      f'{part}-images-idx3-ubyte': (count, side, side),
      f'{part}-labels-idx1-ubyte': (count,),
    }
    for name, shape in sizes.items():
      with open(folder / name, 'wb') as file:
        file.write(bytes([0, 0, 8, len(shape)]))
        file.write(np.array(shape, '>u4').tobytes())
        for start in range(0, count, _CHUNK):
          chunk = (min(_CHUNK, count - start), *shape[1:])
          high = 256 if len(shape) > 1 else 10
          file.write(generator.integers(0, high, chunk, np.uint8).tobytes())


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--examples', type=int, default=1_000_000)
  parser.add_argument('--clients', type=int, default=100_000)
  parser.add_argument(
    '--side', type=int, default=28, help='of the images, in pixels'
  )
  parser.add_argument(
    '--workers',
    type=lambda text: tuple(map(int, text.split(','))),
    default=(1, 2),
    help='worker processes of each build, separated by commas',
  )
  parser.add_argument(
    '--dask_workers',
    type=int,
    default=2,
    help='worker processes of a Dask cluster that builds, too; 0 for none',
  )
  parser.add_argument('--out', type=pathlib.Path, help='file for JSON rows')
  options = parser.parse_args(arguments)
  sizes = (options.examples, options.clients, options.side, *options.workers)
  if min(sizes) < 1:
    parser.error('--examples, --clients, --side and --workers must be >= 1')
  return options


if __name__ == '__main__':
  sys.exit(main())
