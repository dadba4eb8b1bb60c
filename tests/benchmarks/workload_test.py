import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import algorithms, cases, preparation
from benchmarks import workload as workload_lib
from tff_algos.rounds import aggregation

_WORKLOAD = workload_lib.Workload(
  num_clients=3, num_examples=6, batch_size=2, input_shape=(4, 4, 1)
)


def test_clients_of_a_planted_cluster_share_its_patterns():
  workload = dataclasses.replace(
    _WORKLOAD,
    algorithm='ifca',
    num_clusters=2,
    num_clients=4,
    num_examples=2000,
    num_classes=2,
  )
  x, y = workload.examples()
  means = [
    [images[labels == label].mean(axis=0) for label in range(2)]
    for images, labels in zip(x, y, strict=True)
  ]
  gaps = [np.abs(np.subtract(means[0], other)).max() for other in means]
  # A mean of about 1000 images has a standard error of 0.006, a pattern 0.2.
  assert gaps[2] < 0.05
  assert min(gaps[1], gaps[3]) > 0.1


@pytest.mark.parametrize('algorithm', ['fed_avg', 'fed_soft', 'ifca', 'pfedkm'])
def test_inputs_are_read_as_they_were_prepared(tmp_path, algorithm):
  workload = dataclasses.replace(_WORKLOAD, algorithm=algorithm)
  preparation.prepare(workload, tmp_path, num_rounds=2)
  inputs = workload_lib.Inputs(tmp_path)
  assert inputs.workload == workload
  clusters = () if algorithm == 'fed_avg' else (4,)
  kernel = inputs.initial_weights['dense_0/kernel']
  assert kernel.shape == (*clusters, 16, 200)
  orders = np.stack([inputs.order(1), inputs.order(2)])
  assert orders.shape == (2, 3, 3, 2)
  # An epoch: every row once; another order in another round.
  np.testing.assert_array_equal(
    np.sort(orders.reshape(2, 3, 6)), np.tile(np.arange(6), (2, 3, 1))
  )
  assert np.any(orders[0] != orders[1])


@pytest.mark.parametrize('case', cases.CASES.values(), ids=lambda c: c.name)
def test_a_measure_is_of_the_case_and_has_none_but_itself(case):
  for entry in case.entries:
    if entry.measure is not None:
      measure = case.entries[entry.measure]
      assert measure.measure in (None, entry.measure)
  labels = [entry.label for entry in case.entries]
  assert len(set(labels)) == len(labels)


def test_pfedkm_without_k_means_averages_the_clusters_that_it_starts_with():
  """The same uploads; the clients of cluster k are those k, k + 2, ..."""
  ends = []
  for name in ('pfedkm', 'pfedkm_without_k_means'):
    workload = dataclasses.replace(
      _WORKLOAD, algorithm=name, num_clusters=2, num_clients=4, model='linear'
    )
    algorithm = algorithms.build_algorithm(workload)
    phase = algorithm.phases['train']
    state = algorithm.init_server_state(tf.constant([1, 2]), 4)
    uploads = tf.nest.map_structure(
      lambda leaf: (
        tf.reshape(
          tf.constant([0.0, 1, 10, 11]), [4] + [1] * (len(leaf.shape) - 1)
        )
        * tf.ones([4, *leaf.shape[1:]])
      ),
      state.cluster_models,
    )
    collected = [
      aggregation.Collected(one, tf.range(4), tf.fill([4], True))
      for one in (uploads, tf.ones([4]))
    ]
    after, _ = phase.server_update(
      state, dict(zip(phase.aggregation, collected, strict=True))
    )
    for leaf in tf.nest.flatten(after.cluster_models):
      models = np.reshape(leaf, [2, -1])
      ends.append(sorted(models[:, 0]))
      np.testing.assert_array_equal(models, models[:, :1] + 0 * models)
  np.testing.assert_allclose(ends, [[0.5, 10.5]] * 2 + [[5, 6]] * 2, rtol=1e-6)
