"""Measures growth with clients and examples; `make growth` calls it.

python -m benchmarks.growth.run --clients=100,1000,10000 --out=growth
"""

import argparse
import json
import pathlib
import shutil
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from benchmarks import errors, pipeline, watched
from benchmarks.growth import curves
from tff_algos.reports.plotting import style

_EXAMPLES_PER_CLIENT = 10
# Pixels of an image's side.
_SIDE = 4
_POINTS = 'benchmarks.growth.points'
# Figure of a row -> name of its curve.
_BUILD = {
  'build/cpu_seconds': 'build, CPU seconds',
  'build/peak_memory_mib': 'build, peak MiB',
  'dataset_mib': 'dataset, MiB',
}
_CLIENTS = {
  'disk/start_cpu_seconds': 'start, CPU seconds',
  'disk/start_memory_mib': 'started, MiB',
  'disk/round_cpu_seconds': 'round, CPU seconds, states on disk',
  'memory/round_cpu_seconds': 'round, CPU seconds, states in memory',
  'disk/peak_memory_mib': 'training, peak MiB, states on disk',
  'memory/peak_memory_mib': 'training, peak MiB, states in memory',
  'disk/save_cpu_seconds': 'checkpoint, CPU seconds',
  'disk/save_mib': 'checkpoint, MiB',
  'disk/save_all_cpu_seconds': 'checkpoints of all states, CPU seconds',
  'disk/all_states_mib': 'all checkpoints, MiB',
  'evaluate/resume_cpu_seconds': 'resume, CPU seconds',
  'evaluate/evaluate_cpu_seconds': 'evaluation, CPU seconds',
  'evaluate/peak_memory_mib': 'evaluation, peak MiB',
  'export/export_cpu_seconds': 'export, CPU seconds',
  'export/peak_memory_mib': 'export, peak MiB',
  'export/export_mib': 'export, MiB',
}


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs the program; returns its exit status."""
  return errors.exit_status(lambda: _run(_parse(arguments)))


def _run(options: argparse.Namespace) -> None:
  options.out.mkdir(parents=True, exist_ok=True)
  rows: list[dict[str, Any]] = []
  for num_clients in options.clients:
    with tempfile.TemporaryDirectory(prefix='growth_') as folder:
      rows.append(_measure(pathlib.Path(folder), num_clients))
    print(json.dumps(rows[-1]), flush=True)
    spelled = json.dumps(rows, indent=1)
    (options.out / 'growth.json').write_text(spelled + '\n')
  of_examples = curves.collect(rows, _BUILD, 'examples')
  of_clients = curves.collect(rows, _CLIENTS, 'clients')
  print(f'\n{curves.table(of_examples)}\n\n{curves.table(of_clients)}')
  with style.applied():
    for curve in (*of_examples, *of_clients):
      picture = style.to_png(curves.draw(curve))
      (options.out / curve.file_name).write_bytes(picture)


def _measure(folder: pathlib.Path, num_clients: int) -> dict[str, Any]:
  """Returns the figures of a population; each point is a process."""
  num_examples = _EXAMPLES_PER_CLIENT * num_clients
  dataset = folder / 'dataset'
  pipeline.write_images(folder, num_examples, _SIDE)
  figures = {
    'build': watched.run(
      *('benchmarks.pipeline', 'build'),
      (folder, dataset, num_clients, 'local', 1),
      folder,
    )
  }
  dataset_mib = watched.size_mib(dataset)
  for client_states in ('memory', 'disk'):
    shutil.rmtree(folder / 'checkpoints', ignore_errors=True)
    figures[client_states] = watched.run(
      _POINTS, 'train', (folder, client_states), folder
    )
  for point in ('evaluate', 'export'):
    figures[point] = watched.run(_POINTS, point, (folder,), folder)
  return {
    'num_clients': num_clients,
    'num_examples': num_examples,
    'dataset_mib': dataset_mib,
    **{
      f'{point}/{name}': value
      for point, named in figures.items()
      for name, value in named.items()
    },
  }


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument(
    '--clients',
    type=_sizes,
    default=(100, 1000, 10_000, 100_000, 1_000_000),
    help='numbers of clients, ascending, separated by commas',
  )
  parser.add_argument(
    '--out',
    type=pathlib.Path,
    default=pathlib.Path('runs/growth'),
    help='folder for figures as JSON and pictures (runs/growth)',
  )
  return parser.parse_args(arguments)


def _sizes(text: str) -> tuple[int, ...]:
  """Returns at least two ascending numbers of clients."""
  parts = text.split(',')
  sizes = tuple(int(part) for part in parts if part.isdecimal())
  if len(sizes) != len(parts) or len(sizes) < 2 or sizes[0] < 20:
    raise argparse.ArgumentTypeError(
      f'must be two or more integers >= 20 with commas, got {text!r}'
    )
  if list(sizes) != sorted(set(sizes)):
    raise argparse.ArgumentTypeError(f'must be ascending, got {text!r}')
  return sizes


if __name__ == '__main__':
  sys.exit(main())
