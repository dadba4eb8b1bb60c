"""Clipped and noised sums against NumPy and the queries of TensorFlow Privacy."""

import contextlib
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_privacy as tfp
from scipy import stats

from tests.testing import contract, toys
from tff_algos.algorithms import registry
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.privacy import (
  accounting,
  mechanism,
  private_algorithm,
  private_phase,
  releases,
  tree_noise,
)
from tff_algos.rounds import aggregation, composer, extended_state
from tff_algos.runtimes import debug_runtime
from tff_algos.runtimes.tff import tff_runtime
from tff_algos.runtimes.vectorized import vectorized_runtime

_DELTA = 1e-5
_ADAPTIVE = mechanism.AdaptiveClippingConfig(target_quantile=0.3)
_FACTS = private_algorithm.Facts(4, 3, '')


def _build(name, config=None, model='logistic'):
  section = contract.section(name, model)
  if 'cohort_size' in section:
    section['cohort_size'] = 0
  if name == 'fed_soft':
    section['selection'] = 'weighted_full'
  algorithm = registry.build_algorithm(
    registry.parse_config(section), contract.MODELS[model]()
  )
  if config is None:
    return algorithm
  return private_algorithm.make_private(algorithm, config, _FACTS)


def _run(
  algorithm, num_rounds=2, seed=0, build=debug_runtime.DebugRuntime, **o
):
  runtime = build(algorithm, len(contract.SIZES))
  source = contract.build_source(o.pop('sizes', contract.SIZES))
  return toys.run_rounds(
    algorithm, source, num_rounds, seed, runtime=runtime, **o
  )


def _flat(structure):
  return np.concatenate(
    [np.ravel(leaf).astype(np.float64) for leaf in tf.nest.flatten(structure)]
  )


class _Result(NamedTuple):
  update: tf.Tensor
  weights: tf.Tensor


class _State(NamedTuple):
  model: tf.Tensor


def _toy_phase(size=3, num_clusters=0):
  """Clients upload their features as updates, and weights by their label."""

  def work(message, client_input, client_state, data, seed):
    weights = data.mask[0]
    if num_clusters:
      weights = tf.one_hot(data.y[0], num_clusters) + 0.5
    return algorithm_lib.ClientOutput(
      _Result(data.x[0], weights), client_state, {}
    )

  mean = aggregation.ClusterMean if num_clusters else aggregation.WeightedMean
  return algorithm_lib.Phase(
    name='train',
    make_message=lambda state: state.model,
    client_work=work,
    aggregation={'update': mean('weights')},
    server_update=lambda state, aggregates: (
      _State(aggregates['update'].value),
      {'weight': aggregates['update'].weight},
    ),
    uploads={'update': lambda message, _, result: tf.zeros([size])},
  )


def _private_toy(multiplier, size=3, num_clusters=0, **options):
  config = mechanism.PrivacyConfig(noise_multiplier=multiplier, **options)
  phase = private_phase.make_private(
    _toy_phase(size, num_clusters),
    {'update': releases.Summed()},
    config,
    expected_clients=5.0,
  )
  model = tf.zeros([num_clusters, size] if num_clusters else [size])
  extra = private_phase.initial_state(config, tf.constant([1, 2]), '')
  return phase, extended_state.ExtendedState(_State(model), extra)


def _sums(phase, state, updates, labels=None, takes_part=None, sizes=None):
  """Returns the sums over clients that upload these updates."""
  n = len(updates)
  sizes = np.ones(n, np.float32) if sizes is None else sizes
  labels = np.zeros(n, np.int32) if labels is None else labels
  takes_part = np.ones(n, bool) if takes_part is None else takes_part
  message = phase.make_message(state)
  outputs = [
    composer.client_work(
      phase,
      message,
      composer.Clients(
        i,
        private_phase.SampledInput(tf.constant(takes_part[i]), ()),
        (),
        algorithm_lib.ClientData(
          tf.constant(updates[i])[tf.newaxis],
          tf.constant(labels[i])[tf.newaxis],
          tf.constant(sizes[i])[tf.newaxis],
        ),
        tf.constant([0, i]),
      ),
    )
    for i in range(n)
  ]
  stacked = tf.nest.map_structure(lambda *leaves: tf.stack(leaves), *outputs)
  return composer.aggregate(phase, tf.range(n), stacked, ())[0]


def _one_round(phase, state, *clients, **options):
  """Returns the server state and metrics of a round; arguments of `_sums`."""
  sums = _sums(phase, state, *clients, **options)
  return composer.server_update(phase, state, sums, {})


_UPDATES = np.array(
  [[3, 0, 4], [0.3, 0, 0.4], [0, -12, 5], [0.1, 0.1, 0.1]], np.float32
)


def test_clipped_sums_equal_those_of_tensorflow_privacy():
  phase, state = _private_toy(0.0, clip_norm=2.0)
  found, _ = _one_round(phase, state, _UPDATES)
  query = tfp.GaussianSumQuery(l2_norm_clip=2.0, stddev=0.0)
  params = query.derive_sample_params(query.initial_global_state())
  total = sum(
    query.preprocess_record(params, tf.constant(one)) for one in _UPDATES
  )
  # The divisor is the expected number of clients, 5.
  np.testing.assert_allclose(found.server_state.model, total / 5, rtol=1e-6)


def test_the_clipping_norm_follows_that_of_tensorflow_privacy():
  phase, state = _private_toy(0.0, clip_norm=2.0, adaptive_clipping=_ADAPTIVE)
  query = tfp.QuantileAdaptiveClipSumQuery(2.0, 0.0, 0.3, 0.2, 0.0, 5.0)
  theirs = query.initial_global_state()
  for scale in (1, 2, 0.1, 0.01):
    updates = np.float32(scale) * _UPDATES
    state, metrics = _one_round(phase, state, updates)
    params = query.derive_sample_params(theirs)
    records = [
      query.preprocess_record(params, tf.constant(one)) for one in updates
    ]
    total = tf.nest.map_structure(lambda *leaves: sum(leaves), *records)
    expected, theirs, _ = query.get_noised_result(total, theirs)
    np.testing.assert_allclose(
      state.server_state.model, expected / 5, rtol=1e-5, atol=1e-7
    )
    clip = theirs.sum_state.l2_norm_clip
    np.testing.assert_allclose(state.extra.clip_norm, clip, rtol=1e-6)
    np.testing.assert_allclose(metrics['clip_norm'], clip, rtol=1e-6)


def test_clients_without_examples_do_not_move_the_clipping_norm():
  phase, state = _private_toy(0.0, clip_norm=2.0, adaptive_clipping=_ADAPTIVE)
  expected, _ = _one_round(phase, state, _UPDATES)
  both = np.concatenate([_UPDATES, np.zeros_like(_UPDATES)])
  sizes = np.float32([1] * 4 + [0] * 4)
  found, _ = _one_round(phase, state, both, sizes=sizes)
  np.testing.assert_array_equal(found.extra.clip_norm, expected.extra.clip_norm)


def test_all_clusters_of_a_client_are_clipped_together():
  phase, state = _private_toy(0.0, num_clusters=2, clip_norm=2.0)
  labels = np.array([0, 1, 1, 0], np.int32)
  found, metrics = _one_round(phase, state, _UPDATES, labels)
  weights = np.eye(2)[labels] + 0.5
  weights /= np.maximum(np.linalg.norm(weights, axis=1, keepdims=True), 1)
  parts = weights[:, :, np.newaxis] * _UPDATES[:, np.newaxis]
  norms = np.linalg.norm(parts.reshape(4, -1), axis=1)
  sums = (parts * np.minimum(1, 2 / norms)[:, np.newaxis, np.newaxis]).sum(0)
  counts = weights.sum(0)
  np.testing.assert_allclose(metrics['weight'], counts, rtol=1e-5)
  np.testing.assert_allclose(
    found.server_state.model, sums / counts[:, np.newaxis], rtol=1e-5
  )


def test_a_cluster_of_few_clients_counts_as_empty():
  phase, state = _private_toy(0.0, num_clusters=2, clip_norm=2.0, min_count=2.0)
  labels = np.array([0, 0, 0, 1], np.int32)
  _, metrics = _one_round(phase, state, _UPDATES, labels)
  assert metrics['weight'][0] > 2
  assert metrics['weight'][1] == 0


@pytest.mark.parametrize('value', [np.nan, np.inf])
def test_a_client_that_is_not_finite_adds_nothing(value):
  for clusters in (0, 2):
    phase, state = _private_toy(
      0.0, num_clusters=clusters, adaptive_clipping=_ADAPTIVE
    )
    bad = _UPDATES.copy()
    bad[2, 1] = value
    found, _ = _one_round(phase, state, bad)
    expected, _ = _one_round(
      phase, state, _UPDATES, takes_part=np.array([True, True, False, True])
    )
    finite = found.server_state.model.numpy()
    np.testing.assert_allclose(finite, expected.server_state.model, rtol=1e-6)
    assert np.isfinite(finite).all()


def test_an_update_whose_norm_overflows_is_clipped():
  phase, state = _private_toy(0.0)
  bad = _UPDATES.copy()
  bad[2, 1] = 3e38
  found, _ = _one_round(phase, state, bad)
  assert np.linalg.norm(found.server_state.model) <= 4 / 5


def test_a_client_that_was_not_drawn_adds_nothing():
  phase, state = _private_toy(0.0, num_clusters=2)
  found, metrics = _one_round(
    phase, state, _UPDATES[:1], takes_part=np.array([False])
  )
  assert not found.server_state.model.numpy().any()
  assert metrics['weight'].numpy().tolist() == [0, 0]
  assert found.extra.num_releases == 1


def test_noise_has_the_deviations_of_the_mechanism():
  """False alarm: 5 sigma of 20,000 draws, below 1e-6, for another seed."""
  size = 10_000
  options = {'num_clusters': 2, 'clip_norm': 3.0, 'count_share': 0.2}
  phase, state = _private_toy(2.0, size, **options)
  nobody = np.zeros((1, size), np.float32)
  found, metrics = _one_round(phase, state, nobody, takes_part=[False])
  divisors = np.maximum(metrics['weight'], 1.0)[:, np.newaxis]
  noise = found.server_state.model * divisors
  deviation = 2.0 / 0.8**0.5 * 3.0
  assert np.std(noise) == pytest.approx(
    deviation, rel=5 / (2 * 2 * size) ** 0.5
  )
  assert abs(np.mean(noise)) < 5 * deviation / (2 * size) ** 0.5
  again, _ = _one_round(phase, found, nobody, takes_part=[False])
  assert (
    abs(
      np.corrcoef(
        noise.numpy().ravel(), again.server_state.model.numpy().ravel()
      )[0, 1]
    )
    < 0.05
  )


def test_noise_of_a_fixed_order_is_that_of_a_tree():
  """The sums of an epoch, in units of the deviation; the last of a tree."""
  phase, state = _private_toy(2.0, rounds_per_epoch=2, clip_norm=3.0)
  nobody = np.zeros((1, 3), np.float32)
  totals = []
  for _ in range(3):
    state, _ = _one_round(phase, state, nobody, takes_part=[False])
    totals.append(state.server_state.model * 5.0 / (2.0 * 3.0))
  seed = state.extra.noise_seed
  drawn = [tree_noise.draw(seed, tf.constant(n), 2, 3) for n in range(3)]
  np.testing.assert_allclose(totals, drawn, rtol=1e-5)
  assert not np.allclose(totals[0], totals[2])


@pytest.mark.parametrize('name', ['fed_avg', 'ifca', 'fed_soft'])
def test_with_no_noise_to_speak_of_a_round_is_that_of_the_algorithm(
  name, monkeypatch
):
  """Of clients with equally many examples, which all have the same weight."""
  # So little noise cannot be accounted for.
  monkeypatch.setattr(accounting, 'epsilon', lambda *_: 0.0)
  config = mechanism.PrivacyConfig(noise_multiplier=1e-12, clip_norm=1e3)
  found, expected = (
    _run(_build(name, one, 'mlp'), 1, sizes=(4, 0, 4, 4, 4))
    for one in (config, None)
  )
  np.testing.assert_allclose(
    _flat(found[0].server_state), _flat(expected[0]), rtol=1e-4, atol=1e-6
  )


@pytest.mark.parametrize(
  'options',
  [
    {'sampling_prob': 0.5, 'adaptive_clipping': _ADAPTIVE},
    {'rounds_per_epoch': 2},
  ],
)
def test_runs_differ_by_seed_and_resume_bit_for_bit(options):
  config = mechanism.PrivacyConfig(noise_multiplier=0.5, **options)
  algorithm = _build('fed_soft', config)
  whole = _run(algorithm, 3)
  first = _run(algorithm, 2)
  rest = _run(algorithm, 1, start=first[:2], first_round=3)
  for one, other in zip(
    tf.nest.flatten(whole[:2]), tf.nest.flatten(rest[:2]), strict=True
  ):
    np.testing.assert_array_equal(one, other)
  other = _run(algorithm, 1, seed=1)[0].extra.noise_seed
  assert not np.array_equal(whole[0].extra.noise_seed, other)
  assert whole[0].extra.num_releases == 3


def test_clients_upload_no_metrics():
  config = mechanism.PrivacyConfig(noise_multiplier=0.5)
  outputs = _run(_build('fed_soft', config), 1)[2]
  assert [dict(one.client_metrics) for one in outputs] == [{}, {}]


def _vectorized(algorithm, num_clients):
  return vectorized_runtime.VectorizedRuntime(
    algorithm,
    num_clients,
    vectorized_runtime.VectorizedConfig(clients_per_block=2),
  )


@pytest.mark.parametrize(
  'build',
  [
    toys.graph_runtime,
    pytest.param(_vectorized, marks=pytest.mark.verify),
    pytest.param(tff_runtime.TffRuntime, marks=pytest.mark.verify),
  ],
)
@pytest.mark.parametrize(
  'options',
  [
    {'sampling_prob': 0.7, 'adaptive_clipping': _ADAPTIVE},
    {'rounds_per_epoch': 2},
  ],
)
def test_runtimes_agree(build, options):
  config = mechanism.PrivacyConfig(noise_multiplier=0.2, **options)
  algorithm = _build('ifca', config)
  runtime = build(algorithm, len(contract.SIZES))
  with contextlib.ExitStack() as stack:
    if hasattr(runtime, '__enter__'):
      stack.enter_context(runtime)
    found = _run(algorithm, 2, build=lambda *_: runtime)
  expected = _run(algorithm, 2)
  np.testing.assert_allclose(
    _flat(found[:2]), _flat(expected[:2]), rtol=1e-4, atol=1e-5
  )


def _audit(phase, state, trials, threshold):
  """Returns a lower bound of epsilon, wrong with probability below 2e-4.

  Clopper-Pearson limits of the rates at which a release is above a threshold
  with and without the canary, whose contribution has the clipping norm.
  """
  present = _sums(phase, state, np.array([[5, 0, 0]], np.float32))
  absent = tf.nest.map_structure(tf.zeros_like, present)

  def release(sums, number):
    numbered = state._replace(extra=state.extra._replace(num_releases=number))
    updated, _ = composer.server_update(phase, numbered, sums, {})
    return updated.server_state.model[0] * 5.0

  @tf.function
  def count(sums, first):
    released = tf.map_fn(
      lambda number: release(sums, number),
      tf.range(first, first + trials),
      fn_output_signature=tf.float32,
    )
    return tf.math.count_nonzero(released > threshold)

  hits = int(count(present, tf.constant(0)))
  alarms = int(count(absent, tf.constant(trials)))
  most_alarms = stats.beta.ppf(1 - 1e-4, alarms + 1, trials - alarms)
  least_hits = stats.beta.ppf(1e-4, hits, trials - hits + 1)
  return np.log((least_hits - _DELTA) / most_alarms)


def test_a_canary_finds_less_than_the_claimed_epsilon():
  """Fails for a correct mechanism with probability below 2e-4 a seed."""
  claimed = accounting.epsilon(1.5, accounting.Participation(), 1, _DELTA)
  found = _audit(*_private_toy(1.5, clip_norm=1.0), 1000, 2.0)
  assert 0 < found < claimed
  # A sixth of that noise is found out.
  assert _audit(*_private_toy(0.25, clip_norm=1.0), 1000, 1.0) > claimed


@pytest.mark.verify
def test_a_canary_of_many_releases_finds_less_than_the_claimed_epsilon():
  """Fails for a correct mechanism with probability below 8e-4 a seed."""
  claimed = accounting.epsilon(1.0, accounting.Participation(), 1, _DELTA)
  for threshold in (1.0, 1.5, 2.0, 2.5):
    found = _audit(*_private_toy(1.0, clip_norm=1.0), 20_000, threshold)
    assert 1.0 < found < claimed
