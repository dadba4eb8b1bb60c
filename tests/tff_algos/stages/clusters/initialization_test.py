"""Tests of where the cluster models start."""

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import points, toys, unigrams
from tff_algos.adversaries import attacks
from tff_algos.algorithms import ifca
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import errors, seeds
from tff_algos.numerics import optimizers
from tff_algos.rounds import plans
from tff_algos.runtimes import debug_runtime
from tff_algos.stages.client import local_training
from tff_algos.stages.clusters import initialization

_MODEL = toys.linear(3)


def _kernels(num_clusters, seed):
  weights = initialization.cluster_models(
    _MODEL, num_clusters, tf.constant(seed)
  )
  return weights['kernel'].numpy()


def test_every_cluster_has_a_draw_of_its_own():
  kernels = _kernels(4, [3, 7])
  assert kernels.shape == (4, 3, 1)
  assert len(np.unique(kernels)) == 12


def test_draws_follow_from_the_seed_and_not_from_the_number_of_clusters():
  kernels = _kernels(4, [3, 7])
  np.testing.assert_array_equal(_kernels(4, [3, 7]), kernels)
  np.testing.assert_array_equal(_kernels(2, [3, 7]), kernels[:2])
  assert not np.any(_kernels(4, [3, 8]) == kernels)


def test_a_draw_is_the_models_own():
  """Zero biases stay zero, and the scale of the weights is that of the model."""
  weights = initialization.cluster_models(toys.mlp(), 50, tf.constant([0, 1]))
  assert not weights['dense_0/bias'].numpy().any()
  one = np.std(toys.mlp().initialize(tf.constant([0, 1]))['dense_0/kernel'])
  np.testing.assert_allclose(np.std(weights['dense_0/kernel']), one, rtol=0.2)


# One local step goes the share `rate` of the way to the mean of the points.
_POINTS = [*points.five(10), np.array([[0, 9], [0, 7]])]
_MEANS = np.nan_to_num(points.means(_POINTS))


def _build(mode, rate=1.0, num_clusters=3, cohort_size=5, **options):
  return ifca.build_ifca(
    points.model(2),
    ifca.IfcaConfig(
      num_clusters=num_clusters,
      cohort_size=cohort_size,
      loss_scale=0.5,
      local_training=local_training.LocalTrainingConfig(
        1, 32, optimizers.OptimizerConfig('sgd', rate)
      ),
      initialization=initialization.InitializationConfig(mode, **options),
    ),
  )


def _run(algorithm, seed=0, num_rounds=1, source=None):
  """Returns the first and the last server state, and the outputs."""
  source = source or points.clients(_POINTS)
  start = toys.initial_states(algorithm, source.population, seed)
  state, _, outputs = toys.run_rounds(
    algorithm, source, num_rounds, seed, start
  )
  return start[0], state, outputs


def _kmeans(num_clusters, seed, num_candidates):
  """Returns whom k-means++ draws, in plain NumPy float64."""
  generator = seeds.numpy_generator(seed, 'kmeans++', 1)
  left = [0, 1, 2, 4, 5]
  drawn = [generator.choice(left, p=[0.2] * 5)]
  while len(drawn) < num_clusters:
    left.remove(drawn[-1])
    asked = min(num_candidates or 5, len(left))
    asked = sorted(generator.choice(left, asked, replace=False))
    losses = [
      min(
        ((_POINTS[k] - _MEANS[center]) ** 2).sum(axis=1).mean()
        for center in drawn
      )
      for k in asked
    ]
    drawn.append(generator.choice(asked, p=np.array(losses) / sum(losses)))
  return drawn


@pytest.mark.parametrize('num_candidates', [0, 2])
def test_kmeans_draws_clients_by_their_losses(num_candidates):
  algorithm = _build('k-means++', num_candidates=num_candidates)
  seen = set()
  for seed in range(5):
    _, state, outputs = _run(algorithm, seed)
    drawn = _kmeans(3, seed, num_candidates)
    np.testing.assert_allclose(
      state.cluster_models['point'], _MEANS[drawn], atol=1e-5
    )
    assert len(outputs) == 5
    seen.add(tuple(drawn))
  assert len(seen) > 2


def test_kmeans_trains_all_models_from_one():
  """Half the way: the last random model is the one that all begin with."""
  first, state, _ = _run(_build('k-means++', 0.5))
  start = first.cluster_models['point'][2]
  expected = (start + _MEANS[_kmeans(3, 0, 0)]) / 2
  # Losses under other models are other losses; the first is drawn without.
  np.testing.assert_allclose(
    state.cluster_models['point'][0], expected[0], atol=1e-5
  )
  ends = (start + _MEANS[[0, 1, 2, 4, 5]]) / 2
  for center in state.cluster_models['point']:
    assert np.abs(ends - center).max(axis=1).min() < 1e-5


def test_chances_are_in_proportion_to_the_losses():
  """Of 300 seeds with client 2 first, how many draw client 5 next.

  The losses of 0, 1, 4 and 5 under (10, 0) are 102, 101, 64 and 165. One of
  the four counts is off by 4 standard deviations once in 4,000 choices of seeds.
  """
  algorithm = _build('k-means++', num_clusters=2)
  population = points.clients(_POINTS).population
  losses = np.array([102, 101, 0, 0, 64, 165], np.float32)
  counts = np.zeros(6)
  for seed in range(1500):
    plan = algorithm.plan_round(None, population, 1, seed)
    if next(plan).client_indices[0] == 2:
      asked = plan.send(None)
      assert asked.client_indices.tolist() == [0, 1, 4, 5]
      call = plan.send(ifca.ServerState((), losses))
      counts[call.client_indices[0]] += 1
  chances = losses / losses.sum()
  deviations = np.sqrt(counts.sum() * chances * (1 - chances))
  assert counts.sum() > 200
  assert (np.abs(counts - counts.sum() * chances) <= 4 * deviations).all()


def test_a_client_with_nan_seeds_nothing_and_is_not_drawn_by_its_loss():
  source = points.clients(_POINTS)
  source.examples(2).x[0, 1] = np.nan
  algorithm = _build('k-means++')
  for seed in range(6):
    first, state, outputs = _run(algorithm, seed, source=source)
    found, random = (one.cluster_models['point'] for one in (state, first))
    assert np.isfinite(found).all()
    was_first = outputs[0].num_invalid == 1
    np.testing.assert_array_equal(found[0] == random[0], was_first)
    assert not (found[1:] == random[1:]).any()
    if not was_first:
      assert state.seed_losses[2] == 0


def test_a_reported_loss_is_the_mean_over_labels():
  """Three words in one sentence and one in another, under the first model."""
  source = unigrams.clients([[[1, 1, 1], [2, 0, 0]]])
  algorithm = ifca.build_ifca(
    unigrams.model(),
    ifca.IfcaConfig(
      cohort_size=1,
      initialization=initialization.InitializationConfig('k-means++'),
    ),
  )
  state = ifca.ServerState(
    {'logits': unigrams.logits([0, 0.8, 0.2], [0, 0.5, 0.5])},
    np.zeros(1, np.float32),
  )
  call = algorithm_lib.PhaseCall(
    'seed_losses',
    np.zeros(1, np.int32),
    np.ones(1, np.int32),
    algorithm_lib.Cost(),
  )
  output = toys.run_call(
    debug_runtime.DebugRuntime(algorithm, 1),
    algorithm.phases['seed_losses'],
    state,
    [()],
    call,
    (1, 0, source),
  )
  np.testing.assert_allclose(
    output.server_state.seed_losses,
    [-(3 * np.log(0.8) + np.log(0.2)) / 4],
    rtol=1e-5,
  )


def test_equal_chances_if_every_loss_is_zero():
  same = [np.ones((2, 2)), np.zeros((0, 2)), np.ones((1, 2)), np.ones((3, 2))]
  algorithm = _build('k-means++', cohort_size=3)
  source = points.clients(same)
  state, _, _ = toys.run_rounds(algorithm, source, 1)
  models = state.cluster_models['point']
  np.testing.assert_allclose(models, np.ones([3, 2]), rtol=1e-6)


def test_warm_start_averages_all_and_then_one_group_a_cluster():
  """Everybody is drawn; a client weighs its number of points."""
  algorithm = _build('warm_start', num_rounds=2, num_clusters=2)
  _, after_one, _ = _run(algorithm, num_rounds=1)
  sizes = np.array([len(one) for one in _POINTS])
  everyone = (sizes[:, np.newaxis] * _MEANS).sum(axis=0) / sizes.sum()
  np.testing.assert_allclose(
    after_one.cluster_models['point'], [everyone, everyone], rtol=1e-5
  )
  (call,) = algorithm.plan_round(None, points.clients(_POINTS).population, 2, 0)
  weights = call.client_inputs.cluster_weights
  assert call.client_indices.tolist() == [0, 1, 2, 4, 5]
  assert sorted((weights > 0).sum(axis=0)) == [2, 3]
  np.testing.assert_array_equal(weights.sum(axis=1), [2, 1, 4, 3, 2])
  _, state, _ = _run(algorithm, num_rounds=2)
  expected = [
    (column @ _MEANS[[0, 1, 2, 4, 5]]) / column.sum() for column in weights.T
  ]
  np.testing.assert_allclose(state.cluster_models['point'], expected, rtol=1e-5)


def test_warm_start_needs_a_client_for_each_cluster():
  """Five of the six have points; a sixth group would have no mean."""
  algorithm = _build('warm_start', num_rounds=1, num_clusters=6, cohort_size=0)
  population = points.clients(_POINTS).population
  with pytest.raises(errors.ConfigError, match='num_clusters is 6, but only 5'):
    list(algorithm.plan_round(None, population, 1, 0))


def test_warm_start_trains_from_one_model():
  """Half the way of a half of the way."""
  algorithm = _build('warm_start', 0.5, num_rounds=2, num_clusters=1)
  first, state, _ = _run(algorithm, num_rounds=2)
  start = first.cluster_models['point'][0]
  sizes = np.array([len(one) for one in _POINTS])
  mean = (sizes[:, np.newaxis] * _MEANS).sum(axis=0) / sizes.sum()
  np.testing.assert_allclose(
    state.cluster_models['point'][0], start / 4 + 3 * mean / 4, rtol=1e-5
  )


def test_attackers_falsify_the_warm_start():
  """An attacker sends the initial model in place of the mean of its points."""
  is_attacker = np.arange(6) == 2
  algorithm = attacks.attack(
    _build('warm_start', num_rounds=2),
    attacks.AttackConfig('zero', client_ids=('c2',)),
    is_attacker,
  )
  first, state, _ = _run(algorithm)
  start = first.cluster_models['point'][0]
  sent = np.where(is_attacker[:, np.newaxis], start, _MEANS)
  expected = np.average(sent, axis=0, weights=[len(one) for one in _POINTS])
  np.testing.assert_allclose(
    state.cluster_models['point'], [expected] * 3, rtol=1e-5
  )


def test_groups_of_the_warm_start_follow_from_the_seed():
  algorithm = _build('warm_start', num_rounds=1, num_clusters=2)
  population = points.clients(_POINTS).population

  def groups(seed):
    (call,) = algorithm.plan_round(None, population, 1, seed)
    return tuple(call.client_inputs.cluster_weights[:, 0] > 0)

  assert groups(4) == groups(4)
  assert len({groups(seed) for seed in range(10)}) > 3


@pytest.mark.parametrize(
  ('mode', 'num_rounds'), [('random', 0), ('k-means++', 1), ('warm_start', 4)]
)
def test_the_algorithms_own_rounds_come_after(mode, num_rounds):
  population = points.clients(_POINTS).population
  (expected,) = _build('random', cohort_size=3).plan_round(
    None, population, 1, 0
  )
  algorithm = _build(mode, cohort_size=3, num_rounds=max(num_rounds, 1))
  (call,) = algorithm.plan_round(None, population, num_rounds + 1, 0)
  assert call.phase == 'train'
  np.testing.assert_array_equal(call.client_indices, expected.client_indices)
  phases = {'random': 1, 'k-means++': 3, 'warm_start': 2}[mode]
  assert len(algorithm.phases) == phases


def _costs(algorithm, seed_losses=()):
  plan = algorithm.plan_round(None, points.clients(_POINTS).population, 1, 0)
  state = ifca.ServerState((), seed_losses)
  return [call.cost for call in plans.Calls(plan, state)]


def test_cost_of_kmeans():
  """Models of 2 numbers: 4 clients hear of 1 model, then 3 of 2 models."""
  costs = _costs(_build('k-means++'), np.ones(6, np.float32))
  train = (2, 2, 1)
  assert costs == [train, (4 * 1 * 2, 4, 0), train, (3 * 2 * 2, 3, 0), train]
  two = _build('k-means++', num_candidates=2)
  assert _costs(two, np.ones(6))[1] == (2 * 1 * 2, 2, 0)


def test_cost_of_a_warm_start_is_that_of_fed_avg():
  assert _costs(_build('warm_start', cohort_size=4)) == [(8, 8, 4)]
  everyone = _costs(_build('warm_start', cohort_size=0))
  assert everyone == _costs(_build('warm_start', cohort_size=5))


@pytest.mark.parametrize(
  ('options', 'text'),
  [
    ({'num_clusters': 6}, 'num_clusters is 6, but only 5 of the 6 clients'),
    (
      {'num_candidates': 6},
      'initialization.num_candidates is 6, but only 5 of the 6 clients',
    ),
  ],
)
def test_more_clients_than_have_examples_cannot_seed(options, text):
  with pytest.raises(errors.ConfigError, match=text):
    _run(_build('k-means++', **options))


@pytest.mark.parametrize(
  ('options', 'text'),
  [
    ({'mode': 'kmeans'}, "mode must be one of 'random', 'k-means\\+\\+'"),
    ({'num_candidates': -1}, 'num_candidates must be an integer >= 0'),
    ({'num_rounds': 0}, 'num_rounds must be an integer >= 1'),
  ],
)
def test_options_out_of_range_are_refused(options, text):
  with pytest.raises(errors.ConfigError, match=text):
    initialization.InitializationConfig(**options)


def test_a_cohort_smaller_than_the_clusters_cannot_be_parted():
  text = 'divides the cohort among 3 clusters, but cohort_size is 2'
  with pytest.raises(errors.ConfigError, match=text):
    _build('warm_start', cohort_size=2)
