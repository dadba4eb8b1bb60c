"""One process of a group: computes a little, or goes on until it is ended."""

import hashlib
import json
import os
import types

import numpy as np
import tensorflow as tf

from binaries import command
from tff_algos.runtimes import interrupts
from tff_algos.runtimes.distributed import process_cluster as cluster_lib
from tff_algos.runtimes.distributed import process_group

NUM_ROWS = (1, 5, 8)


def terms(index: int) -> dict:
  """Returns what a process adds to the sum."""
  generator = np.random.default_rng(index)
  return {
    'weights': generator.normal(size=(300, 7)).astype(np.float32),
    'bias': generator.normal(size=3).astype(np.float32),
    'count': np.asarray(10**6 + index, np.int32),
    'none': np.zeros([0, 2], np.float64),
  }


def rows(num_rows: int) -> tuple:
  """Returns the rows of all processes."""
  generator = np.random.default_rng(num_rows)
  return (
    generator.normal(size=(num_rows, 3, 1)).astype(np.float32),
    {'is_odd': np.arange(num_rows) % 2 == 1, 'id': np.arange(num_rows) << 40},
    np.zeros([num_rows, 0], np.float32),
  )


def values(index: int) -> dict:
  """Returns what a process holds before all agree."""
  return {
    'odd': np.asarray([index, np.nan, -0.0, np.inf, 1e-45], np.float32),
    'flag': np.asarray(index == 0),
    'bytes': np.full([5], index + 7, np.uint8),
  }


def spell(value) -> dict | list | str:
  """Returns a structure of arrays as JSON, bit for bit."""
  if isinstance(value, dict):
    return {key: spell(part) for key, part in value.items()}
  if isinstance(value, tuple):
    return [spell(part) for part in value]
  array = np.asarray(value)
  digest = hashlib.sha256(array.tobytes()).hexdigest()
  return f'{array.dtype}{list(array.shape)} {digest}'


def _numbers(structure: dict) -> dict:
  return {name: array.tolist() for name, array in structure.items()}


def _gathered(group) -> list:
  gathered = []
  for num_rows in NUM_ROWS:
    cohort = _cohort(num_rows)
    cut = group.positions(cohort)
    ours = tf.nest.map_structure(lambda leaf: leaf[cut], rows(num_rows))  # noqa: B023
    (joined,) = group.gather([ours], cohort)
    gathered.append(spell(joined))
  return gathered


def _cohort(num_rows: int) -> types.SimpleNamespace:
  return types.SimpleNamespace(size=num_rows, shards=np.arange(num_rows)[::-1])


def _compute(group, index: int) -> dict:
  found = {
    'sums': [_numbers(group.sum(terms(index))) for _ in range(2)],
    'gathered': _gathered(group),
    'nothing': group.gather([()], _cohort(3)) == [()] and group.agree(()) == (),
    'agreed': spell(group.agree(values(index))),
  }
  group._cluster = group._cluster._replace(owns_shards=True)
  return {**found, 'gathered_by_shard': _gathered(group)}


def _main() -> None:
  cluster = cluster_lib.from_environment()
  identity = {'note': os.environ.get('NOTE', '')}
  with process_group.open_group(cluster, identity, 60.0) as group:
    if os.environ['MODE'] == 'compute':
      print(json.dumps(_compute(group, cluster.index)))
    while os.environ['MODE'] == 'loop':
      with interrupts.held():  # As the loop of rounds does.
        group.sum(terms(cluster.index))
      os.write(1, b'.')


if __name__ == '__main__':
  command.run(_main)
