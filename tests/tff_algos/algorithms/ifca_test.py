"""Tests of IFCA: rounds by hand, plan, costs, states and bad input.

The points of `tests.testing.points` make a round short: one local step with
learning rate 1 goes from a cluster model to the mean of the client's points.
`tests/theory` compares whole trajectories with an independent implementation.
"""

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import points, toys, unigrams
from tff_algos.algorithms import ifca
from tff_algos.core import errors
from tff_algos.numerics import optimizers, statistics
from tff_algos.stages.client import local_training

_TO_THE_MEAN = local_training.LocalTrainingConfig(
  1, 32, optimizers.OptimizerConfig('sgd', 1.0)
)
# Their means: (0, 1), (0, -1), (10, 0), none, (2, 0).
_POINTS = points.five(10)
_SOURCE = points.clients(_POINTS)
_POPULATION = _SOURCE.population
_CENTERS = [[0, 0], [8, 0], [0, 50]]


def _build(**options):
  options = {
    'num_clusters': 3,
    'cohort_size': 4,
    'loss_scale': 0.5,
    'local_training': _TO_THE_MEAN,
  } | options
  return ifca.build_ifca(points.model(2), ifca.IfcaConfig(**options))


def _state(centers):
  return ifca.ServerState({'point': np.array(centers, np.float32)})


def _run(algorithm, num_rounds, centers=_CENTERS, source=_SOURCE):
  """Returns the centers, the memberships and the outputs."""
  _, states = toys.initial_states(algorithm, source.population)
  server_state, states, outputs = toys.run_rounds(
    algorithm, source, num_rounds, start=(_state(centers), states)
  )
  memberships = np.stack([state.membership for state in states])
  return server_state.cluster_models['point'], memberships, outputs


def test_each_client_moves_the_center_that_fits_it_best():
  """Clients 0, 1 and 4 choose center 0, client 2 center 1, nobody center 2."""
  centers, memberships, (output,) = _run(_build(), 1)
  np.testing.assert_allclose(centers, [[2 / 3, 0], [10, 0], [0, 50]], atol=1e-6)
  chosen = [[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 0], [1, 0, 0]]
  np.testing.assert_array_equal(memberships, chosen)
  assert output.server_metrics['num_empty_clusters'] == 1
  # Squared distances: 2 + 2, 1, 5 + 5 + 4 + 4 and 3 * 4, of 10 points.
  loss = statistics.value_of(output.client_metrics['loss'])
  np.testing.assert_allclose(loss, 3.5)


def test_a_client_chooses_by_the_mean_over_its_words():
  """Three words in one sentence outweigh those of two sentences of one."""
  source = unigrams.clients([[[1, 1, 1], [2, 0, 0], [2, 0, 0]]])
  algorithm = ifca.build_ifca(
    unigrams.model(),
    ifca.IfcaConfig(cohort_size=1, local_training=_TO_THE_MEAN),
  )
  logits = unigrams.logits([0, 0.2, 0.8], [0, 0.8, 0.2])
  _, states = toys.initial_states(algorithm, source.population)
  _, (state,), _ = toys.run_rounds(
    algorithm, source, 1, start=(ifca.ServerState({'logits': logits}), states)
  )
  np.testing.assert_array_equal(state.membership, [0, 1])


def test_equal_models_tie_and_the_lowest_id_takes_all():
  centers, memberships, (output,) = _run(_build(), 1, [[5, 5]] * 3)
  np.testing.assert_allclose(centers, [[3, 0], [5, 5], [5, 5]], atol=1e-6)
  assert memberships[:, 0].tolist() == [1, 1, 1, 0, 1]
  assert output.server_metrics['num_empty_clusters'] == 2


def test_a_broken_model_is_chosen_by_nobody():
  centers, memberships, (output,) = _run(
    _build(), 1, [[np.nan, 0], [8, 0], [0, 50]]
  )
  np.testing.assert_allclose(centers[1:], [[3, 0], [0, 50]], atol=1e-6)
  assert memberships[:, 1].tolist() == [1, 1, 1, 0, 1]
  assert output.num_invalid == 0


def test_a_client_with_nan_is_not_of_the_cohort_that_divides_gradients():
  source = points.clients(_POINTS)
  source.examples(4).x[0, 1] = np.nan
  algorithm = _build(averaging='gradients')
  centers, memberships, (output,) = _run(algorithm, 1, source=source)
  assert output.num_invalid == 1
  assert memberships[4].tolist() == [0, 0, 0]
  np.testing.assert_allclose(
    centers, [[0, 0], [8 + 2 / 3, 0], [0, 50]], atol=1e-6
  )


def test_initial_models_differ_and_nobody_has_chosen():
  algorithm = _build(num_clusters=4)
  server_state, states = toys.initial_states(algorithm, _POPULATION)
  assert len(np.unique(server_state.cluster_models['point'])) == 8
  assert all(not state.membership.any() for state in states)
  assert states[0].membership.shape == (4,)


@pytest.mark.parametrize(
  ('averaging', 'num_solves'), [('models', 3), ('gradients', 0)]
)
def test_cost_is_all_models_down_and_one_model_and_a_choice_up(
  averaging, num_solves
):
  """3 clients, 4 clusters, 2 parameters."""
  algorithm = _build(cohort_size=3, num_clusters=4, averaging=averaging)
  (call,) = algorithm.plan_round(None, _POPULATION, 1, 0)
  assert call.cost == (3 * 4 * 2, 3 * (2 + 4), num_solves)


def test_clients_are_served_by_their_last_choice_in_its_present_state():
  algorithm = _build()
  state = _state(_CENTERS)

  def served(membership):
    client_state = ifca.ClientState(tf.constant(membership, tf.float32))
    weights = algorithm.personalized_weights(
      state, client_state, tf.constant(7)
    )
    kept = algorithm.membership(state, client_state, tf.constant(7))
    assert kept.numpy().tolist() == membership
    return weights['point'].numpy().tolist()

  assert served([0, 1, 0]) == [8, 0]
  assert served([0, 0, 1]) == [0, 50]
  assert served([0, 0, 0]) == [0, 0]
  assert algorithm.cluster_weights(state) is state.cluster_models


def test_a_client_that_is_not_drawn_keeps_its_choice():
  algorithm = _build(cohort_size=1)
  seen = np.zeros((5, 3))
  for num_rounds in range(1, 5):
    (call,) = algorithm.plan_round(None, _POPULATION, num_rounds, 0)
    _, memberships, _ = _run(algorithm, num_rounds)
    others = np.delete(np.arange(5), call.client_indices)
    np.testing.assert_array_equal(memberships[others], seen[others])
    assert memberships[call.client_indices].sum() == 1
    seen = memberships


@pytest.mark.parametrize(
  ('options', 'text'),
  [
    ({'num_clusters': 0}, 'num_clusters must be an integer >= 1, got 0'),
    ({'cohort_size': -1}, 'cohort_size must be an integer >= 0, got -1'),
    ({'averaging': 'model'}, "averaging must be one of 'models', 'gradients'"),
    ({'weighting': 'size'}, "weighting must be one of 'uniform', 'examples'"),
    ({'server_learning_rate': 0.0}, 'server_learning_rate must be a finite nu'),
    ({'loss_scale': -1.0}, 'loss_scale must be a finite number > 0, got -1.0'),
  ],
)
def test_options_out_of_range_are_refused(options, text):
  with pytest.raises(errors.ConfigError, match=text):
    ifca.IfcaConfig(**options)
