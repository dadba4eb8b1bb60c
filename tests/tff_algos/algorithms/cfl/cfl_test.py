"""Tests of CFL: planted groups, rounds against NumPy, reductions, bad input.

On the points of `tests.testing.points` a client with mean m moves from w by
rate (m - w) in a full-batch step.
"""

import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf
from scipy.cluster import hierarchy
from scipy.spatial import distance

from tests.testing import points, toys
from tff_algos.algorithms import fed_avg
from tff_algos.algorithms.cfl import cfl, splitting
from tff_algos.core import errors
from tff_algos.numerics import optimizers
from tff_algos.stages.client import local_training

# Four groups, left and right, each above or below; 1 has no example.
_GROUPS = np.array([0, 0, 1, 2, 3, 1, 2, 0, 3, 2, 1, 3])
_SIZES = np.array([2, 0, 1, 2, 1, 2, 1, 1, 2, 1, 1, 1])
_CENTERS = np.array([[10, 1], [-10, 1], [10, -1], [-10, -1]], float)
_MEANS = _CENTERS[_GROUPS]
_SOURCE = points.clients(
  [np.repeat(m[np.newaxis], n, 0) for m, n in zip(_MEANS, _SIZES, strict=True)]
)
_NUM_CLIENTS = len(_SIZES)
_AVAILABLE = np.flatnonzero(_SIZES)
_RATE = 0.5
_NUM_ROUNDS = 16
_TRAINING = local_training.LocalTrainingConfig(
  1, 8, optimizers.OptimizerConfig('sgd', _RATE)
)


def _build(**options):
  options = {
    'splitting': splitting.SplittingConfig(0.2, 0.3, first_round=2),
    'loss_scale': 0.5,
    'local_training': _TRAINING,
  } | options
  return cfl.build_cfl(points.model(2), cfl.CflConfig(**options))


def _run(algorithm, num_rounds=_NUM_ROUNDS):
  with toys.graph_runtime(algorithm, _NUM_CLIENTS) as runtime:
    return toys.run_rounds(algorithm, _SOURCE, num_rounds, runtime=runtime)


@functools.cache
def _planted(num_clusters):
  """Returns the server state after all rounds, and the outputs."""
  server_state, _, outputs = _run(_build(num_clusters=num_clusters))
  return server_state, outputs


def _oracle(start, num_clusters, config, num_rounds):
  """Algorithm 1 in NumPy; members of a cluster are numbers of all clients."""
  models = {0: np.array(start, np.float64)}
  clusters = {0: _AVAILABLE}
  counts = []
  for round_num in range(1, num_rounds + 1):
    for s in range(len(clusters)):
      members = clusters[s]
      updates = _RATE * (models[s] - _MEANS[members])
      mean = np.average(updates, axis=0, weights=_SIZES[members])
      if (
        round_num >= config.first_round
        and np.linalg.norm(mean) < config.mean_norm_below
        and np.linalg.norm(updates, axis=1).max() > config.largest_norm_above
        and len(members) > 2
        and len(clusters) < num_clusters
      ):
        tree = hierarchy.linkage(distance.pdist(updates, 'cosine'), 'complete')
        labels = hierarchy.fcluster(tree, 2, 'maxclust')
        second = members[labels != labels[0]]
        models[len(clusters)] = models[s]
        clusters[s] = members[labels == labels[0]]
        clusters[len(clusters)] = second
    for s, members in clusters.items():
      weights = _SIZES[members]
      target = np.average(_MEANS[members], axis=0, weights=weights)
      models[s] = models[s] - _RATE * (models[s] - target)
    counts.append(len(clusters))
  assignment = np.zeros(_NUM_CLIENTS, int)
  for s, members in clusters.items():
    assignment[members] = s
  return models, assignment, counts


def _start(algorithm):
  server_state, _ = toys.initial_states(algorithm, _SOURCE.population)
  return server_state.cluster_models['point'][0]


@pytest.mark.parametrize(
  'num_clusters', [3, pytest.param(6, marks=pytest.mark.verify)]
)
def test_planted_groups_are_found_as_in_numpy(num_clusters):
  """Left from right, then above from below. Three models are too few for it."""
  algorithm = _build(num_clusters=num_clusters)
  server_state, outputs = _planted(num_clusters)
  models, assignment, counts = _oracle(
    _start(algorithm),
    num_clusters,
    splitting.SplittingConfig(0.2, 0.3, first_round=2),
    _NUM_ROUNDS,
  )
  found = server_state.cluster_assignment
  np.testing.assert_array_equal(found, assignment)
  assert [
    int(output.server_metrics['num_active_clusters']) for output in outputs
  ] == counts
  used = np.stack([models[s] for s in range(counts[-1])])
  np.testing.assert_allclose(
    server_state.cluster_models['point'][: len(used)],
    used,
    rtol=1e-4,
    atol=1e-5,
  )
  if num_clusters == 6:
    assert counts[0] == 1 and counts[-1] == 4
    same = _GROUPS[:, np.newaxis] == _GROUPS
    known = np.ix_(_AVAILABLE, _AVAILABLE)
    np.testing.assert_array_equal(
      (found[:, np.newaxis] == found)[known], same[known]
    )


def test_clusters_that_are_not_in_use_equal_cluster_0():
  server_state, _ = _planted(6)
  stacked = server_state.cluster_models['point']
  np.testing.assert_array_equal(stacked[4:], np.tile(stacked[0], (2, 1)))
  assert len(np.unique(stacked[:4], axis=0)) == 4


@pytest.mark.parametrize(
  'options',
  [
    {'num_clusters': 1},
    pytest.param(
      {'splitting': splitting.SplittingConfig(1e-9, 0.0)},
      marks=pytest.mark.verify,
    ),
  ],
)
def test_without_a_split_it_is_fed_avg(options):
  """Here with momentum that clients keep, which makes either overshoot."""
  training = dataclasses.replace(
    _TRAINING,
    optimizer=optimizers.OptimizerConfig('sgd', _RATE, momentum=0.5),
    keeps_optimizer_state=True,
  )
  server_state, _, _ = _run(_build(local_training=training, **options), 3)
  config = fed_avg.FedAvgConfig(
    cohort_size=len(_AVAILABLE), loss_scale=0.5, local_training=training
  )
  expected, _, _ = _run(fed_avg.build_fed_avg(points.model(2), config), 3)
  for model in server_state.cluster_models['point']:
    np.testing.assert_allclose(
      model, expected.model_weights['point'], rtol=1e-5
    )


def test_uniform_weighting_counts_clients():
  algorithm = _build(weighting='uniform')
  server_state, _, _ = _run(algorithm, 1)
  start = _start(algorithm)
  expected = start + _RATE * (_MEANS[_AVAILABLE].mean(axis=0) - start)
  np.testing.assert_allclose(
    server_state.cluster_models['point'][0], expected, rtol=1e-5
  )


def test_everybody_gets_its_own_clusters_model_and_is_served_by_it():
  algorithm = _build(num_clusters=6)
  server_state, _ = _planted(6)
  models = server_state.cluster_models['point']
  assignment = server_state.cluster_assignment
  (call,) = algorithm.plan_round(server_state, _SOURCE.population, 17, 0)
  assert call.client_indices.tolist() == _AVAILABLE.tolist()
  np.testing.assert_array_equal(
    call.client_inputs['point'], models[assignment[_AVAILABLE]]
  )
  assert call.cost == (22, 22, 11)
  for k in (2, 3):
    index = tf.constant(k)
    served = algorithm.personalized_weights(server_state, (), index)['point']
    np.testing.assert_array_equal(served, models[assignment[k]])
    membership = algorithm.membership(server_state, (), index)
    assert np.argmax(membership) == assignment[k]
  assert assignment[2] != assignment[3]


@pytest.mark.parametrize(
  ('options', 'text'),
  [
    ({'num_clusters': 0}, 'num_clusters must be an integer >= 1, got 0'),
    ({'weighting': 'size'}, "weighting must be one of 'uniform', 'examples'"),
    ({'loss_scale': 0.0}, 'loss_scale must be a finite number > 0, got 0.0'),
  ],
)
def test_options_out_of_range_are_refused(options, text):
  with pytest.raises(errors.ConfigError, match=text):
    cfl.CflConfig(**options)
