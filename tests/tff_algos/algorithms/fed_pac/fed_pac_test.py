"""Tests of FedPAC: two rounds against NumPy, reductions, costs, bad input."""

import numpy as np
import pytest

from tests.testing import contract, toys
from tff_algos.algorithms import registry
from tff_algos.core import errors

_SOURCE = contract.build_source()
_CLIENTS = (0, 2, 3, 4)
_RATE, _HEAD_RATE = 0.2, 0.3
_HEAD = ('dense_1/kernel', 'dense_1/bias')


def _training(rate):
  return {
    **{'num_local_epochs': 1, 'batch_size': 32},
    'optimizer': {'name': 'sgd', 'learning_rate': rate},
  }


def _build(**options):
  section = {
    **{'name': 'fed_pac', 'cohort_size': 0},
    'local_training': _training(_RATE),
    'head_training': _training(_HEAD_RATE),
    **options,
  }
  return registry.build_algorithm(registry.parse_config(section), toys.mlp())


def _forward(body, head, x):
  hidden = np.maximum(x.reshape(-1, 16) @ body[0] + body[1], 0)
  logits = hidden @ head[0] + head[1]
  probs = np.exp(logits - logits.max(axis=1, keepdims=True))
  return hidden, probs / probs.sum(axis=1, keepdims=True)


def _train(body, head, k, centroids, alignment_weight):
  """One full-batch step of the head, then one of the body."""
  examples = _SOURCE.examples(k)
  x, y = examples.x, examples.y
  hidden, probs = _forward(body, head, x)
  slope = (probs - np.eye(3)[y]) / len(y)
  head = (
    head[0] - _HEAD_RATE * hidden.T @ slope,
    head[1] - _HEAD_RATE * slope.sum(axis=0),
  )
  hidden, probs = _forward(body, head, x)
  back = (probs - np.eye(3)[y]) / len(y) @ head[0].T
  if centroids is not None:
    back += alignment_weight * 2 * (hidden - centroids[y]) / (5 * len(y))
  back *= hidden > 0
  body = (
    body[0] - _RATE * x.reshape(-1, 16).T @ back,
    body[1] - _RATE * back.sum(axis=0),
  )
  return body, head, _forward(body, head, x)[0]


def _round(body, heads, centroids, alignment_weight):
  """Returns what the server has after a round of all, without combination."""
  results = {
    k: _train(body, heads[k], k, centroids, alignment_weight) for k in _CLIENTS
  }
  sizes = [len(_SOURCE.examples(k).y) for k in _CLIENTS]
  body = tuple(
    np.average([results[k][0][i] for k in _CLIENTS], axis=0, weights=sizes)
    for i in range(2)
  )
  hidden = np.concatenate([results[k][2] for k in _CLIENTS])
  labels = np.concatenate([_SOURCE.examples(k).y for k in _CLIENTS])
  centroids = np.array([hidden[labels == c].mean(axis=0) for c in range(3)])
  return body, {k: results[k][1] for k in _CLIENTS}, centroids


def _start(algorithm):
  state, _ = toys.initial_states(algorithm, _SOURCE.population)
  body = tuple(state.shared_weights.values())
  heads = {k: tuple(one[k] for one in state.heads.values()) for k in _CLIENTS}
  return body, heads


def _assert_is(state, body, heads, centroids):
  for one, other in zip(state.shared_weights.values(), body, strict=True):
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
  for k in _CLIENTS:
    for name, other in zip(_HEAD, heads[k], strict=True):
      np.testing.assert_allclose(
        state.heads[name][k], other, rtol=1e-4, atol=1e-5
      )
  np.testing.assert_allclose(state.centroids.values, centroids, rtol=1e-4)


def test_two_rounds_of_alignment_by_numpy():
  """In the first nothing is aligned: nobody knows a centroid."""
  algorithm = _build(combines_heads=False, alignment_weight=2.0)
  body, heads = _start(algorithm)
  body, heads, centroids = _round(body, heads, None, 2.0)
  _assert_is(toys.run_rounds(algorithm, _SOURCE, 1)[0], body, heads, centroids)
  second = _round(body, heads, centroids, 2.0)
  _assert_is(toys.run_rounds(algorithm, _SOURCE, 2)[0], *second)
  # The penalty matters here.
  unaligned = _round(body, heads, centroids, 0.0)[0]
  assert np.abs(unaligned[0] - second[0][0]).max() > 1e-3


def test_heads_are_combined_for_each_client():
  """Of uploaded heads by shares that NumPy finds on the faces of the simplex."""
  algorithm = _build()
  body, start = _start(algorithm)
  _, heads, _ = _round(body, start, None, 1.0)
  means, variances = [], []
  for k in _CLIENTS:
    examples = _SOURCE.examples(k)
    hidden, _ = _forward(body, start[k], examples.x)
    mean = np.eye(3)[examples.y].T @ hidden / len(hidden)
    spread = (hidden**2).sum() / len(hidden) - (mean**2).sum()
    means.append(mean.ravel())
    variances.append(spread / len(hidden))
  state = toys.run_rounds(algorithm, _SOURCE, 1)[0]
  for i, k in enumerate(_CLIENTS):
    ways = means[i] - np.array(means)
    matrix = ways @ ways.T + np.diag(variances)
    served = state.heads['dense_1/kernel'][k]
    kernels = np.array([heads[j][0] for j in _CLIENTS])
    shares = np.linalg.lstsq(
      kernels.reshape(4, -1).T, served.ravel(), rcond=None
    )[0]
    np.testing.assert_allclose(
      np.tensordot(shares, kernels, axes=1), served, atol=1e-4
    )
    assert shares.min() > -1e-2
    np.testing.assert_allclose(shares.sum(), 1, atol=1e-2)
    # Least on the simplex: no slope below that of the mixture itself.
    slope = matrix @ shares
    assert slope.min() > shares @ slope - 1e-2 * np.abs(matrix).max()


def test_who_took_no_part_keeps_the_first_head():
  algorithm = _build()
  before, _ = toys.initial_states(algorithm, _SOURCE.population)
  state = toys.run_rounds(algorithm, _SOURCE, 1)[0]
  for name, leaf in state.heads.items():
    np.testing.assert_array_equal(leaf[1], before.heads[name][1])
  served = algorithm.personalized_weights(state, (), 3)
  np.testing.assert_array_equal(
    served['dense_1/bias'], state.heads['dense_1/bias'][3]
  )


def test_new_users_and_newcomers_get_the_mean_of_trained_heads():
  algorithm = _build()
  state = toys.run_rounds(algorithm, _SOURCE, 1)[0]
  np.testing.assert_array_equal(state.is_trained, [1, 0, 1, 1, 1])
  expected = state.heads['dense_1/kernel'][[*_CLIENTS]].mean(axis=0)
  (served,) = algorithm.cluster_weights(state)['dense_1/kernel']
  np.testing.assert_allclose(served, expected, rtol=1e-5, atol=1e-7)
  initial, _ = toys.initial_states(algorithm, _SOURCE.population)
  rows = algorithm.carry.newcomer_rows(state, initial)
  np.testing.assert_array_equal(rows.heads['dense_1/kernel'], [served] * 5)
  assert not rows.is_trained.any()


def test_without_alignment_and_combination_it_is_fed_rep():
  algorithm = _build(cohort_size=3, combines_heads=False, alignment_weight=0.0)
  state = toys.run_rounds(algorithm, _SOURCE, 2)[0]
  section = {
    **{'name': 'partial_fed_avg', 'schedule': 'private_first'},
    **{'cohort_size': 3, 'local_training': _training(_RATE)},
    'private_training': _training(_HEAD_RATE),
  }
  other = registry.build_algorithm(registry.parse_config(section), toys.mlp())
  expected, states, _ = toys.run_rounds(other, _SOURCE, 2)
  for name, leaf in expected.shared_weights.items():
    np.testing.assert_allclose(
      state.shared_weights[name], leaf, rtol=1e-5, atol=1e-6
    )
  for k, one in enumerate(states):
    for name, leaf in one.private_weights.items():
      np.testing.assert_allclose(
        state.heads[name][k], leaf, rtol=1e-5, atol=1e-6
      )


def test_cost_counts_body_head_centroids_and_moments():
  algorithm = _build(cohort_size=2)
  state, _ = toys.initial_states(algorithm, _SOURCE.population)
  (call,) = algorithm.plan_round(state, _SOURCE.population, 1, 0)
  model = 16 * 5 + 5 + 5 * 3 + 3
  assert call.cost == (2 * (model + 18), 2 * (model + 30 + 3 + 2), 4)
  assert call.client_inputs['dense_1/kernel'].shape == (2, 5, 3)


@pytest.mark.parametrize(
  ('options', 'text'),
  [
    ({'alignment_weight': -1.0}, 'alignment_weight must be'),
    ({'cohort_size': -1}, 'cohort_size must be an integer >= 0'),
    ({'loss_scale': 0.0}, 'loss_scale must be'),
  ],
)
def test_options_out_of_range_are_refused(options, text):
  with pytest.raises(errors.ConfigError, match=text):
    _build(**options)


def test_a_model_without_features_is_refused():
  with pytest.raises(errors.ConfigError, match='features need a classifier'):
    registry.build_algorithm(
      registry.parse_config({'name': 'fed_pac'}), toys.linear(3)
    )
