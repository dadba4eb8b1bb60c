"""Tests of the stationarity of a point: it is 0 where nothing moves.

That it is the formula elsewhere is tested in `tests/theory/ppfl_test.py`.
"""

import numpy as np
import pytest

from tests.testing import toys
from tff_algos.algorithms.ppfl import affinity, ppfl
from tff_algos.data import schema

_GENERATOR = np.random.default_rng(0)
_THETA = _GENERATOR.normal(size=(2, 3)).astype(np.float32)
_TRUE = np.array([[0.75, 0.25], [0.5, 0.5]], np.float32)


def _measure(schedule, theta, memberships, weight):
  """Returns the metrics at a point; two clients of eight examples each."""
  clients = []
  for c in _TRUE:
    x = _GENERATOR.normal(size=(8, 3)).astype(np.float32)
    clients.append(schema.Examples(x, x @ (c @ _THETA), np.zeros(8, np.int32)))
  source = toys.ToySource(clients)
  algorithm = ppfl.build_ppfl(
    toys.linear(3),
    ppfl.PpflConfig(
      schedule=schedule,
      stationarity_interval=1,
      laplacian=affinity.LaplacianConfig(weight, 'uniform'),
    ),
  )
  state, states = toys.initial_states(algorithm, source.population)
  state.model_weights['canonical']['kernel'] = theta[..., np.newaxis]
  if algorithm.phases['stationarity'].uses_client_state:
    states = [
      one._replace(membership=c)
      for one, c in zip(states, memberships, strict=True)
    ]
  if not isinstance(state.membership, tuple):
    state = state._replace(membership=memberships)
  _, _, outputs = toys.run_rounds(algorithm, source, 1, start=(state, states))
  return {k: float(v) for k, v in outputs[0].server_metrics.items()}


@pytest.mark.parametrize('schedule', ['alternating', 'random_block'])
def test_the_truth_is_stationary_and_nothing_near_it(schedule):
  found = _measure(schedule, _THETA, _TRUE, 0.0)
  assert max(found.values()) < 1e-9
  elsewhere = _measure(schedule, _THETA + 0.1, _TRUE, 0.0)
  assert elsewhere['squared_gradient_norm'] > 1e-3
  elsewhere = _measure(schedule, _THETA, _TRUE[::-1].copy(), 0.0)
  assert elsewhere['squared_mapping_norm'] > 1e-4
  np.testing.assert_allclose(
    elsewhere['squared_stationarity'],
    elsewhere['squared_gradient_norm'] + elsewhere['squared_mapping_norm'],
    rtol=1e-5,
  )


def test_every_label_counts_once():
  """The objective of two clients: means over their words, and p_i."""
  source = toys.token_clients([3, 2])
  algorithm = ppfl.build_ppfl(
    toys.transformer(),
    ppfl.PpflConfig(
      canonical=('head',), weighting='uniform', stationarity_interval=1
    ),
  )
  state, states = toys.initial_states(algorithm, source.population)
  _, _, outputs = toys.run_rounds(algorithm, source, 1, start=(state, states))
  expected = 0.0
  model = algorithm.personalized_model
  weights = algorithm.personalized_weights(state, states[0], 0)
  for client in map(source.examples, range(2)):
    logits = np.asarray(model.apply(weights, client.x), np.float64)
    likely = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    words = client.y > 0
    assert 0 < words.sum() < words.size
    expected -= (
      0.5
      * np.take_along_axis(likely, client.y[..., np.newaxis], axis=-1)[
        words
      ].mean()
    )
  np.testing.assert_allclose(
    outputs[0].server_metrics['objective'], expected, rtol=1e-5
  )


def test_the_penalty_counts():
  """lambda / 2 (2 |c_0 - c_1|^2) = 0.3 * 2 * 0.25^2; it pulls both."""
  found = _measure('alternating', _THETA, _TRUE, 0.3)
  np.testing.assert_allclose(found['objective'], 0.3 * 2 * 0.0625, rtol=1e-4)
  assert found['squared_gradient_norm'] < 1e-9
  assert found['squared_mapping_norm'] > 1e-3
