"""TF_CONFIG as it comes: from operators, and from a person's fingers."""

import json

import numpy as np
import pytest

from tff_algos.core import errors
from tff_algos.runtimes.distributed import process_cluster

_TWO = {'worker': ['10.0.0.7:8000', 'worker-1.jobs:8000']}


def _read(jobs, task):
  return process_cluster.from_environment(
    {'TF_CONFIG': json.dumps({'cluster': jobs, 'task': task})}
  )


def test_a_worker_finds_its_place():
  found = _read(_TWO, {'type': 'worker', 'index': 1})
  assert found == process_cluster.Cluster(
    ('10.0.0.7:8000', 'worker-1.jobs:8000'), 1
  )
  assert not found.is_leader
  assert found.name_of(1) == 'process 1 (worker-1.jobs:8000)'


def test_index_may_be_a_string():
  assert _read(_TWO, {'type': 'worker', 'index': '1'}).index == 1


def test_a_chief_comes_before_the_workers():
  jobs = {'worker': ['b:1', 'c:1'], 'chief': ['a:1']}
  found = _read(jobs, {'type': 'worker', 'index': 1})
  assert found == process_cluster.Cluster(('a:1', 'b:1', 'c:1'), 2)
  assert _read(jobs, {'type': 'chief', 'index': 0}).is_leader


@pytest.mark.parametrize(
  'text',
  ['', ' ', '{}', '{"cluster": {}}', '{"environment": "cloud"}'],
)
def test_without_a_cluster_a_process_is_alone(text):
  assert (
    process_cluster.from_environment({'TF_CONFIG': text})
    is process_cluster.ALONE
  )
  assert process_cluster.from_environment({}) is process_cluster.ALONE


def test_a_cluster_of_one_is_alone():
  alone = _read({'chief': ['a:1']}, {'type': 'chief', 'index': 0})
  assert alone is process_cluster.ALONE
  assert alone.is_leader


@pytest.mark.parametrize(
  ('text', 'words'),
  [
    ('{"cluster"', 'TF_CONFIG must be JSON, got \'{"cluster"\''),
    ('[]', r'must be a mapping .* got \[\]'),
    ('{"cluster": ["a:1"]}', 'must be a mapping with the mappings cluster'),
    ('{"cluster": {"worker": "a:1"}}', "worker must be a list .* got 'a:1'"),
    (
      '{"cluster": {"worker": ["a:1", "b"]}}',
      r"cluster.worker\[1\] must be host:port, such as .*, got 'b'",
    ),
    (
      '{"cluster": {"worker": ["a:1", 2]}}',
      r'cluster.worker\[1\] must be host:port, such as .*, got 2',
    ),
    (
      '{"cluster": {"worker": ["a:1"], "ps": ["b:1"]}}',
      "a job of TF_CONFIG cluster must be one of 'chief', 'worker', got 'ps'",
    ),
  ],
)
def test_malformed_text_is_named(text, words):
  with pytest.raises(errors.ConfigError, match=words):
    process_cluster.from_environment({'TF_CONFIG': text})


@pytest.mark.parametrize(
  'task',
  [
    {},
    {'type': 'worker'},
    {'type': 'worker', 'index': 2},
    {'type': 'worker', 'index': -1},
    {'type': 'worker', 'index': True},
    {'type': 'worker', 'index': 'one'},
    {'type': 'worker', 'index': '²'},
    {'type': 'chief', 'index': 0},
  ],
)
def test_a_task_that_is_not_listed_is_refused_with_the_list(task):
  with pytest.raises(
    errors.ConfigError,
    match=r'must name one of the tasks of cluster \(worker 0, worker 1\), got',
  ):
    _read(_TWO, task)


def test_two_processes_cannot_share_an_address():
  with pytest.raises(
    errors.ConfigError, match='address of its own, got a:1, a'
  ):
    _read({'worker': ['a:1', 'a:1']}, {'type': 'worker', 'index': 0})


@pytest.mark.parametrize(
  ('speeds', 'num_items', 'cuts'),
  [
    ((), 8, [0, 2, 5, 8]),
    ((1.0, 1.0, 1.0), 8, [0, 2, 5, 8]),
    ((), 2, [0, 0, 1, 2]),
    ((4.0, 4.0, 1.0), 18, [0, 8, 16, 18]),
    ((0.1, 0.2, 0.4), 7, [0, 1, 3, 7]),
    ((1e-9, 1.0, 1.0), 10, [0, 0, 5, 10]),
  ],
)
def test_shares_are_by_speed_and_have_every_item_once(speeds, num_items, cuts):
  cluster = process_cluster.Cluster(('a:1', 'b:1', 'c:1'), 0, speeds)
  shares = [one.tolist() for one in cluster.divide(num_items, None)]
  assert shares == [
    [*range(*one)] for one in zip(cuts[:-1], cuts[1:], strict=True)
  ]


def test_clients_are_computed_where_their_shards_are():
  shards = np.array([3, 0, 1, 4, 1])
  cluster = process_cluster.Cluster(('a:1', 'b:1', 'c:1'), owns_shards=True)
  found = [one.tolist() for one in cluster.divide(5, shards)]
  assert found == [[0, 1], [2, 3, 4], []]
  # What is in no shard all may read.
  found = [one.tolist() for one in cluster.divide(3, None)]
  assert found == [[0], [1], [2]]
