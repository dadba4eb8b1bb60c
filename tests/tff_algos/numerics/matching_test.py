"""Tests of the best matching, against SciPy and all permutations."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from scipy import optimize

from tff_algos.numerics import matching


@pytest.mark.parametrize('size', [1, 2, 3, 5, 8, 20])
def test_total_is_the_largest(size):
  """Real scores, and small integers, which tie."""
  graph = tf.function(
    matching.best_matching,
    autograph=False,
    input_signature=[tf.TensorSpec([size, size], tf.float64)],
  )
  generator = np.random.default_rng(size)
  for trial in range(20):
    scores = generator.normal(size=(size, size))
    if trial % 2:
      scores = np.floor(3 * scores)
    columns = graph(scores).numpy()
    assert sorted(columns) == list(range(size))
    rows, best = optimize.linear_sum_assignment(scores, maximize=True)
    np.testing.assert_allclose(
      scores[rows, columns].sum(), scores[rows, best].sum(), atol=1e-9
    )


@pytest.mark.parametrize('size', [2, 5])
def test_of_the_best_the_lexicographically_smallest_is_taken(size):
  """Small integers, and thirds whose sums differ by their rounding alone."""
  graph = tf.function(
    matching.best_matching,
    autograph=False,
    input_signature=[tf.TensorSpec([size, size], tf.float64)],
  )
  generator = np.random.default_rng(size)
  permutations = np.array([*itertools.permutations(range(size))])
  num_ties = 0
  for trial in range(40):
    scores = generator.integers(0, 3, (size, size))
    totals = scores[np.arange(size), permutations].sum(axis=1)
    is_best = totals == totals.max()
    num_ties += is_best.sum() > 1
    noise = generator.uniform(size=(size, 1)) if trial % 2 else 0
    found = graph(scores / 3 + noise)
    np.testing.assert_array_equal(found, permutations[is_best.argmax()])
  assert num_ties > 10
