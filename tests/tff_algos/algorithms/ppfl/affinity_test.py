"""Tests of the label counts that clients upload, of affinity and its penalty."""

import decimal
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import contract, running_sum, toys
from tff_algos.algorithms.ppfl import affinity
from tff_algos.core import algorithm, errors
from tff_algos.runtimes import cohort as cohort_lib
from tff_algos.runtimes import debug_runtime

_SOURCE = contract.build_source()
_NUM_CLIENTS = len(contract.SIZES)
_COUNTS = np.stack(
  [np.bincount(_SOURCE.examples(i).y, minlength=3) for i in range(_NUM_CLIENTS)]
)


_GENERATOR = np.random.default_rng(1)
_HISTOGRAMS = np.array(
  [[3, 1, 0], [6, 2, 0], [0, 0, 5], [0, 0, 0], [1, 1, 1]], np.float64
)


class _State(NamedTuple):
  affinity_features: Any
  is_counted: Any


def _count(
  config, client_indices=(0, 2, 3, 4), seed=0, model=None, source=_SOURCE
):
  """Returns the features after `count_labels`, and what came before."""
  model = model or toys.mlp()
  phase = affinity.build_counting(model, config)
  state = _State(
    affinity.initial_features(config, model, _NUM_CLIENTS).numpy(),
    np.zeros(_NUM_CLIENTS, bool),
  )
  call = algorithm.PhaseCall(
    'count_labels',
    np.array(client_indices, np.int32),
    (),
    algorithm.Cost(),
  )
  cohort = cohort_lib.Cohort(call, 1, seed, source, lambda indices: ())
  output = debug_runtime.DebugRuntime(
    running_sum.algorithm(), _NUM_CLIENTS
  ).run(phase, state, cohort)
  return output.server_state.affinity_features, state.affinity_features


def _cosines(counts):
  norms = np.linalg.norm(counts, axis=1, keepdims=True)
  return counts / np.maximum(norms, 1e-30)


def test_server_learns_the_cosines_of_the_counts():
  """Client 1 has no examples, and no edges."""
  found, before = _count(affinity.LaplacianConfig(0.1))
  assert not before.any()
  np.testing.assert_allclose(found, _cosines(_COUNTS), rtol=1e-6)
  assert not found[1].any()


def test_words_are_counted_without_those_that_no_score_counts():
  """Padding and unknown words, 0 and 1, tell nothing of who is alike."""
  source = toys.token_clients([4, 2, 3, 5, 1])
  found, _ = _count(
    affinity.LaplacianConfig(0.1),
    range(5),
    model=toys.transformer(),
    source=source,
  )
  counts = np.stack(
    [np.bincount(source.examples(i).y.ravel(), minlength=6) for i in range(5)]
  )
  assert counts[:, :2].all(axis=1).any()
  counts[:, :2] = 0
  np.testing.assert_allclose(found, _cosines(counts), rtol=1e-6)


def test_who_is_not_asked_has_no_edges():
  found, _ = _count(affinity.LaplacianConfig(0.1), (0, 3))
  assert not found[[2, 4]].any()
  assert found[[0, 3]].any(axis=1).all()


def test_shifted_cosines():
  found, _ = _count(affinity.LaplacianConfig(0.1, 'shifted_cosine'))
  rows = _cosines(_COUNTS)
  expected = 0.5 + 0.5 * rows @ rows.T
  expected[1] = expected[:, 1] = 0
  np.testing.assert_allclose(found @ found.T, expected, atol=1e-6)


def test_noise_is_discrete_laplace_and_differs_between_clients():
  """Scale 2. Of 20,000 draws the share of each integer from -4 to 4 lies within
  five standard deviations, which fails by chance once in 100,000.
  """
  draws = np.concatenate(
    [
      affinity.discrete_laplace(tf.constant([7, i]), 1_000, 2)
      for i in range(20)
    ]
  )
  np.testing.assert_array_equal(draws, np.round(draws))
  ratio = np.exp(-1 / 2)
  for k in range(-4, 5):
    share = (1 - ratio) / (1 + ratio) * ratio ** abs(k)
    deviation = np.sqrt(share * (1 - share) / len(draws))
    assert abs(np.mean(draws == k) - share) < 5 * deviation
  exact, _ = _count(affinity.LaplacianConfig(0.1))
  noisy, _ = _count(affinity.LaplacianConfig(0.1, count_noise=1.0))
  other, _ = _count(affinity.LaplacianConfig(0.1, count_noise=1.0), seed=1)
  assert np.abs(noisy - exact).max() > 1e-3
  assert np.abs(noisy - other).max() > 1e-3
  assert noisy.min() >= 0


@pytest.mark.parametrize('scale', ['0.5', '1', '3', '10'])
def test_noise_hides_a_label_with_the_documented_epsilon(scale):
  """By the coin, whose bias is the ratio of neighbouring probabilities."""
  below = int(affinity.coin(float(scale)))
  with decimal.localcontext(prec=60):
    epsilon = -(decimal.Decimal(below) / 2**64).ln()
    assert abs(epsilon * decimal.Decimal(scale) - 1) < 1e-14


@pytest.mark.parametrize('num_tosses', [0, 3, 200])
def test_a_draw_counts_the_tosses_before_a_failure(monkeypatch, num_tosses):
  """Also 200 of scale 1, which a single draw of 64 bits never gives."""
  below = int(np.exp(-1.0) * 2**64)
  seeds = []

  def toss(shape, seed, **options):
    seeds.append(tuple(seed.numpy()))
    # The second of the two draws fails at once.
    first = below - 2**20 if len(seeds) <= num_tosses else below + 2**20
    return tf.constant([[first], [below + 2**20]], tf.uint64)

  monkeypatch.setattr(tf.random, 'stateless_uniform', toss)
  found = affinity.discrete_laplace(tf.constant([1, 2]), 1, 1.0)
  assert found.numpy().tolist() == [num_tosses]
  assert len({*seeds}) == num_tosses + 1


def test_penalty_gradients_are_the_laplacians_and_the_degrees():
  generator = np.random.default_rng(0)
  features = generator.uniform(size=(5, 3)).astype(np.float32)
  memberships = generator.dirichlet(np.ones(2), 5).astype(np.float32)
  matrix = features @ features.T
  degrees = np.diag(matrix.sum(axis=1))
  for form, expected in (
    ('laplacian', 2 * 0.3 * (degrees - matrix) @ memberships),
    ('degree', 0.3 * degrees @ memberships),
  ):
    config = affinity.LaplacianConfig(0.3, form=form)
    found = affinity.penalty_gradients(config, features, memberships)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_only_a_penalty_that_compares_labels_needs_counts():
  model = toys.mlp()
  assert affinity.initial_features(affinity.LaplacianConfig(), model, 3) == ()
  assert not affinity.LaplacianConfig().needs_counts
  uniform = affinity.LaplacianConfig(0.1, 'uniform')
  assert not uniform.needs_counts
  np.testing.assert_array_equal(
    affinity.initial_features(uniform, model, 3), np.ones((3, 1))
  )
  assert affinity.LaplacianConfig(0.1).needs_counts


def test_counting_needs_classes():
  text = "'cosine' compares counts of classes, but model 'linear_regression'"
  with pytest.raises(errors.ConfigError, match=text):
    affinity.build_counting(toys.linear(3), affinity.LaplacianConfig(0.1))


@pytest.mark.parametrize(
  ('options', 'text'),
  [
    ({'weight': -1.0}, 'weight must be a finite number >= 0, got -1.0'),
    ({'affinity': 'euclid'}, "affinity must be one of 'cosine', 'shifted"),
    (
      {'form': 'paper'},
      "form must be one of 'laplacian', 'degree', got 'paper'",
    ),
    ({'count_noise': -1.0}, 'count_noise must be a finite number >= 0'),
  ],
)
def test_options_out_of_range_are_refused(options, text):
  with pytest.raises(errors.ConfigError, match=text):
    affinity.LaplacianConfig(**OrderedDict(options))


def _matrix(features):
  return np.array(features @ tf.transpose(features))


def _features(is_shifted):
  return affinity.cosine_features(tf.constant(_HISTOGRAMS), is_shifted)


@pytest.mark.parametrize('is_shifted', [False, True])
def test_edges_are_cosines_and_a_histogram_of_zeros_has_none(is_shifted):
  found = _matrix(_features(is_shifted))
  expected = np.zeros((5, 5))
  for i, one in enumerate(_HISTOGRAMS):
    for j, other in enumerate(_HISTOGRAMS):
      if i == 3 or j == 3:
        continue
      cosine = one @ other / np.sqrt((one @ one) * (other @ other))
      expected[i, j] = 0.5 + 0.5 * cosine if is_shifted else cosine
  np.testing.assert_allclose(found, expected, atol=1e-12)
  np.testing.assert_allclose(found[0, 1], 1)
  assert np.linalg.eigvalsh(found).min() >= -1e-9


def test_tiny_and_huge_counts_have_the_same_directions():
  scales = np.array([[1e-30], [1.0], [1e30]], np.float32)
  rows = tf.constant(scales * np.array([[1, 2, 3]], np.float32))
  found = affinity.cosine_features(rows, False).numpy()
  np.testing.assert_allclose(found, np.tile(found[1], (3, 1)), rtol=1e-6)


def test_laplacian_is_the_penaltys_gradient():
  """1/2 sum_ij w_ij |v_i - v_j|^2 = <V, (D - W) V>, of gradient 2 (D - W) V."""
  features = tf.constant(_GENERATOR.normal(size=(7, 3)))  # Signs, too.
  values = tf.constant(_GENERATOR.dirichlet(np.ones(4), 7))
  matrix = _matrix(features)
  expected = 0.5 * sum(
    matrix[i, j] * np.sum((values[i] - values[j]).numpy() ** 2)
    for i in range(7)
    for j in range(7)
  )
  laplacian = np.diag(matrix.sum(axis=1)) - matrix
  with tf.GradientTape() as tape:
    tape.watch(values)
    found = affinity.disagreement(features, values)
  np.testing.assert_allclose(found, expected, rtol=1e-6)
  np.testing.assert_allclose(
    affinity.laplacian_product(features, values),
    laplacian @ values,
    atol=1e-12,
  )
  np.testing.assert_allclose(
    tape.gradient(found, values), 2 * laplacian @ values, atol=1e-12
  )
  np.testing.assert_allclose(
    affinity.degrees(features)[:, 0], matrix.sum(axis=1), atol=1e-12
  )
