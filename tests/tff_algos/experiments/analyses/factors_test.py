"""The next round, repeated, and clients that do not exist in it."""

import dataclasses
import math
import types

import numpy as np
import tensorflow as tf

from tests.testing import contract, factored, toys
from tff_algos.algorithms.filter_decomposition import latent_clients
from tff_algos.experiments.analyses import factor_rounds
from tff_algos.numerics import factored_weights
from tff_algos.runtimes import debug_runtime
from tff_algos.runtimes import registry as runtimes

_SEED = 5
_SIZES = factor_rounds.Sizes(num_repeats=3, num_pairs=100, num_examples=5)


def _session(algorithm):
  state, states = toys.initial_states(algorithm, factored.SOURCE.population)

  def load(indices):
    rows = [states[int(index)] for index in indices]
    return tf.nest.map_structure(lambda *leaves: np.stack(leaves), *rows)

  return state, types.SimpleNamespace(
    algorithm=algorithm,
    runtime=debug_runtime.DebugRuntime(algorithm, len(contract.SIZES)),
    source=factored.SOURCE,
    store=types.SimpleNamespace(load=load),
    config=types.SimpleNamespace(
      seed=_SEED, runtime=runtimes.RuntimeConfig(name='debug')
    ),
  )


def test_variance_is_that_of_the_kernels_of_repeated_rounds():
  algorithm = factored.build()
  state, opened = _session(algorithm)
  kernels = []
  for seed in range(_SEED, _SEED + 3):
    after, _, _ = toys.run_rounds(
      algorithm,
      opened.runtime,
      factored.SOURCE,
      1,
      seed,
      start=toys.initial_states(algorithm, factored.SOURCE.population),
    )
    plain = factored_weights.build_kernels(after.model_weights)
    kernels.append(plain['conv/kernel'].numpy().ravel())
  found = factor_rounds.variance(opened, 1, state, _SIZES)
  expected = np.var(kernels, axis=0).sum()
  np.testing.assert_allclose(found['variance'], expected, rtol=1e-4)
  assert expected > 1e-6


def test_latent_clients_of_a_round_stand_beside_the_real_ones():
  """Three clients, six that do not exist; local atoms do not matter."""
  state, opened = _session(factored.build(local_atoms={'own': 'atoms'}))
  examples = factored.SOURCE.examples(3)
  found = factor_rounds.latent(opened, 1, state, examples, _SIZES)
  assert found['num_latent'] == 6
  # What the round's clients upload, by the host alone.
  host = factored.build()
  (call,) = host.plan_round(state, factored.SOURCE.population, 1, _SEED)
  losses = []
  for k in call.client_indices:
    alone = dataclasses.replace(call, client_indices=np.array([k], np.int32))
    one, _ = _session(host)
    after = toys.run_call(
      *(opened.runtime, host.phases['train'], one, [()] * 5, alone),
      (1, _SEED, factored.SOURCE),
    ).server_state
    model = host.cluster_model
    outputs = model.apply(after.model_weights, examples.x[:5])
    losses.append(model.example_losses(outputs, examples.y[:5]).numpy().mean())
  np.testing.assert_allclose(found['real_loss'], np.mean(losses), rtol=1e-4)
  assert 0 < abs(found['latent_loss'] - found['real_loss']) < 0.5
  assert 0 <= found['latent_score'] <= 1


def test_every_round_draws_latent_clients_of_its_own(monkeypatch):
  draw_pairs, numbers = latent_clients.draw_pairs, []

  def record(*sizes):
    numbers.append(sizes[-1].random())
    return draw_pairs(*sizes)

  monkeypatch.setattr(latent_clients, 'draw_pairs', record)
  state, opened = _session(factored.build())
  for round_num in (1, 2):
    factor_rounds.latent(
      opened, round_num, state, factored.SOURCE.examples(3), _SIZES
    )
  first, second = numbers
  assert first != second


def test_rounds_without_coefficients_have_no_latent_clients():
  state, opened = _session(factored.build(schedule={'slow_period': 2}))
  found = factor_rounds.latent(
    opened, 2, state, factored.SOURCE.examples(3), _SIZES
  )
  assert all(math.isnan(value) for value in found.values())
