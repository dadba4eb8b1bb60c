"""Points of the curves: a population that trains, is evaluated and exported.

Each function is a process of its own, see `watched`, in a workdir that holds a
dataset. CPU seconds count all threads, without imports.
"""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import psutil
import tensorflow as tf

from benchmarks import watched
from tff_algos.experiments import experiment, exporting, session

_COHORT_SIZE = 20
_WARM_UP_ROUNDS = 2
_ROUNDS = 11
# Clients that get their states between two checkpoints.
_BLOCK = 10_000
_MIB = 2**20


def train(workdir: str, client_states: str) -> dict[str, float]:
  """Opens a run, gives every client a state, saves it, and runs rounds.

  Args:
    workdir: Folder with a dataset, and no checkpoint.
    client_states: As of `TrainingConfig`.

  Returns:
    CPU seconds and sizes.
  """
  figures: dict[str, float] = {}
  with contextlib.ExitStack() as stack:
    with _cpu_seconds(figures, 'start'):
      opened = stack.enter_context(
        session.open_session(_config(client_states), workdir)
      )
      state = opened.initial_state()
    figures['start_memory_mib'] = _private_memory()
    checkpoints = opened.checkpoints.states_folder.parent
    with _cpu_seconds(figures, 'save_all'):
      round_num = _give_states(opened, state)
    figures['all_states_mib'] = watched.size_mib(checkpoints)
    seconds = []
    for _ in range(_WARM_UP_ROUNDS + _ROUNDS):
      round_num += 1
      start = time.process_time()
      state, _ = opened.run_round(state, round_num)
      opened.store.commit()
      seconds.append(time.process_time() - start)
    figures['round_cpu_seconds'] = float(np.median(seconds[_WARM_UP_ROUNDS:]))
    with _cpu_seconds(figures, 'save'):
      opened.checkpoints.save(round_num, state, opened.store)
    figures['save_mib'] = watched.size_mib(
      checkpoints / f'round_{round_num:06d}'
    ) + watched.size_mib(opened.store.segment_path(round_num))
  return figures


def evaluate(workdir: str) -> dict[str, float]:
  """Resumes a run from its checkpoint, and evaluates all clients."""
  figures: dict[str, float] = {}
  with contextlib.ExitStack() as stack:
    with _cpu_seconds(figures, 'resume'):
      opened = stack.enter_context(session.open_session(_config(), workdir))
      _, state = opened.restore()
    with _cpu_seconds(figures, 'evaluate'):
      opened.evaluator.evaluate(state)
  return figures


def export(workdir: str) -> dict[str, float]:
  """Exports the models of all clients."""
  figures: dict[str, float] = {}
  with _cpu_seconds(figures, 'export'):
    bundles = exporting.export(_config(), workdir)
  figures['export_mib'] = sum(map(watched.size_mib, bundles))
  return figures


def _config(client_states: str = 'disk') -> experiment.ExperimentConfig:
  """Returns Ditto with a linear model; a client's state is such a model."""
  return experiment.parse_plain(
    {
      'name': 'growth',
      # Is there already.
      'dataset': {
        'source': {'name': 'digits'},
        'partition': {'law': 'iid', 'num_clients': 1},
      },
      'model': {'name': 'logistic_regression'},
      'algorithm': {'name': 'ditto', 'cohort_size': _COHORT_SIZE},
      'training': {'num_rounds': 10_000, 'client_states': client_states},
    },
  )


def _give_states(opened: session.Session, state: Any) -> int:
  """Saves a state of every client, a round for each block of clients.

  Returns:
    Number of rounds.
  """
  first = tf.nest.map_structure(
    lambda leaf: leaf[0], opened.store.load(np.array([0]))
  )
  num_clients = opened.source.population.num_clients
  starts = range(0, num_clients, _BLOCK)
  for round_num, start in enumerate(starts, 1):
    clients = np.arange(start, min(start + _BLOCK, num_clients))
    opened.store.stage(
      clients,
      tf.nest.map_structure(
        lambda leaf: np.repeat(leaf[np.newaxis], len(clients), axis=0),  # noqa: B023
        first,
      ),
    )
    opened.store.commit()
    opened.checkpoints.save(round_num, state, opened.store)
  return len(starts)


@contextlib.contextmanager
def _cpu_seconds(figures: dict[str, float], name: str) -> Iterator[None]:
  """Adds the CPU seconds of the block to the figures."""
  start = time.process_time()
  yield
  figures[f'{name}_cpu_seconds'] = time.process_time() - start


def _private_memory() -> float:
  """Returns this process's private memory now, MiB."""
  memory = psutil.Process().memory_info()
  return (memory.rss - memory.shared) / _MIB
