"""Writes the files of runs that never were, with numbers known by hand.

A run has two clusters, two sources, `a` and `b`, and four clients. Cluster
`order[0]` is good at `a` and cluster `order[1]` at `b`.
"""

import math
import pathlib
from collections.abc import Sequence

import numpy as np

from tests.testing import csv_files
from tff_algos.core import sealed_json
from tff_algos.evaluation import recovery
from tff_algos.reports.run import run as run_lib
from tff_algos.reports.sweep import plan as plan_lib
from tff_algos.reports.sweep import sweep as sweep_lib

NAME = 'Invented sweep'


def write_run(
  folder: pathlib.Path,
  *,
  level: float = 0.5,
  order: Sequence[int] = (0, 1),
  ari: float | None = 1.0,
  cluster_ids: Sequence[int] | None = None,
  num_rounds: int = 2,
  score: str = 'accuracy',
  planted: bool = True,
) -> None:
  """Writes one run.

  Args:
    folder: Of the run.
    level: Score of the personalized models after the last round; that of the
      good cluster on a source is 0.2 more on `a` and 0.3 more on `b`, that of
      the other 0.05 less on `a` and 0.1 less on `b`. In round r, all are
      r / num_rounds of that.
    order: The cluster of each source.
    ari: After the last round; None if nothing is known of it.
    cluster_ids: Of the clients; by default the clusters of their sources.
    num_rounds: Evaluated each, from round 0 on.
    score: `'accuracy'` or `'mse'`.
    planted: Whether clients have a true mixture; a, a, b, b.
  """
  (folder / 'evaluation').mkdir(parents=True)
  (folder / 'report').mkdir()
  (folder / 'report' / 'index.html').write_text('a run')
  sealed_json.write(
    folder / 'config.json',
    {'name': 'x', 'config_hash': 'y', 'config': {'seed': 0}},
  )
  rounds = _rounds(level, order, ari, num_rounds, score)
  cluster_ids = cluster_ids or [order[0]] * 2 + [order[1]] * 2
  matched = recovery.match_clusters(
    np.eye(2)[[*cluster_ids]], np.eye(2)[[0, 0, 1, 1]]
  )
  csv_files.write(folder / 'metrics.csv', rounds)
  summary = {
    'last': {k: v for k, v in rounds[-1].items() if 'cost' not in k},
    'best_by_validation': rounds[-2],
    'source_names': ['a', 'b'],
    'num_clusters': 2,
    'planted_names': ['a', 'b'] if planted else None,
    'matched_sources': ['ab'[source] for source in matched],
  }
  sealed_json.write(folder / 'evaluation' / 'summary.json', summary)
  clients = [
    {
      'client_id': f'c{index}',
      'group': 'participating',
      'cluster_id': cluster,
      **{f'membership_{one}': float(cluster == one) for one in (0, 1)},
    }
    for index, cluster in enumerate(cluster_ids)
  ]
  for index, client in enumerate(clients if planted else ()):
    client['true_mixture_0'] = float(index < 2)
    client['true_mixture_1'] = float(index >= 2)
  # An unseen client chooses, too; it does not count.
  clients.append({**clients[0], 'client_id': 'new', 'group': 'unseen'})
  clients[-1]['cluster_id'] = 1
  csv_files.write(folder / 'evaluation' / 'clients.csv', clients)


def read_run(folder: pathlib.Path, **options) -> run_lib.Run:
  """Writes a run, and reads it."""
  write_run(folder, **options)
  return run_lib.read(folder)


def _rounds(level, order, ari, num_rounds, score):
  other = {'a': 0.05, 'b': 0.1}
  scores = {'a': {order[0]: level + 0.2}, 'b': {order[1]: level + 0.3}}
  rounds = []
  for number in range(num_rounds + 1):
    row = {
      'round': number,
      'cost/uplink_floats': 40.0 * (number > 0),
      'cost/downlink_floats': 60.0 * (number > 0),
    }
    share = number / num_rounds
    row[f'participating/test/personalized/{score}'] = share * level
    for source, good in scores.items():
      for cluster in (0, 1):
        value = share * good.get(cluster, level - other[source])
        row[f'held_out/{source}/cluster_{cluster}/{score}'] = value
    if ari is not None:
      row['participating/membership/ari'] = share * ari
    rounds.append(row)
  return rounds


def write(
  workdir: pathlib.Path,
  levels: dict[tuple, Sequence[float]],
  axes: Sequence[plan_lib.Axis],
  **options,
) -> plan_lib.Plan:
  """Writes a sweep; every second run has its clusters the other way round.

  Args:
    workdir: Its folder.
    levels: Values of a cell -> the level of each seed.
    axes: The axes.
    **options: See `write_run`.
  """
  runs = []
  for cell, row in levels.items():
    place = plan_lib.label(axes, cell).replace(', ', ',') or 'cell'
    for seed, level in enumerate(row):
      folder = f'{place}/seed_{seed}'
      order = (seed % 2, 1 - seed % 2)
      write_run(workdir / folder, level=level, order=order, **options)
      runs.append(plan_lib.PlannedRun(folder, cell, seed))
  plan = plan_lib.Plan(NAME, tuple(axes), tuple(runs))
  write_plan(workdir, plan)
  return plan


def read(
  workdir: pathlib.Path,
  levels: dict[tuple, Sequence[float]],
  axes: Sequence[plan_lib.Axis],
  **options,
) -> sweep_lib.Sweep:
  """Writes a sweep, and reads it; see `write`."""
  write(workdir, levels, axes, **options)
  return sweep_lib.read(workdir)


def write_diverged(workdir: pathlib.Path) -> None:
  """Writes a sweep of three values: one, none and all seeds have diverged."""
  axis = plan_lib.Axis('algorithm.weight', 'weight', (1, 2, 3))
  levels = {(1,): (0.2, math.nan), (2,): (0.3, 0.3), (3,): (math.nan,)}
  write(workdir, levels, (axis,))


def write_plan(workdir: pathlib.Path, plan: plan_lib.Plan) -> None:
  """Writes `sweep.json`."""
  sealed_json.write(workdir / plan_lib.FILE, plan_lib.to_dict(plan))
