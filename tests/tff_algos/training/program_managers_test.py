"""Managers of TFF with our loop: the same states, the metrics of every round."""

import asyncio

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import csv_files, toys
from tff_algos.algorithms.fed_soft import fed_soft
from tff_algos.core import errors
from tff_algos.core.tff_compat import tff
from tff_algos.runtimes import debug_runtime
from tff_algos.training import program_managers, simulation


@pytest.fixture(name='start')
def _start():
  """Returns a function that starts the same simulation of FedSoft anew."""
  algorithm = fed_soft.build_fed_soft(
    toys.linear(3), fed_soft.FedSoftConfig(cohort_size_per_cluster=2)
  )
  source = toys.linear_clients(np.eye(3)[:2], np.eye(2)[[0, 1, 0]], [5, 3, 4])
  with debug_runtime.DebugRuntime(algorithm, 3) as runtime:
    yield lambda: simulation.Simulation(algorithm, source, runtime, seed=1)


def _states(one):
  return one.server_state, one.client_states, one.round_num


def test_a_restored_simulation_goes_on_as_the_saved_one(start, tmp_path):
  manager = tff.program.FileProgramStateManager(tmp_path)
  run = start()
  for _ in range(3):
    run.run_round()
    program_managers.save_state(manager, run)
  restored = start()
  program_managers.load_state(manager, restored)
  tf.nest.map_structure(
    np.testing.assert_array_equal, _states(restored), _states(run)
  )
  program_managers.load_state(manager, restored, round_num=1)
  for _ in range(2):
    restored.run_round()
  tf.nest.map_structure(
    np.testing.assert_array_equal, _states(restored), _states(run)
  )
  with pytest.raises(errors.CheckpointError, match=r'round 9; .* \[1, 2, 3\]'):
    program_managers.load_state(manager, restored, round_num=9)


def test_an_empty_manager_has_no_state(start, tmp_path):
  manager = tff.program.FileProgramStateManager(tmp_path)
  with pytest.raises(errors.CheckpointError, match='has no state'):
    program_managers.load_state(manager, start())


def test_metrics_of_every_round_are_released_to_all_managers(tmp_path):
  path, board = tmp_path / 'metrics.csv', tmp_path / 'board'
  observer = program_managers.Releases(
    tff.program.CSVFileReleaseManager(path),
    tff.program.TensorBoardReleaseManager(board),
  )

  async def in_a_notebook():
    observer.record(0, {'loss': 3.0})
    observer.record(1, {'loss': 2.0, 'accuracy': 0.5}, np.ones([2, 2]))
    observer.record(2, {'loss': 9.0})
    observer.resume(1, {})
    observer.record(2, {'loss': 1.0})
    assert not observer.persist()

  asyncio.run(in_a_notebook())
  rows = csv_files.read(path)
  assert [(row['key'], row['loss']) for row in rows] == [
    ('0', '3.0'),
    ('1', '2.0'),
    ('2', '1.0'),
  ]
  assert rows[1]['accuracy'] == '0.5'
  seen = [
    (event.step, value.tag)
    for file in board.iterdir()
    for event in tf.compat.v1.train.summary_iterator(str(file))
    for value in event.summary.value
  ]
  assert (1, 'accuracy') in seen and (2, 'loss') in seen
