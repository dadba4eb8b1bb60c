"""Tests of FedEM: rounds by hand, plan, costs, states and bad input.

The points of `tests.testing.points` make a round short: with the centers (0, 0)
and (2, 0), half the squared distance and equal memberships, a point at first
coordinate 1 + d is 1 / (1 + exp(2 d)) center 0's. One local step of learning
rate 1 moves a center by the mean of its share times the way to each point.
`tests/theory` compares whole trajectories with an independent implementation.
"""

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import client_data, points, toys, unigrams
from tff_algos.algorithms import fed_em
from tff_algos.core import errors, seeds
from tff_algos.numerics import optimizers, statistics
from tff_algos.stages.client import local_training, objectives, weighted_data
from tff_algos.stages.clusters import initialization

_ONE_STEP = local_training.LocalTrainingConfig(
  1, 32, optimizers.OptimizerConfig('sgd', 1.0)
)
_CENTERS = [[0, 0], [2, 0]]
# Shares of center 0: 3/4 at _NEAR, 1/2 at 1 and 1/4 at _FAR.
_NEAR, _FAR = 1 - np.log(3) / 2, 1 + np.log(3) / 2
_POINTS = [
  np.array([[_NEAR, 0]]),
  np.zeros((0, 2)),
  np.array([[_FAR, 0], [1, 1]]),
]
_SOURCE = points.clients(_POINTS)
_POPULATION = _SOURCE.population


def _build(**options):
  options = {
    'cohort_size': 2,
    'loss_scale': 0.5,
    'local_training': _ONE_STEP,
  } | options
  return fed_em.build_fed_em(points.model(2), fed_em.FedEmConfig(**options))


def _run(algorithm, source=_SOURCE, centers=_CENTERS, memberships=None):
  """Returns the centers, the memberships and the output of a round."""
  start = fed_em.ServerState({'point': np.array(centers, np.float32)})
  _, states = toys.initial_states(algorithm, source.population)
  for k, membership in (memberships or {}).items():
    states[k] = fed_em.ClientState(np.array(membership, np.float32))
  server_state, states, (output,) = toys.run_rounds(
    algorithm, source, 1, start=(start, states)
  )
  memberships = np.stack([state.membership for state in states])
  return server_state.cluster_models['point'], memberships, output


# Of client 0: by 3/4 and 1/4 of the way to its point.
_FIRST = np.array([[0.75 * _NEAR, 0], [2 + 0.25 * (_NEAR - 2), 0]])
# Of client 2: the mean of 1/4 and 1/2, and of 3/4 and 1/2, of two ways.
_SECOND = np.array(
  [
    [(0.25 * _FAR + 0.5) / 2, 0.25],
    [2 + (0.75 * (_FAR - 2) + 0.5 * (1 - 2)) / 2, 0.25],
  ]
)


@pytest.mark.parametrize(
  ('weighting', 'expected'),
  [
    ('examples', (_FIRST + 2 * _SECOND) / 3),
    ('uniform', (_FIRST + _SECOND) / 2),
  ],
)
def test_a_round_by_hand(weighting, expected):
  centers, memberships, output = _run(_build(weighting=weighting))
  np.testing.assert_allclose(centers, expected, rtol=1e-5)
  np.testing.assert_allclose(
    memberships, [[0.75, 0.25], [0.5, 0.5], [0.375, 0.625]], rtol=1e-5
  )
  # Squared distances, by share, of three points.
  own = [0.75 * _NEAR**2 + 0.25 * (2 - _NEAR) ** 2]
  own += [0.25 * _FAR**2 + 0.75 * (2 - _FAR) ** 2, 0.5 * 2 + 0.5 * 2]
  np.testing.assert_allclose(
    statistics.value_of(output.client_metrics['loss']), np.mean(own), rtol=1e-5
  )
  squares = np.square([[_NEAR, 2 - _NEAR], [_FAR, 2 - _FAR], [2**0.5] * 2])
  np.testing.assert_allclose(
    statistics.value_of(output.client_metrics['mixture_loss']),
    -np.log(0.5 * np.exp(-0.5 * squares).sum(axis=1)).mean(),
    rtol=1e-5,
  )


def test_the_e_step_weighs_by_the_clients_own_membership():
  """At first coordinate 1 both centers are as far: the membership decides."""
  source = points.clients([np.array([[1, 0]])] * 2)
  centers, memberships, _ = _run(
    _build(), source, memberships={0: [0.75, 0.25], 1: [0, 1]}
  )
  np.testing.assert_allclose(memberships, [[0.75, 0.25], [0, 1]], rtol=1e-6)
  np.testing.assert_allclose(
    centers, [[0.75 / 2, 0], [2 - (0.25 + 1) / 2, 0]], rtol=1e-6
  )


def test_loss_scale_makes_a_loss_a_likelihood():
  """Twice as scaled, the odds of 1 to 3 become 1 to 9, and the steps double."""
  source = points.clients([np.array([[_FAR, 0]])])
  centers, memberships, _ = _run(_build(cohort_size=1, loss_scale=1.0), source)
  np.testing.assert_allclose(memberships[0], [0.1, 0.9], rtol=1e-5)
  np.testing.assert_allclose(
    centers[:, 0], [2 * 0.1 * _FAR, 2 + 2 * 0.9 * (_FAR - 2)], rtol=1e-5
  )


def test_a_sentence_is_one_example_whose_likelihood_is_that_of_its_words():
  """Sentences of three words and of one; four labels in all."""
  probs = np.array([[0, 0.8, 0.2], [0, 0.5, 0.5]])
  source = unigrams.clients([[[1, 1, 2], [2, 0, 0]]])
  config = fed_em.FedEmConfig(cohort_size=1, local_training=_ONE_STEP)
  algorithm = fed_em.build_fed_em(unigrams.model(), config)
  logits = unigrams.logits(*probs)
  start = fed_em.ServerState({'logits': logits})
  _, states = toys.initial_states(algorithm, source.population)
  state, states, (output,) = toys.run_rounds(
    algorithm, source, 1, start=(start, states)
  )
  joint = 0.5 * np.array([[0.8 * 0.8 * 0.2, 0.2], [0.5**3, 0.5]])
  shares = joint / joint.sum(axis=0)
  np.testing.assert_allclose(
    states[0].membership, shares.mean(axis=1), rtol=1e-5
  )
  np.testing.assert_allclose(
    statistics.value_of(output.client_metrics['mixture_loss']),
    -np.log(joint.sum(axis=0)).sum() / 4,
    rtol=1e-5,
  )
  counts = np.array([[0, 2, 1], [0, 0, 1]])
  slopes = shares @ np.array([3, 1]) * probs.T - (shares @ counts).T
  np.testing.assert_allclose(
    state.cluster_models['logits'], logits - slopes.T / 4, rtol=1e-5
  )
  known = algorithm.newcomers.fit(
    start,
    client_data.build(source.examples(0).x, source.examples(0).y),
    tf.constant([0, 0]),
  )
  np.testing.assert_allclose(known, _likeliest(2 * joint), atol=1e-4)


def _likeliest(likelihoods):
  """Returns the best membership of two components, from a fine grid."""
  first = np.linspace(0, 1, 100001)[1:-1, np.newaxis]
  mixed = first * likelihoods[0] + (1 - first) * likelihoods[1]
  best = first[np.log(mixed).sum(axis=1).argmax(), 0]
  return [best, 1 - best]


def test_squared_distances_of_hundreds_still_tell_models_apart():
  """A point at (1, 60) is 1801 from both centers, halved and squared."""
  source = points.clients([np.array([[1, 60], [_FAR, 60]])])
  _, memberships, output = _run(_build(cohort_size=1), source)
  np.testing.assert_allclose(memberships[0], [0.375, 0.625], rtol=1e-4)
  loss = statistics.value_of(output.client_metrics['mixture_loss'])
  np.testing.assert_allclose(loss, 1800.4, atol=0.5)


@pytest.mark.parametrize(
  'optimizer',
  [
    optimizers.OptimizerConfig('sgd', 0.1, momentum=0.5),
    optimizers.OptimizerConfig('adam', 0.1),
  ],
  ids=['momentum', 'adam'],
)
def test_one_loop_solves_what_separate_loops_solve(optimizer):
  """Each model with its column of the weights, on the same batches."""
  model, config = (
    toys.linear(3),
    local_training.LocalTrainingConfig(2, 4, optimizer),
  )
  examples = toys.linear_clients(np.eye(3), np.eye(3)[:1], [10]).examples(0)
  data = client_data.build(examples.x, examples.y)
  generator = np.random.default_rng(0)
  shares = generator.dirichlet(np.ones(3), 10).astype(np.float32)
  start = generator.normal(size=(3, 3, 1)).astype(np.float32)

  def train(columns):
    weights, loss = local_training.train(
      objectives.weighted_mean_losses(model),
      {'kernel': tf.constant(start[columns])},
      weighted_data.WeightedData(data, tf.constant(shares[:, columns])),
      seeds.derive_seed(0, 'train', 1, 'c0'),
      config,
    )
    return weights['kernel'].numpy(), float(loss.total)

  together, loss = train([0, 1, 2])
  alone, losses = zip(*(train([s]) for s in range(3)), strict=True)
  np.testing.assert_allclose(together, np.concatenate(alone), rtol=1e-6)
  np.testing.assert_allclose(loss, sum(losses), rtol=1e-5)
  assert np.abs(together - start).min() > 1e-3


def test_cost_is_all_models_down_and_up():
  """2 clients, 4 models, 2 parameters."""
  (call,) = _build(num_clusters=4).plan_round(None, _POPULATION, 1, 0)
  assert call.cost == (2 * 4 * 2, 2 * 4 * 2, 2 * 4)


def test_initial_models_differ_and_memberships_are_equal():
  algorithm = _build(num_clusters=4)
  server_state, states = toys.initial_states(algorithm, _POPULATION)
  assert len(np.unique(server_state.cluster_models['point'])) == 8
  for state in states:
    np.testing.assert_array_equal(state.membership, [0.25] * 4)


def test_clients_are_served_by_the_mixture_of_the_present_models():
  algorithm = _build()
  state = fed_em.ServerState({'point': tf.constant(_CENTERS, tf.float32)})
  client_state = fed_em.ClientState(tf.constant([0.25, 0.75]))
  arguments = (state, client_state, tf.constant(7))
  weights = algorithm.personalized_weights(*arguments)
  # The way from the mixture (1.5, 0) of the centers.
  np.testing.assert_allclose(
    algorithm.personalized_model.apply(weights, tf.constant([[2.0, 3]])),
    [[0.5, 3]],
  )
  assert algorithm.membership(*arguments) is client_state.membership
  assert algorithm.cluster_weights(state) is state.cluster_models


@pytest.mark.parametrize(
  ('options', 'text'),
  [
    ({'num_clusters': 0}, 'num_clusters must be an integer >= 1, got 0'),
    ({'cohort_size': -1}, 'cohort_size must be an integer >= 0, got -1'),
    ({'weighting': 'size'}, "weighting must be one of 'uniform', 'examples'"),
    ({'loss_scale': 0.0}, 'loss_scale must be a finite number > 0, got 0.0'),
    (
      {
        'local_training': local_training.LocalTrainingConfig(
          optimizer=optimizers.OptimizerConfig(clip_norm=0.5)
        )
      },
      'clip_norm must be 0, got 0.5: it limits the norm over all 2 models',
    ),
  ],
)
def test_options_out_of_range_are_refused(options, text):
  with pytest.raises(errors.ConfigError, match=text):
    fed_em.FedEmConfig(**options)


def test_kmeans_comes_before_the_first_round():
  """Two clients have points, so their means are the two first models.

  Round 2 is the round by hand of these centers: their names may be swapped.
  """
  algorithm = _build(
    initialization=initialization.InitializationConfig('k-means++')
  )
  start = toys.initial_states(algorithm, _POPULATION)
  seeded, states, _ = toys.run_rounds(algorithm, _SOURCE, 1, start=start)
  server_state, _, _ = toys.run_rounds(
    algorithm, _SOURCE, 1, start=(seeded, states), first_round=2
  )
  centers = seeded.cluster_models['point']
  means = [_POINTS[0].mean(axis=0), _POINTS[2].mean(axis=0)]
  np.testing.assert_allclose(np.sort(centers, axis=0), np.sort(means, axis=0))
  expected, _, _ = _run(_build(), centers=centers)
  np.testing.assert_allclose(
    server_state.cluster_models['point'], expected, rtol=1e-6
  )
