"""Clusters that a partition by classes has planted, in the evaluation of a run."""

import numpy as np

from pipelines import build_dataset
from tests.testing import raw_data, toys
from tff_algos.algorithms import registry as algorithms
from tff_algos.data import dataset as dataset_lib
from tff_algos.data import schema
from tff_algos.evaluation import evaluator, recovery
from tff_algos.runtimes import client_sources
from tff_algos.training import loop

_CONFIG = {
  'distributions': {},
  'partition': {
    'law': 'class_groups',
    'num_clients': 6,
    'num_unseen_clients': 3,
    'options': {'class_groups': ((0, 1, 2), (3, 4, 5), (6, 7, 8, 9))},
  },
  'sizes': {},
}


def test_a_planted_cluster_is_a_mixture_of_one_kind(tmp_path):
  build_dataset.build(raw_data.digits_config(**_CONFIG), tmp_path)
  model = toys.build({'name': 'logistic_regression'}, (8, 8, 1), 10)
  algorithm = algorithms.build_algorithm(
    algorithms.parse_config({'name': 'fed_soft', 'num_clusters': 3}), model
  )
  with dataset_lib.FederatedDataset.open(tmp_path) as dataset:
    source = client_sources.DatasetSource(dataset, schema.TRAIN)
    store = loop.build_store(
      algorithm, source.population, 0, tmp_path / 'states', 'memory'
    )
    memberships = np.random.default_rng(3).uniform(0.1, 1, [6, 3])
    state = loop.initial_server_state(algorithm, 6, 0)._replace(
      importance_weights=memberships.astype(np.float32)
    )
    with toys.graph_runtime(algorithm, 6) as runtime:
      judge = evaluator.Evaluator(algorithm, dataset, runtime, store)
      found = judge.evaluate(state)
    assert dataset.true_mixture() is None
    planted = dataset.true_clusters()
    everyone = [*planted, *dataset.true_clusters('unseen')]
    assert judge.planted.names == tuple(
      f'planted cluster {i}' for i in range(3)
    )
    np.testing.assert_array_equal(judge.planted.mixture.argmax(1), planted)
  expected = recovery.recovery(memberships.argmax(1), planted)
  for name, value in expected._asdict().items():
    metric = found.metrics[f'participating/membership/{name}']
    np.testing.assert_allclose(metric, value, err_msg=name)
  for row, cluster in zip(found.clients, everyone, strict=True):
    assert [row[f'true_mixture_{m}'] for m in range(3)] == [
      m == cluster for m in range(3)
    ]
