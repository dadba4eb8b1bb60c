"""What PPFL is for special settings (Di et al., arXiv:2310.14337, Section 3)."""

import dataclasses
from collections import OrderedDict

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import ppfl_oracle, toys
from tff_algos.algorithms import fed_avg
from tff_algos.algorithms.ppfl import (
  affinity,
  membership_descent,
  ppfl,
)
from tff_algos.data import schema
from tff_algos.numerics import optimizers
from tff_algos.stages.client import local_training

_GENERATOR = np.random.default_rng(2)
_THETAS = np.array([[3.0, 0, -1], [-1, 2, 2]])
_SIZES = (7, 0, 1, 12, 5)
_MIXTURES = _GENERATOR.dirichlet(np.ones(2), len(_SIZES))
_LINEAR = toys.linear_clients(_THETAS, _MIXTURES, _SIZES)
_IMAGES = toys.image_clients(4)
_TRAINING = local_training.LocalTrainingConfig(
  2, 4, optimizers.OptimizerConfig('sgd', 0.05, momentum=0.5)
)


def _build(model, **options):
  options = {'local_training': _TRAINING, **options}
  return ppfl.build_ppfl(model, ppfl.PpflConfig(**options))


def _as_train(algorithm):
  """Returns PPFL under FedAvg's name of a round, and so with its seeds."""
  phase = algorithm.phases['joint']

  def plan_round(*arguments):
    for call in algorithm.plan_round(*arguments):
      yield dataclasses.replace(call, phase='train')

  return dataclasses.replace(
    algorithm,
    phases={'train': phase._replace(name='train')},
    plan_round=plan_round,
  )


@pytest.mark.parametrize('is_kept', [False, True])
@pytest.mark.parametrize('mode', ['outputs', 'parameters'])
def test_one_canonical_model_is_fed_avg(mode, is_kept):
  """Drawn cohorts, several epochs, short batches: all is equal but rounding.

  Also if clients keep their momentum.
  """
  training = dataclasses.replace(_TRAINING, keeps_optimizer_state=is_kept)
  options = {'mixing': mode, 'local_training': training}
  algorithm = _as_train(
    _build(toys.mlp(), num_clusters=1, cohort_size=3, **options)
  )
  state, states = toys.initial_states(algorithm, _IMAGES.population)
  found, states, outputs = toys.run_rounds(
    algorithm, _IMAGES, 3, start=(state, states)
  )
  theirs = fed_avg.build_fed_avg(
    toys.mlp(), fed_avg.FedAvgConfig(3, local_training=training)
  )
  _, their_states = toys.initial_states(theirs, _IMAGES.population)
  start = fed_avg.ServerState(
    {name: leaf[0] for name, leaf in state.model_weights['canonical'].items()}
  )
  expected, _, expected_outputs = toys.run_rounds(
    theirs, _IMAGES, 3, start=(start, their_states)
  )
  for name, leaf in expected.model_weights.items():
    np.testing.assert_allclose(
      found.model_weights['canonical'][name][0], leaf, rtol=1e-6, atol=1e-6
    )
    assert np.abs(leaf - start.model_weights[name]).max() > 1e-3
  for one, other in zip(outputs, expected_outputs, strict=True):
    np.testing.assert_allclose(
      one.client_metrics['loss'].total,
      other.client_metrics['loss'].total,
      rtol=1e-5,
    )
  assert all(one.membership.tolist() == [1] for one in states)


def _start(algorithm, source, kernels):
  state, states = toys.initial_states(algorithm, source.population)
  weights = OrderedDict(
    shared=OrderedDict(),
    canonical=OrderedDict(
      kernel=np.asarray(kernels, np.float32)[..., np.newaxis]
    ),
  )
  return state._replace(model_weights=weights), states


def test_equal_canonical_models_stay_equal_and_memberships_uniform():
  """Why every canonical model is drawn by itself."""
  algorithm = _build(toys.linear(3), loss_scale=0.5)
  state, states, _ = toys.run_rounds(
    algorithm, _LINEAR, 3, start=_start(algorithm, _LINEAR, [[1, 2, 3]] * 2)
  )
  kernels = state.model_weights['canonical']['kernel']
  np.testing.assert_array_equal(kernels[0], kernels[1])
  assert np.abs(kernels[0, :, 0] - [1, 2, 3]).max() > 0.01
  for one in states:
    np.testing.assert_allclose(one.membership, [0.5, 0.5], rtol=1e-6)
  drawn = toys.initial_states(algorithm, _LINEAR.population)[0]
  kernels = drawn.model_weights['canonical']['kernel']
  assert np.abs(kernels[0] - kernels[1]).max() > 0.01


def test_names_of_canonical_models_do_not_matter():
  """Starting from swapped models, everything ends swapped."""
  algorithm = _build(
    toys.linear(3),
    loss_scale=0.5,
    laplacian=affinity.LaplacianConfig(0.01, 'uniform'),
  )
  kernels = [[1, 2, 3], [0, -1, 1]]
  found = [
    toys.run_rounds(
      algorithm, _LINEAR, 3, start=_start(algorithm, _LINEAR, one)
    )
    for one in (kernels, kernels[::-1])
  ]
  one, other = (
    (state.model_weights['canonical']['kernel'], state.membership)
    for state, _, _ in found
  )
  np.testing.assert_allclose(one[0], other[0][::-1], rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(one[1], other[1][:, ::-1], rtol=1e-5, atol=1e-6)
  assert np.abs(one[1] - 0.5).max() > 0.01


def test_the_cohort_of_all_is_everybody():
  """However it is drawn; bit for bit where all have examples."""
  state, states, _ = toys.run_rounds(
    _build(toys.mlp(), num_clusters=2), _IMAGES, 3
  )
  drawn, drawn_states, _ = toys.run_rounds(
    _build(toys.mlp(), num_clusters=2, cohort_size=4), _IMAGES, 3
  )
  tf.nest.map_structure(
    np.testing.assert_array_equal, (state, states), (drawn, drawn_states)
  )


def test_one_hot_memberships_are_clustered_learning():
  """With a floor of 0 they stay one-hot, and each client trains its own model
  alone: FedAvg in each cluster, but that a mean is over everybody.
  """
  algorithm = _build(
    toys.linear(3),
    loss_scale=0.5,
    membership=membership_descent.MembershipConfig(floor=0.0),
  )
  state, states = _start(algorithm, _LINEAR, [[1, 2, 3], [0, -1, 1]])
  clusters = [0, 1, 0, 1, 0]
  hot = np.eye(2, dtype=np.float32)
  states = [
    one._replace(membership=hot[k])
    for one, k in zip(states, clusters, strict=True)
  ]
  after, states, _ = toys.run_rounds(
    algorithm, _LINEAR, 1, start=(state, states)
  )
  for one, k in zip(states, clusters, strict=True):
    np.testing.assert_array_equal(one.membership, hot[k])
  weights = np.array(_SIZES) / sum(_SIZES)
  before = state.model_weights['canonical']['kernel'][..., 0]
  expected = before.astype(np.float64)
  seeds_of = ppfl_oracle.seeds.derive_seed
  for i, k in enumerate(clusters):
    x, y, _ = _LINEAR.examples(i)
    local = _momentum(x, y, before[k], seeds_of(0, 'joint', 1, f'c{i:03d}'))
    expected[k] += weights[i] * (local - before[k])
  np.testing.assert_allclose(
    after.model_weights['canonical']['kernel'][..., 0],
    expected,
    rtol=1e-4,
    atol=1e-5,
  )


def _momentum(x, y, w, seed):
  """Two epochs of batches of four with a heavy ball, rate 0.05, momentum 0.5."""
  w, velocity = w.astype(np.float64), np.zeros(3)
  for rows in ppfl_oracle.index_hash.batches(seed, 2, len(y), 4):
    slope = x[rows].T @ (x[rows] @ w - y[rows]) / len(rows)
    velocity = 0.5 * velocity + 0.05 * slope
    w = w - velocity
  return w


def _settle(pull, weight):
  """Memberships after mirror steps on fixed linear losses and a penalty."""
  features = tf.ones([6, 1])
  config = affinity.LaplacianConfig(weight, 'uniform', pull)
  slopes = tf.constant(np.random.default_rng(0).normal(size=(6, 3)), tf.float32)

  @tf.function(autograph=False)
  def run():
    return tf.while_loop(
      lambda i, c: i < 4_000,
      lambda i, c: (
        i + 1,
        membership_descent.entropic_step(
          c,
          0.1 * slopes + affinity.penalty_gradients(config, features, c),
          0.05,
        ),
      ),
      (tf.constant(0), tf.fill([6, 3], 1 / 3)),
    )[1]

  return run().numpy()


def test_strong_coupling_brings_consensus_and_the_released_form_uniformity():
  """Ten times lambda: a tenth of the spread, of which some is left at the end;
  lambda d_ii c_i pulls everybody to 1 / K instead.
  """
  spreads = []
  for weight in (0.3, 3.0):
    c = _settle('laplacian', weight)
    spreads.append(np.abs(c - c.mean(axis=0)).max())
  np.testing.assert_allclose(spreads[0] / spreads[1], 10, rtol=0.3)
  assert spreads[1] < 0.02
  c = _settle('degree', 3.0)
  assert np.abs(c - 1 / 3).max() < 0.02
  assert np.abs(_settle('laplacian', 3.0) - 1 / 3).max() > 0.05


def test_uniform_affinity_is_the_penalty_of_a_mixed_model():
  """Theorem 3: with b_i = theta c_i, lambda = 1 / M and random effects of
  covariance theta theta', both penalties are sum_i (b_i - b)' G+ (b_i - b).
  """
  for num_canonical, num_features in ((2, 5), (4, 4)):
    theta = _GENERATOR.normal(size=(num_features, num_canonical))
    c = _GENERATOR.dirichlet(np.ones(num_canonical), 7)
    effects = c @ theta.T
    centered = effects - effects.mean(axis=0)
    inverse = np.linalg.pinv(theta)
    expected = np.sum((centered @ inverse.T) ** 2)
    found = affinity.disagreement(tf.ones([7, 1], tf.float64), tf.constant(c))
    np.testing.assert_allclose(found / 7, expected, rtol=1e-9)


def test_collaborative_regressions_are_ppfl():
  """Lin et al. 2017: squared errors of x' theta c_i. Feng et al. 2020: the
  negative log-likelihood (the minus is missing in print) of a binary logistic
  regression. The objective that the library measures is theirs.
  """
  x, y, source = _LINEAR.examples(3)
  labels = (y > 0).astype(np.int32)
  c = np.array([0.3, 0.7])
  theta = _GENERATOR.normal(size=(2, 3))
  z = x @ (c @ theta)
  expected = {
    'linear': np.mean((y - z) ** 2),
    'logistic': -np.mean(
      labels * np.log(1 / (1 + np.exp(-z)))
      + (1 - labels) * np.log(1 / (1 + np.exp(z)))
    ),
  }
  logistic = toys.build(
    {'name': 'logistic_regression', 'use_bias': False}, (3,), 2
  )
  # The logit of class 0 is 0.
  kernels = np.stack([np.zeros_like(theta), theta], axis=-1)
  for name, model, kernel, target in (
    ('linear', toys.linear(3), theta[..., np.newaxis], y),
    ('logistic', logistic, kernels, labels),
  ):
    algorithm = _build(model, mixing='parameters', stationarity_interval=1)
    one = toys.ToySource([schema.Examples(x, target, source)])
    state, states = toys.initial_states(algorithm, one.population)
    weights = OrderedDict(
      shared=OrderedDict(), canonical=OrderedDict(kernel=kernel.astype('f'))
    )
    states = [states[0]._replace(membership=c.astype(np.float32))]
    start = (state._replace(model_weights=weights), states)
    _, _, outputs = toys.run_rounds(algorithm, one, 1, start=start)
    np.testing.assert_allclose(
      outputs[0].server_metrics['objective'], expected[name], rtol=1e-5
    )
