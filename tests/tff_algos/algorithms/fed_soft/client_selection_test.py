"""Tests of who is drawn for which cluster.

The statistical tests run on fixed seeds and cannot flicker; the stated
false-alarm rate is the chance that right code fails one at another seed.
"""

import numpy as np
import pytest

from tff_algos.algorithms.fed_soft import client_selection
from tff_algos.core import algorithm, seeds


def _population(*num_examples):
  ids = tuple(f'c{i}' for i in range(len(num_examples)))
  return algorithm.Population(ids, np.array(num_examples, np.int64))


def _generator(seed=0):
  return seeds.numpy_generator(seed, 'cohort', 1)


def test_selection_probs_of_a_hand_example():
  """FedSoft, Eq. 6: u n / sum over all clients."""
  importance = np.array([[0.5, 0.5], [1, 0], [0.25, 0.75]])
  probs = client_selection.selection_probs(importance, np.array([10, 20, 40]))
  assert probs.dtype == np.float64
  expected = [[5 / 35, 20 / 35, 10 / 35], [5 / 35, 0, 30 / 35]]
  np.testing.assert_allclose(probs, expected, rtol=1e-15)


def test_a_cluster_that_fits_nobody_draws_by_examples():
  """All importances at the smoother, or all at 0: v = n_k / n."""
  for smoother in (1e-4, 0.0):
    importance = np.array([[1, smoother], [1, smoother], [1, smoother]])
    probs = client_selection.selection_probs(importance, np.array([10, 30, 60]))
    np.testing.assert_allclose(probs[1], [0.1, 0.3, 0.6], rtol=1e-12)


def test_a_client_without_examples_is_never_drawn():
  importance = np.array([[0.5, 0], [0.5, 0], [0.5, 0]])
  probs = client_selection.selection_probs(importance, np.array([3, 0, 1]))
  np.testing.assert_array_equal(probs[:, 1], [0, 0])
  np.testing.assert_allclose(probs.sum(axis=1), [1, 1])


def test_rows_of_selection_probs_sum_to_one_with_float32_importance():
  generator = np.random.default_rng(0)
  importance = generator.uniform(0, 1, (100, 4)).astype(np.float32)
  probs = client_selection.selection_probs(
    importance, generator.integers(100, 201, 100)
  )
  np.testing.assert_allclose(probs.sum(axis=1), np.ones(4), rtol=1e-14)


@pytest.mark.parametrize('with_replacement', [True, False])
def test_every_cluster_gets_its_slots_and_the_seed_decides(with_replacement):
  probs = np.array([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]])

  def draw(seed):
    return client_selection.draw_per_cluster(
      probs, 3, with_replacement, _generator(seed)
    )

  slots = draw(0)
  assert slots.shape == (4, 2)
  assert slots.sum(axis=0).tolist() == [3, 3]
  np.testing.assert_array_equal(draw(0), slots)
  assert any((draw(seed) != slots).any() for seed in range(1, 5))
  if not with_replacement:
    assert slots.max() == 1


def test_more_slots_than_clients_need_replacement():
  slots = client_selection.draw_per_cluster(
    np.array([[0.5, 0.5, 0]]), 7, True, _generator()
  )
  assert slots[:, 0].sum() == 7
  assert slots[2, 0] == 0


_SKEWED = np.array([0.4, 0.3, 0.15, 0.1, 0.05])


def test_successive_sampling_has_the_law_of_the_textbook():
  """P(pair) = p_i p_j (1/(1-p_i) + 1/(1-p_j)), 5 standard errors each."""
  num_draws = 20_000
  slots = client_selection.draw_per_cluster(
    np.tile(_SKEWED, (num_draws, 1)), 2, False, _generator(1)
  )
  for i in range(5):
    for j in range(i):
      together = np.mean(slots[i] * slots[j])
      p, q = _SKEWED[i], _SKEWED[j]
      expected = p * q * (1 / (1 - p) + 1 / (1 - q))
      error = np.sqrt(expected * (1 - expected) / num_draws)
      assert abs(together - expected) < 5 * error


@pytest.mark.parametrize(
  ('selection', 'cohort_size', 'is_full'),
  [
    ('weighted_full', 2, True),
    ('without_replacement', 3, True),
    ('without_replacement', 2, False),
    ('with_replacement', 3, False),
  ],
)
def test_shares_are_probabilities_of_everybody_or_slots(
  selection, cohort_size, is_full
):
  """FedSoft, Eq. 27; K = N would make the plain means of all equal.

  The second client is not available.
  """
  importance = np.array([[1.0, 0], [1, 1], [0, 1], [0.5, 0.5]])
  population = _population(4, 7, 5, 1)._replace(
    is_available=np.array([True, False, True, True])
  )
  shares = client_selection.draw_shares(
    importance, population, selection, cohort_size, _generator()
  )
  assert shares.shape == (4, 2)
  probs = [[4 / 4.5, 0], [0, 0], [0, 5 / 5.5], [0.5 / 4.5, 0.5 / 5.5]]
  if is_full:
    np.testing.assert_allclose(shares, probs, rtol=1e-12)
  else:
    slots = client_selection.draw_per_cluster(
      np.array(probs).T,
      cohort_size,
      selection == 'with_replacement',
      _generator(),
    )
    np.testing.assert_array_equal(shares, slots)


@pytest.mark.parametrize('selection', client_selection.SELECTIONS)
def test_where_nobody_is_available_nobody_is_drawn(selection):
  population = _population(10, 20)._replace(is_available=np.zeros(2, bool))
  shares = client_selection.draw_shares(
    np.full((2, 3), 0.5), population, selection, 1, _generator()
  )
  np.testing.assert_array_equal(shares, np.zeros((2, 3)))
