"""What L2GD becomes in special cases, and where it goes.

Hanzely and Richtarik (2020). For f_i = |x - c_i|^2 / 2 the problem's optimum
is x_i = (c_i + lambda c) / (1 + lambda) with c the mean of the c_i.
"""

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import contract, points, toys
from tff_algos.algorithms import fed_avg, l2gd
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.numerics import optimizers
from tff_algos.runtimes.vectorized import vectorized_runtime
from tff_algos.stages.client import local_training

_CENTERS = np.array([[0.0, 4], [6, -2], [-3, 1], [1, -1]])
_SOURCE = points.clients([center[np.newaxis] for center in _CENTERS])


def _build(**options):
  return l2gd.build_l2gd(
    points.model(2), l2gd.L2gdConfig(loss_scale=0.5, **options)
  )


def _optimum(proximal_weight):
  mean = _CENTERS.mean(axis=0)
  return (_CENTERS + proximal_weight * mean) / (1 + proximal_weight)


def _step(algorithm, models, client, num_aggregations, num_local):
  """Returns how far client steps of one kind go from the models' mean."""
  state = {'point': tf.constant(models[client], tf.float32)}
  center = tf.constant(_CENTERS[client : client + 1], tf.float32)
  output = algorithm.phases['train'].client_work(
    l2gd.Message(
      {'point': tf.constant(models.mean(axis=0), tf.float32)},
      tf.constant(num_aggregations),
      tf.constant(num_local),
    ),
    (),
    l2gd.ClientState(state),
    algorithm_lib.ClientData(center, tf.zeros(1), tf.ones(1)),
    tf.zeros(2, tf.int32),
  )
  return output.client_state.personalized_weights['point'] - state['point']


@pytest.mark.parametrize('proximal_weight', [0.0, 0.5, 1.0, 100.0])
@pytest.mark.parametrize('prob', [0.1, 0.6])
def test_at_the_optimum_the_expected_step_is_zero(proximal_weight, prob):
  """(1 - p) local step + p aggregation step = 0; each alone is not."""
  algorithm = _build(
    proximal_weight=proximal_weight,
    aggregation_prob=prob,
    client_learning_rate=0.001,
  )
  optimum = _optimum(proximal_weight)
  for client in range(len(_CENTERS)):
    local = _step(algorithm, optimum, client, 0, 1)
    aggregation = _step(algorithm, optimum, client, 1, 0)
    expected = (1 - prob) * local + prob * aggregation
    np.testing.assert_allclose(expected, [0, 0], atol=1e-6)
    if proximal_weight:
      assert np.abs(local).max() > 1e-5


@pytest.mark.verify
def test_small_steps_end_near_the_optimum():
  """400 rounds; the mean over the last 300, whose noise is a few percent of
  the distance between the clients (3 to 9).
  """
  algorithm = _build(
    proximal_weight=1.0, aggregation_prob=0.5, client_learning_rate=0.02
  )
  with vectorized_runtime.VectorizedRuntime(algorithm, 4) as runtime:
    start, seen = None, []
    for round_num in range(1, 401):
      *start, _ = toys.run_rounds(
        algorithm, _SOURCE, 1, 0, start, round_num, runtime=runtime
      )
      models = [one.personalized_weights['point'] for one in start[1]]
      seen.append(np.stack(models))
  np.testing.assert_allclose(
    np.mean(seen[100:], axis=0), _optimum(1.0), atol=0.25
  )
  # Neither alone nor all the same.
  assert np.abs(_optimum(1.0) - _CENTERS).max() > 1
  assert np.ptp(_optimum(1.0), axis=0).min() > 1


def test_without_a_pull_each_client_is_alone():
  algorithm = _build(
    proximal_weight=0.0, aggregation_prob=0.3, client_learning_rate=0.35
  )
  start, _ = toys.initial_states(algorithm, _SOURCE.population)
  _, states, outputs = toys.run_rounds(algorithm, _SOURCE, 3)
  steps = sum(int(one.server_metrics['num_local_steps']) for one in outputs)
  # A local step goes half of the way.
  left = 0.5**steps
  for state, center in zip(states, _CENTERS, strict=True):
    expected = center + left * (start.model_weights['point'] - center)
    np.testing.assert_allclose(
      state.personalized_weights['point'], expected, rtol=1e-4, atol=1e-6
    )


def test_all_the_way_to_the_mean_is_fed_avg_with_drawn_numbers_of_epochs():
  """Clients of one size, full batches; a perceptron."""
  source, model = contract.build_source((6, 6, 6)), toys.mlp()
  prob, rate = 0.5, 0.05
  ours = l2gd.build_l2gd(
    model,
    l2gd.L2gdConfig(
      proximal_weight=prob / rate,
      aggregation_prob=prob,
      client_learning_rate=rate,
    ),
  )
  start, epochs = None, []
  theirs, _ = toys.initial_states(ours, source.population)
  for round_num in range(1, 5):
    server_state, states, (output,) = toys.run_rounds(
      ours, source, 1, start=start, first_round=round_num
    )
    epochs.append(int(output.server_metrics['num_local_steps']))
    start = (server_state, states)
    other = fed_avg.build_fed_avg(
      model,
      fed_avg.FedAvgConfig(
        cohort_size=3,
        local_training=local_training.LocalTrainingConfig(
          epochs[-1], 6, optimizers.OptimizerConfig('sgd', rate / (1 - prob))
        ),
      ),
    )
    theirs, _, _ = toys.run_rounds(
      other,
      source,
      1,
      start=(fed_avg.ServerState(theirs.model_weights), [()] * 3),
      first_round=round_num,
    )
    for name, leaf in server_state.model_weights.items():
      np.testing.assert_allclose(leaf, theirs.model_weights[name], atol=1e-5)
  assert max(epochs) > 1


@pytest.mark.parametrize('prob', [0.1, 0.3, 0.5])
def test_communications_are_a_share_p_1_minus_p_of_the_iterations(prob):
  """1,000 rounds, a communication each; within 6 standard deviations.

  The two runs of a round have the variances (1 - p) / p^2 and p / (1 - p)^2; a
  seed fails with a chance below 1e-8.
  """
  algorithm = _build(aggregation_prob=prob, client_learning_rate=0.01)
  message = tf.function(algorithm.phases['train'].make_message)
  state, _ = toys.initial_states(algorithm, _SOURCE.population)
  lengths = []
  for num_rounds in range(1, 1001):
    said = message(state._replace(num_rounds=tf.constant(num_rounds)))
    lengths.append(int(said.num_aggregation_steps + said.num_local_steps))
  deviation = np.sqrt(((1 - prob) / prob**2 + prob / (1 - prob) ** 2) / 1000)
  expected = 1 / (prob * (1 - prob))
  assert abs(np.mean(lengths) - expected) < 6 * deviation
