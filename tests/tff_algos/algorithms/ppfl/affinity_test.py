"""Tests of the label counts that clients upload, and of the penalty's pull."""

from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import contract, toys
from tff_algos.algorithms.ppfl import affinity
from tff_algos.core import algorithm, errors
from tff_algos.runtimes import cohort as cohort_lib
from tff_algos.runtimes import debug_runtime

_SOURCE = contract.build_source()
_NUM_CLIENTS = len(contract.SIZES)
_COUNTS = np.stack(
  [np.bincount(_SOURCE.examples(i).y, minlength=3) for i in range(_NUM_CLIENTS)]
)


class _State(NamedTuple):
  affinity_features: Any


def _count(
  config, client_indices=(0, 2, 3, 4), seed=0, model=None, source=_SOURCE
):
  """Returns the features after `count_labels`, and what came before."""
  model = model or toys.mlp()
  phase = affinity.build_counting(model, config)
  state = _State(affinity.initial_features(config, model, _NUM_CLIENTS).numpy())
  call = algorithm.PhaseCall(
    'count_labels',
    np.array(client_indices, np.int32),
    (),
    algorithm.Cost(),
  )
  cohort = cohort_lib.Cohort(call, 1, seed, source, lambda indices: ())
  output = debug_runtime.DebugRuntime(None, _NUM_CLIENTS).run(
    phase, state, cohort
  )
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


def test_noise_is_laplaces_law_and_differs_between_clients():
  """Scale 2: mean 0, mean size 2. Of 20,000 draws the mean lies within 0.1 and
  the mean size within 0.08 of it, which fails by chance once in a million.
  """
  draws = 2.0 * np.concatenate(
    [affinity._laplace(tf.constant([7, i]), 1_000) for i in range(20)]
  )
  assert abs(draws.mean()) < 0.1
  assert abs(np.abs(draws).mean() - 2) < 0.08
  assert abs(np.mean(np.abs(draws) > 4) - np.exp(-2)) < 0.015
  assert len(np.unique(draws)) > 19_000
  exact, _ = _count(affinity.LaplacianConfig(0.1))
  noisy, _ = _count(affinity.LaplacianConfig(0.1, count_noise=1.0))
  other, _ = _count(affinity.LaplacianConfig(0.1, count_noise=1.0), seed=1)
  assert np.abs(noisy - exact).max() > 1e-3
  assert np.abs(noisy - other).max() > 1e-3
  assert noisy.min() >= 0


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
