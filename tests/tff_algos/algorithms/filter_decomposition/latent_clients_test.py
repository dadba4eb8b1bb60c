"""Tests of clients that do not exist."""

import numpy as np
import tensorflow as tf

from tests.testing import contract, factored, toys
from tff_algos.algorithms import registry
from tff_algos.algorithms.filter_decomposition import latent_clients
from tff_algos.numerics import factored_weights
from tff_algos.runtimes import debug_runtime

_MODEL = factored.model()


def _stack(*seeds):
  models = [_MODEL.initialize(tf.constant([1, seed])) for seed in seeds]
  return tf.nest.map_structure(lambda *leaves: tf.stack(leaves), *models)


def test_all_pairs_of_different_clients_are_drawn_once():
  """m^2 - m of them."""
  generator = np.random.default_rng(0)
  pairs = latent_clients.draw_pairs(4, 100, generator)
  assert len(pairs) == 4**2 - 4
  everyone = {(i, j) for i in range(4) for j in range(4) if i != j}
  assert {tuple(pair) for pair in pairs.tolist()} == everyone
  some = latent_clients.draw_pairs(4, 5, generator)
  assert len({tuple(pair) for pair in some.tolist()}) == 5
  assert latent_clients.draw_pairs(1, 5, generator).shape == (0, 2)


def test_a_latent_client_has_the_atoms_of_another():
  stacked = _stack(2, 3)
  weights = latent_clients.latent_weights(stacked, 0, 1)
  kernel = factored_weights.build_kernels(weights)['conv/kernel']
  expected = np.einsum(
    'uvq,qio->uvio',
    stacked['conv/atoms'][1],
    stacked['conv/coefficients'][0],
  )
  np.testing.assert_allclose(kernel, expected, rtol=1e-5, atol=1e-6)
  np.testing.assert_array_equal(
    weights['dense/kernel'], stacked['dense/kernel'][0]
  )


def test_scores_are_means_over_the_examples():
  stacked, examples = _stack(2, 3, 4), factored.SOURCE.examples(3)
  pairs = np.array([[0, 1], [2, 0]], np.int32)
  scores = latent_clients.score(
    _MODEL, stacked, pairs, {'x': examples.x, 'y': examples.y}
  )
  for i, pair in enumerate(pairs.tolist()):
    weights = latent_clients.latent_weights(stacked, *pair)
    outputs = _MODEL.apply(weights, examples.x).numpy().astype(float)
    log_probs = outputs - np.log(np.exp(outputs).sum(axis=1, keepdims=True))
    loss = -log_probs[np.arange(len(examples.y)), examples.y].mean()
    np.testing.assert_allclose(scores.loss[i], loss, rtol=1e-4)
    accuracy = np.mean(outputs.argmax(axis=1) == examples.y)
    np.testing.assert_allclose(scores.score[i], accuracy)


def test_models_of_a_round_are_collected_as_the_round_has_them():
  """Their weighted mean is the model that the round makes."""
  algorithm = registry.build_algorithm(
    registry.parse_config(factored.host()), _MODEL
  )
  expected, _, _ = factored.run(algorithm, 1)
  server_state, states = toys.initial_states(
    algorithm, factored.SOURCE.population
  )
  (call,) = algorithm.plan_round(server_state, factored.SOURCE.population, 1, 0)
  phase = latent_clients.collect_models(algorithm.phases['train'])
  runtime = debug_runtime.DebugRuntime(algorithm, len(contract.SIZES))
  output = toys.run_call(
    runtime, phase, server_state, states, call, (1, 0, factored.SOURCE)
  )
  models = output.server_metrics['local_weights'].values
  weights = np.array(contract.SIZES)[call.client_indices]
  for name, leaf in expected.model_weights.items():
    mean = np.average(models[name], axis=0, weights=weights)
    np.testing.assert_allclose(leaf, mean, rtol=1e-5, atol=1e-6)
  np.testing.assert_equal(output.server_state, server_state)
