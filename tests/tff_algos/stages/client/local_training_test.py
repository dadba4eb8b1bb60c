"""Tests of the local training loop."""

import dataclasses
import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import client_data, index_hash, toys
from tff_algos.core import errors, seeds
from tff_algos.numerics import optimizers
from tff_algos.stages.client import local_training, objectives

_MODEL = toys.linear(3)
_START = np.array([0.2, -0.4, 1.0], np.float32)
_SEED = seeds.derive_seed(1, 'train', 1, 'c0')
_ADAM = optimizers.OptimizerConfig('adam', 0.05)
_SGD = optimizers.OptimizerConfig('sgd', 0.05)


def _padded(x, y, capacity, filling=0.0):
  return client_data.build(x, y, capacity, filling)


def _config(batch_size=4, num_local_epochs=3, optimizer=_ADAM):
  return local_training.LocalTrainingConfig(
    num_local_epochs, batch_size, optimizer
  )


def _steps(num_local_steps, optimizer=_ADAM):
  return dataclasses.replace(
    _config(optimizer=optimizer), num_local_steps=num_local_steps
  )


def _train(data, config, start=_START, objective=None, seed=_SEED):
  weights, loss = local_training.train(
    objective or objectives.mean_loss(_MODEL, 0.5),
    {'kernel': tf.constant(start[:, np.newaxis])},
    data,
    tf.constant(seed),
    config,
  )
  return weights['kernel'].numpy()[:, 0], loss


def _numpy_sgd(x, y, config, start=_START, seed=_SEED):
  """Half the squared error by plain steps; returns weights and losses met."""
  w, losses = start.astype(np.float64), []
  for rows in index_hash.batches(
    seed, config.num_local_epochs, len(y), config.batch_size
  ):
    residual = x[rows] @ w - y[rows]
    losses.extend(residual**2)
    gradient = x[rows].T @ residual / len(rows)
    w = w - config.optimizer.learning_rate * gradient
  return w, losses


@pytest.mark.parametrize('size', [1, 3, 4, 10])
@pytest.mark.parametrize('batch_size', [1, 4, 32])
def test_training_agrees_with_numpy_step_by_step(size, batch_size):
  """Also that a short last batch is divided by its own size."""
  x, y = client_data.regression(size)
  config = _config(batch_size, optimizer=_SGD)
  weights, loss = _train(_padded(x, y, size), config)
  expected, losses = _numpy_sgd(x, y, config)
  np.testing.assert_allclose(weights, expected, rtol=1e-4, atol=1e-5)
  np.testing.assert_allclose(loss.total, np.sum(losses), rtol=1e-4)
  assert float(loss.weight) == len(losses) == 3 * size


@pytest.mark.parametrize('num_steps', [1, 2, 5, 12])
@pytest.mark.parametrize('size', [1, 3, 4, 10])
def test_counted_steps_agree_with_numpy_step_by_step(size, num_steps):
  """Of 4 examples each; an epoch of 10 has a short third, of 3 a single one."""
  x, y = client_data.regression(size)
  config = _steps(num_steps, optimizer=_SGD)
  batches = index_hash.batches(_SEED, num_steps, size, 4)
  w, losses = _START.astype(np.float64), []
  for rows in itertools.islice(batches, num_steps):
    residual = x[rows] @ w - y[rows]
    losses.extend(residual**2)
    w = w - 0.05 * x[rows].T @ residual / len(rows)
  for capacity in (size, size + 1, 32):  # Padding is never read.
    weights, loss = _train(_padded(x, y, capacity, np.nan), config)
    np.testing.assert_allclose(weights, w, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(loss.total, np.sum(losses), rtol=1e-4)
    assert float(loss.weight) == len(losses)


def test_whole_epochs_of_steps_are_epochs():
  """9 examples in 3 batches, 2 epochs, also in what is drawn for each."""
  data = _padded(*client_data.regression(9), 9)
  by_steps, _ = _train(data, _steps(6))
  by_epochs, _ = _train(data, _config(num_local_epochs=2))
  np.testing.assert_array_equal(by_steps, by_epochs)


@pytest.mark.parametrize('is_pulled', [False, True])
@pytest.mark.parametrize('optimizer', [_SGD, _ADAM], ids=['sgd', 'adam'])
def test_weight_decay_is_a_term_of_the_objective(optimizer, is_pulled):
  """The same steps as with the term written into the loss."""
  objective = objectives.mean_loss(_MODEL, 0.5)
  if is_pulled:
    center = {'kernel': tf.constant([[1.0], [0], [-1]])}
    objective = objectives.ProximalLoss(objective, center, 0.7)

  def written(weights, batch):
    value, losses = objective(weights, batch)
    return value + 0.15 * tf.reduce_sum(weights['kernel'] ** 2), losses

  data = _padded(*client_data.regression(7), 9)
  expected, _ = _train(data, _config(optimizer=optimizer), objective=written)
  decayed = dataclasses.replace(_config(optimizer=optimizer), weight_decay=0.3)
  found, _ = _train(data, decayed, objective=objective)
  np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
  without, _ = _train(data, _config(optimizer=optimizer), objective=objective)
  assert np.abs(found - without).max() > 1e-3


def test_exact_solutions_know_no_weight_decay():
  with pytest.raises(
    errors.ConfigError, match='weight_decay is 0.1, but solver'
  ):
    local_training.LocalTrainingConfig(solver='exact', weight_decay=0.1)


@pytest.mark.parametrize('optimizer', [_SGD, _ADAM], ids=['sgd', 'adam'])
@pytest.mark.parametrize('size', [1, 4, 7])
def test_capacity_changes_no_bit(size, optimizer):
  """Nor does what lies in the padding, nor do steps on it between epochs."""
  x, y = client_data.regression(size)
  config = _config(optimizer=optimizer)
  tight, tight_loss = _train(_padded(x, y, size), config)
  for capacity, filling in zip(
    (size + 1, 8, 13, 64), (np.nan, np.inf, 1e30, np.nan), strict=True
  ):
    weights, loss = _train(_padded(x, y, capacity, filling), config)
    np.testing.assert_array_equal(weights, tight)
    np.testing.assert_array_equal(loss.total, tight_loss.total)
    np.testing.assert_array_equal(loss.weight, tight_loss.weight)


@pytest.mark.parametrize('num_steps', [0, 3])
@pytest.mark.parametrize('capacity', [0, 1, 8])
def test_a_client_without_examples_gets_its_start_back(capacity, num_steps):
  x, y = client_data.regression(0)
  weights, loss = _train(_padded(x, y, capacity), _steps(num_steps))
  np.testing.assert_array_equal(weights, _START)
  assert float(loss.weight) == float(loss.total) == 0


def test_nan_in_a_real_example_is_not_hidden():
  x, y = client_data.regression(5)
  x[2, 0] = np.nan
  weights, _ = _train(_padded(x, y, 8), _config())
  assert np.isnan(weights).all()


def test_a_graph_trains_like_eager_mode():
  x, y = client_data.regression(7)
  eager, _ = _train(_padded(x, y, 8), _config())

  def train(data):
    weights, _ = local_training.train(
      objectives.mean_loss(_MODEL, 0.5),
      {'kernel': tf.constant(_START[:, np.newaxis])},
      data,
      tf.constant(_SEED),
      _config(),
    )
    return weights['kernel'][:, 0]

  graph = tf.function(train, autograph=False)(_padded(x, y, 8))
  np.testing.assert_allclose(graph, eager, rtol=1e-5, atol=1e-6)


def test_another_seed_takes_another_order_and_another_path():
  x, y = client_data.regression(9)
  first, _ = _train(_padded(x, y, 9), _config())
  other, _ = _train(
    _padded(x, y, 9), _config(), seed=seeds.derive_seed(2, 'train', 1, 'c0')
  )
  assert not np.allclose(first, other, rtol=1e-4)


def test_solvers_meet_at_the_exact_solution_of_a_proximal_problem():
  """SGD and Adam run long against the normal equations (FedSoft, Eq. 4)."""
  x, y = client_data.regression(8)
  center, weight = np.array([[0.5], [0.5], [-1]], np.float32), 0.7
  objective = objectives.ProximalLoss(
    objectives.mean_loss(_MODEL, 0.5), {'kernel': tf.constant(center)}, weight
  )
  exact = np.linalg.solve(
    x.T @ x / 8 + weight * np.eye(3), x.T @ y / 8 + weight * center[:, 0]
  )
  solvers = {
    40: optimizers.OptimizerConfig('sgd', 0.3),
    60: optimizers.OptimizerConfig('sgd', 0.1, momentum=0.7),
    120: optimizers.OptimizerConfig('adam', 0.05),
  }
  for num_steps, optimizer in solvers.items():
    weights, _ = _train(
      _padded(x, y, 8), _config(8, num_steps, optimizer), objective=objective
    )
    np.testing.assert_allclose(weights, exact, atol=1e-2, err_msg=optimizer)
  config = local_training.LocalTrainingConfig(solver='exact')
  weights, loss = _train(_padded(x, y, 9), config, objective=objective)
  np.testing.assert_allclose(weights, exact, rtol=1e-5)
  assert float(loss.weight) == 8


@pytest.mark.parametrize(
  ('options', 'text'),
  [
    (
      {'num_local_epochs': 0},
      'num_local_epochs must be an integer >= 1, got 0',
    ),
    (
      {'num_local_steps': -1},
      'num_local_steps must be an integer >= 0, got -1',
    ),
    (
      {'solver': 'exact', 'num_local_steps': 2},
      "num_local_steps is 2, but solver 'exact' takes no steps",
    ),
    (
      {
        'solver': 'exact',
        'optimizer': optimizers.OptimizerConfig(clip_norm=1.0),
      },
      "optimizer.clip_norm is 1.0, but solver 'exact' takes no steps",
    ),
    ({'batch_size': 0}, 'batch_size must be an integer >= 1, got 0'),
    ({'batch_size': 2.5}, 'batch_size must be an integer >= 1, got 2.5'),
    (
      {'augmentation': 'blur'},
      "augmentation must be one of 'none', 'crop_and_flip', got 'blur'",
    ),
    (
      {'solver': 'best'},
      "solver must be one of 'descent', 'exact', got 'best'",
    ),
    (
      {'solver': 'exact', 'augmentation': 'crop_and_flip'},
      "augmentation is 'crop_and_flip', but solver 'exact' takes the examples",
    ),
  ],
)
def test_options_out_of_range_are_refused(options, text):
  with pytest.raises(errors.ConfigError, match=text):
    local_training.LocalTrainingConfig(**options)


def test_distance_per_gradient_counts_the_real_steps():
  """Of 9 rows 3 batches of 4 an epoch, of none none; rate 0.05, 3 epochs."""
  config = _config(optimizer=_SGD)
  for size, expected in ((9, 0.45), (8, 0.3), (0, 0)):
    data = _padded(*client_data.regression(size), 20)
    distance = local_training.distance_per_gradient(data.mask, config)
    np.testing.assert_allclose(distance, expected, rtol=1e-6)
    distance = local_training.distance_per_gradient(data.mask, _steps(7, _SGD))
    np.testing.assert_allclose(distance, 7 * 0.05 * (size > 0), rtol=1e-6)


@pytest.mark.parametrize('momentum', [0.0, 0.9, 0.9999])
@pytest.mark.parametrize('num_steps', [0, 5])
def test_a_constant_gradient_moves_by_its_distance(num_steps, momentum):
  optimizer = dataclasses.replace(_SGD, momentum=momentum)
  config = _steps(num_steps, optimizer)
  data = _padded(*client_data.regression(9), 20)
  slope = np.array([[1.0], [-2], [0.5]], np.float32)

  def objective(weights, batch):
    losses = tf.zeros_like(batch.y)
    return tf.reduce_sum(weights['kernel'] * slope), losses

  start = {'kernel': tf.constant(_START[:, None])}
  weights, _ = local_training.train(objective, start, data, _SEED, config)
  distance = local_training.distance_per_gradient(data.mask, config)
  np.testing.assert_allclose(
    start['kernel'] - weights['kernel'], distance * slope, rtol=1e-5
  )


def test_plain_sgd_is_checked_by_name():
  local_training.check_plain_sgd(_config(optimizer=_SGD))
  with pytest.raises(errors.ConfigError, match="got 'adam' and 'descent'"):
    local_training.check_plain_sgd(_config())
  clipping = dataclasses.replace(_SGD, clip_norm=0.5)
  with pytest.raises(errors.ConfigError, match='clip_norm must be 0, got 0.5'):
    local_training.check_plain_sgd(_config(optimizer=clipping))


def test_a_kept_optimizer_goes_on():
  """Two rounds of one full batch are one of two, if the weights stay."""
  data = _padded(*client_data.regression(7), 9)
  weights = {'kernel': tf.constant(_START[:, np.newaxis])}
  kept = dataclasses.replace(_config(9, 1), keeps_optimizer_state=True)
  slots = local_training.initial_slots(weights, kept)
  for _ in range(2):
    weights, slots, _ = local_training.train_on(
      objectives.mean_loss(_MODEL, 0.5),
      weights,
      slots,
      data,
      tf.constant(_SEED),
      kept,
    )
  assert slots.num_steps == 2
  expected, _ = _train(data, _config(9, 2))
  found = weights['kernel'].numpy()[:, 0]
  np.testing.assert_allclose(found, expected, rtol=1e-5)
  anew, _ = _train(data, _config(9, 1))
  again, _ = _train(data, _config(9, 1), anew)
  assert np.abs(again - expected).max() > 1e-3


def test_where_nothing_is_kept_it_is_refused():
  kept = dataclasses.replace(_config(), keeps_optimizer_state=True)
  with pytest.raises(errors.ConfigError, match='keeps_optimizer_state is True'):
    _train(_padded(*client_data.regression(7), 7), kept)
  assert local_training.initial_slots(None, _config()) == ()
