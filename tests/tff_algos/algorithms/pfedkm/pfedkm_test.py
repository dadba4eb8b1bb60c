"""Tests of pFedKM: rounds by hand, edge cases, plan, costs, what is served.

The points of `tests.testing.points` make a round short: with a = lambda = 1 one
solver step of rate 1/2 ends in theta = (c + w) / 2, the middle of the client's
mean c and the model w; with a client learning rate of 1, w goes there, too.
"""

import warnings

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import points, toys
from tff_algos.algorithms.pfedkm import pfedkm, regrouping
from tff_algos.core import errors
from tff_algos.rounds import phase_types
from tff_algos.stages.client import moreau_envelope

_HALF_WAY = moreau_envelope.MoreauEnvelopeConfig(
  num_local_steps=1,
  batch_size=32,
  client_learning_rate=1.0,
  proximal_weight=1.0,
  num_proximal_steps=1,
  personal_learning_rate=0.5,
)
# Their means: (0, 4), (0, 8), (20, 0), none, (24, 0), (28, 0).
_POINTS = [
  np.array([[-1, 4], [1, 4]]),
  np.array([[0, 8]]),
  np.array([[20, 1], [20, -1], [20, 0]]),
  np.zeros((0, 2)),
  np.array([[24, 0]]),
  np.array([[28, 0]]),
]
_SOURCE = points.clients(_POINTS)


def _build(training=_HALF_WAY, **options):
  options = {
    'num_clusters': 2,
    'loss_scale': 0.5,
    'k_means': regrouping.KMeansConfig(num_restarts=2),
  } | options
  return pfedkm.build_pfedkm(
    points.model(2), pfedkm.PFedKMConfig(local_training=training, **options)
  )


def _start(algorithm, models, assignment=None, source=_SOURCE):
  state, states = toys.initial_states(algorithm, source.population)
  state = state._replace(cluster_models={'point': np.array(models, np.float32)})
  if assignment is not None:
    state = state._replace(cluster_assignment=np.array(assignment, np.int32))
  return state, states


def _run(algorithm, start, num_rounds=1, source=_SOURCE):
  """Returns models, assignment, thetas and the last output."""
  state, states, outputs = toys.run_rounds(
    algorithm, source, num_rounds, start=start
  )
  thetas = np.stack([one.personalized_weights['point'] for one in states])
  return (
    state.cluster_models['point'],
    state.cluster_assignment,
    thetas,
    outputs[-1],
  )


_ZEROS = [[0, 0], [0, 0]]


def test_round_by_hand():
  """From (0, 0), clients upload half their means; 0 and 1 lie together. Of
  clients 0, 1, 2, 4, 5, in clusters 0, 1, 0, 0, 1, most keep their number if
  {2, 4, 5} becomes cluster 0.
  """
  algorithm = _build()
  models, assignment, thetas, output = _run(
    algorithm, _start(algorithm, _ZEROS)
  )
  np.testing.assert_allclose(models, [[12, 0], [0, 3]], atol=1e-5)
  assert assignment.tolist() == [1, 1, 0, 1, 0, 0]
  expected = [[0, 2], [0, 4], [10, 0], [0, 0], [12, 0], [14, 0]]
  np.testing.assert_allclose(thetas, expected, atol=1e-5)
  metrics = output.server_metrics
  # 2 * 1 within {0, 1}; 4 + 0 + 4 within {2, 4, 5}.
  np.testing.assert_allclose(metrics['k_means_inertia'], 2 + 8, rtol=1e-5)
  assert metrics['moved_clients'] == 2 / 5
  # From 0: one of two, two of three; Q - I = [[-1/3, 1/2], [1/3, -1/2]].
  np.testing.assert_allclose(
    metrics['transition_distance'], np.sqrt(2 * (1 / 9 + 1 / 4))
  )
  np.testing.assert_allclose(
    metrics['cluster_model_distance'], np.hypot(12, 3), rtol=1e-5
  )
  np.testing.assert_allclose(
    metrics['local_model_distance_within'], (2 + 2 + 2 + 4) / 4, rtol=1e-5
  )
  assert metrics['num_empty_clusters'] == 0


def test_next_round_starts_from_the_own_cluster_model():
  algorithm = _build()
  start = _start(algorithm, [[12, 0], [0, 3]], [1, 1, 0, 1, 0, 0])
  models, assignment, thetas, output = _run(algorithm, start)
  assert assignment.tolist() == [1, 1, 0, 1, 0, 0]
  np.testing.assert_allclose(thetas[0], [0, 3.5], atol=1e-5)
  np.testing.assert_allclose(models, [[18, 0], [0, 4.5]], atol=1e-5)
  assert output.server_metrics['moved_clients'] == 0
  assert output.server_metrics['transition_distance'] == 0


def test_mixing_and_weighting_by_examples():
  """Cluster 0: (3 * 10 + 12 + 14) / 5; cluster 1: (2 * 2 + 4) / 3."""
  algorithm = _build(server_mixing=0.25, weighting='examples')
  models, _, _, _ = _run(algorithm, _start(algorithm, [[4, 4]] * 2))
  # Started from (4, 4), all uploads lie (2, 2) farther.
  means = np.array([[56 / 5, 0], [0, 8 / 3]]) + 2
  np.testing.assert_allclose(models, 0.75 * 4 + 0.25 * means, rtol=1e-5)


def test_labels_of_k_means_do_not_matter():
  """Another seed numbers the same clusters otherwise; the round ends alike."""
  algorithm = _build(server_mixing=0.5)
  state, states = _start(algorithm, [[12, 0], [0, 3]], [1, 1, 0, 1, 0, 0])
  raw, ends = set(), []
  for seed in range(6):
    state = state._replace(k_means_seed=np.array([seed, 1], np.int32))
    ends.append(_run(algorithm, (state, states))[:2])
    values = {'point': tf.constant([[0.0, 0], [9, 9], [9, 8]])}
    uploads = regrouping.aggregation.Collected(
      values, tf.range(3), tf.fill([3], True)
    )
    clusters = regrouping.cluster_uploads(
      uploads,
      tf.nest.map_structure(tf.constant, state.cluster_models),
      tf.constant([0, 0, 0]),
      tf.constant(state.k_means_seed),
      regrouping.KMeansConfig(num_restarts=1),
    )
    raw.add(tuple(clusters.assignment.numpy()))
  assert raw == {(0, 1, 1), (1, 0, 0)}
  for models, assignment in ends[1:]:
    np.testing.assert_allclose(models, ends[0][0], rtol=1e-6)
    np.testing.assert_array_equal(assignment, ends[0][1])


def test_the_seed_of_k_means_is_the_same_in_every_round():
  algorithm = _build(k_means=regrouping.KMeansConfig(num_restarts=2))
  start = _start(algorithm, _ZEROS)
  ends = [
    toys.run_rounds(algorithm, _SOURCE, num_rounds, start=start)[0]
    for num_rounds in (1, 2, 3)
  ]
  assert len({tuple(end.k_means_seed) for end in (start[0], *ends)}) == 1
  # Clusters as far apart as these are found from every seed.
  for end in ends:
    assert end.cluster_assignment[[0, 1, 2, 4, 5]].tolist() == [1, 1, 0, 0, 0]


@pytest.mark.parametrize('initialization', regrouping.INITIALIZATIONS)
def test_cluster_that_loses_its_clients_keeps_its_model(initialization):
  """Two distinct uploads, three clusters; with beta 1 it must not become 0."""
  source = points.clients([np.array([[0, 0]])] * 2 + [np.array([[8, 8]])] * 2)
  algorithm = _build(
    num_clusters=3,
    k_means=regrouping.KMeansConfig(
      num_restarts=2, initialization=initialization
    ),
  )
  start = _start(algorithm, [[2, 2]] * 3, source=source)
  models, assignment, _, output = _run(algorithm, start, source=source)
  assert output.server_metrics['num_empty_clusters'] == 1
  assert len({*assignment}) == 2
  (empty,) = {0, 1, 2} - {*assignment}
  np.testing.assert_array_equal(models[empty], [2, 2])
  np.testing.assert_allclose(models[assignment[0]], [1, 1], rtol=1e-5)
  np.testing.assert_allclose(models[assignment[2]], [5, 5], rtol=1e-5)


def test_if_all_uploads_are_the_same_everybody_stays():
  source = points.clients([np.array([[8, 8]])] * 4)
  algorithm = _build()
  start = _start(algorithm, [[2, 2]] * 2, [1, 0, 1, 1], source)
  models, assignment, _, output = _run(algorithm, start, source=source)
  assert assignment.tolist() == [1, 0, 1, 1]
  np.testing.assert_allclose(models, [[5, 5]] * 2, rtol=1e-6)
  assert output.server_metrics['transition_distance'] == 0
  assert output.server_metrics['cluster_model_distance'] == 0


def test_as_many_clusters_as_clients_leave_each_alone():
  """Two rounds: theta and w go 1 - (1/2)^2 of the way from 0."""
  source = points.clients([one for one in _POINTS if len(one)])
  algorithm = _build(num_clusters=5)
  start = _start(algorithm, [[0, 0]] * 5, source=source)
  models, assignment, thetas, _ = _run(algorithm, start, 2, source)
  assert sorted(assignment) == [0, 1, 2, 3, 4]
  means = np.array([[0, 4], [0, 8], [20, 0], [24, 0], [28, 0]])
  np.testing.assert_allclose(models[assignment], 0.75 * means, atol=1e-5)
  np.testing.assert_allclose(thetas, 0.75 * means, atol=1e-5)


@pytest.mark.parametrize('cluster', [0, 1])
def test_a_client_with_nan_keeps_its_cluster_and_is_in_no_mean(cluster):
  """With either numbers of the others' clusters: one is not k-means' own."""
  other = 1 - cluster
  before = [cluster, cluster, other, cluster, other, cluster]
  source = points.clients(_POINTS)
  source.examples(5).x[0, 1] = np.nan
  algorithm = _build()
  start = _start(algorithm, _ZEROS, before)
  models, assignment, thetas, output = _run(algorithm, start, source=source)
  assert output.num_invalid == 1
  assert assignment.tolist() == before
  np.testing.assert_array_equal(thetas[5], [0, 0])
  np.testing.assert_allclose(
    models[assignment[[0, 2]]], [[0, 3], [11, 0]], atol=1e-5
  )


def test_absent_clients_keep_their_cluster():
  algorithm = _build(cohort_size=3)
  start = _start(algorithm, _ZEROS, [1, 1, 1, 1, 0, 1])
  (call,) = algorithm.plan_round(start[0], _SOURCE.population, 1, 0)
  _, assignment, thetas, _ = _run(algorithm, start)
  absent = np.setdiff1d(np.arange(6), call.client_indices)
  assert len(absent) == 3
  before = start[0].cluster_assignment
  np.testing.assert_array_equal(assignment[absent], before[absent])
  assert not thetas[absent].any()
  assert thetas[call.client_indices].any(axis=1).all()


def test_clustering_on_theta_finds_the_same_and_averages_local_models():
  """A client learning rate of 1/2 keeps w and theta apart."""
  training = moreau_envelope.MoreauEnvelopeConfig(
    **{**vars(_HALF_WAY), 'client_learning_rate': 0.5}
  )
  algorithm = _build(training, cluster_on='personalized_model')
  models, assignment, _, output = _run(algorithm, _start(algorithm, _ZEROS))
  assert assignment.tolist() == [1, 1, 0, 1, 0, 0]
  np.testing.assert_allclose(models, [[6, 0], [0, 1.5]], atol=1e-5)
  inertia = output.server_metrics['k_means_inertia']
  np.testing.assert_allclose(inertia, 10, rtol=1e-5)


def test_clients_receive_their_own_clusters_model_and_no_other():
  algorithm = _build(num_clusters=3)
  models = np.array([[0, 1], [2, 3], [4, 5]])
  state, _ = _start(algorithm, models, [2, 0, 1, 1, 2, 0])
  (call,) = algorithm.plan_round(state, _SOURCE.population, 7, 0)
  assert call.client_indices.tolist() == [0, 1, 2, 4, 5]
  np.testing.assert_array_equal(
    call.client_inputs['point'], models[[2, 0, 1, 2, 0]]
  )
  assert algorithm.phases['train'].make_message(state) == ()


@pytest.mark.parametrize(
  ('options', 'fields'),
  [
    ({}, ['local_weights', 'client_weight']),
    (
      {'cluster_on': 'personalized_model'},
      ['local_weights', 'client_weight', 'personalized_weights'],
    ),
    (
      {'num_clusters': 1, 'cluster_on': 'personalized_model'},
      ['local_weights', 'client_weight'],
    ),
  ],
)
def test_no_theta_and_no_example_leaves_a_client_unasked(options, fields):
  algorithm = _build(**options)
  types = phase_types.check_algorithm(algorithm)['train']
  assert list(types.output.result) == fields
  for leaf in tf.nest.flatten(types.output.result):
    assert leaf.shape in ([2], [])


@pytest.mark.parametrize(
  ('options', 'uploaded'),
  [
    ({}, 2),
    ({'weighting': 'examples'}, 3),
    ({'cluster_on': 'personalized_model'}, 4),
    ({'num_clusters': 1}, 2),
    ({'num_clusters': 1, 'cluster_on': 'personalized_model'}, 2),
  ],
)
def test_cost_is_a_model_down_and_a_model_up(options, uploaded):
  """5 clients with examples, 2 parameters, 4 solves each."""
  training = moreau_envelope.MoreauEnvelopeConfig(num_local_steps=4)
  algorithm = _build(training, **options)
  state, _ = toys.initial_states(algorithm, _SOURCE.population)
  (call,) = algorithm.plan_round(state, _SOURCE.population, 1, 0)
  assert call.cost == (5 * 2, 5 * uploaded, 5 * 4)


def test_initial_models_are_equal_and_clients_are_dealt_out():
  algorithm = _build(num_clusters=4)
  state, states = toys.initial_states(algorithm, _SOURCE.population)
  models = state.cluster_models['point']
  np.testing.assert_array_equal(models, [models[0]] * 4)
  assert models.any()
  assert state.cluster_assignment.tolist() == [0, 1, 2, 3, 0, 1]
  assert all(one.num_updates == 0 for one in states)


def test_clients_are_served_theta_or_their_clusters_model():
  algorithm = _build()
  state, states = _start(algorithm, [[5, 5], [7, 7]])
  trained = moreau_envelope.ClientState(
    {'point': tf.constant([1.0, 2.0])}, tf.constant(1)
  )

  def served(client_state):
    weights = algorithm.personalized_weights(
      state, client_state, tf.constant(3)
    )
    return weights['point'].numpy().tolist()

  assert served(states[3]) == [7, 7]
  assert served(trained) == [1, 2]
  assert algorithm.membership(state, trained, 3).numpy().tolist() == [0, 1]
  assert algorithm.cluster_weights(state) is state.cluster_models


def test_local_models_are_kept_only_if_asked_for():
  assert _build().local_weights is None
  training = moreau_envelope.MoreauEnvelopeConfig(
    **{**vars(_HALF_WAY), 'client_learning_rate': 0.5, 'kept': 'both'}
  )
  algorithm = _build(training)
  state, states = _start(algorithm, [[5, 5], [7, 7]])
  trained = states[0]._replace(
    num_updates=tf.constant(1), local_weights={'point': tf.constant([3.0, 4])}
  )
  for client_state, expected in ((states[0], [7, 7]), (trained, [3, 4])):
    local = algorithm.local_weights(state, client_state, tf.constant(1))
    np.testing.assert_array_equal(local['point'], expected)


def test_more_clusters_than_clients_are_refused():
  algorithm = _build(num_clusters=7)
  with pytest.raises(errors.ConfigError, match='is 7, but .* only 6 clients'):
    _run(algorithm, _start(algorithm, [[0, 0]] * 7))


@pytest.mark.parametrize(
  ('options', 'text'),
  [
    ({'num_clusters': 0}, 'num_clusters must be an integer >= 1, got 0'),
    ({'cohort_size': -1}, 'cohort_size must be an integer >= 0, got -1'),
    ({'cohort_size': 1}, 'cohort_size is 1, fewer than num_clusters, 2'),
    ({'cluster_on': 'theta'}, "cluster_on must be one of 'local_model', 'pers"),
    ({'weighting': 'size'}, "weighting must be one of 'uniform', 'examples'"),
    ({'server_mixing': 0.0}, 'server_mixing must be a finite number > 0'),
    ({'loss_scale': -1.0}, 'loss_scale must be a finite number > 0, got -1.0'),
  ],
)
def test_options_out_of_range_are_refused(options, text):
  with pytest.raises(errors.ConfigError, match=text):
    pfedkm.PFedKMConfig(**options)


def test_mixing_beyond_the_theory_is_warned_of():
  with warnings.catch_warnings():
    warnings.simplefilter('error')
    pfedkm.PFedKMConfig(server_mixing=2.0)
  with pytest.warns(UserWarning, match='server_mixing is 2.5'):
    pfedkm.PFedKMConfig(server_mixing=2.5)


def test_unknown_weights_to_cluster_on_are_refused():
  text = "k_means.weight_names: 'bias' is neither .* are point"
  with pytest.raises(errors.ConfigError, match=text):
    _build(k_means=regrouping.KMeansConfig(weight_names=('bias',)))


def test_weights_to_cluster_on_may_be_named_by_layer():
  """The model's one layer is all of it."""
  by_layer = regrouping.KMeansConfig(
    num_restarts=2, weight_names=('last_layer',)
  )
  runs = [
    _run(algorithm, _start(algorithm, _ZEROS))[:3]
    for algorithm in (_build(), _build(k_means=by_layer))
  ]
  for one, other in zip(*runs, strict=True):
    np.testing.assert_array_equal(one, other)
