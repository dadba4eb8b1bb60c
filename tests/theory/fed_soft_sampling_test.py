"""Who is drawn in FedSoft, and what that does to the centres.

Ruan and Joe-Wong (2021), Eqs. 6, 24 and 38 to 42. Draws and means are those of
the stages; seeds are fixed, and a docstring says how often another seed would
fail.
"""

import numpy as np
import pytest
import tensorflow as tf

from tff_algos.algorithms.fed_soft import client_selection
from tff_algos.rounds import aggregation

_NUM_DRAWS = 20_000
_TEN_NINETY = np.repeat([[0.9, 0.1], [0.1, 0.9]], 50, axis=0)
_THIRTY_SEVENTY = np.repeat([[0.7, 0.3], [0.3, 0.7]], 50, axis=0)
_OWN = (np.arange(100) + 0.5) / 100
_LINEAR = np.stack([_OWN, 1 - _OWN], axis=1)


def _slots(probs, cohort_size, with_replacement, num_draws=_NUM_DRAWS, seed=0):
  """Slots of many independent draws of one cluster, `[N, num_draws]`."""
  rows = np.broadcast_to(probs, (num_draws, len(probs)))
  return client_selection.draw_per_cluster(
    rows, cohort_size, with_replacement, np.random.default_rng(seed)
  )


def _centers(models, slots):
  """The means that our aggregator makes of each draw, `[num_draws, P]`."""
  results = {
    'w': tf.constant(models, tf.float32),
    'slots': tf.constant(slots, tf.float32),
  }
  mean = aggregation.ClusterMean('slots')
  return mean.finish(mean.partial_sum(results, 'w')).value.numpy()


def _skewed():
  """Ten clients with skewed chances, and their models and old centre."""
  generator = np.random.default_rng(1)
  probs = client_selection.selection_probs(
    generator.dirichlet(np.ones(2), 10), generator.integers(50, 100, 10)
  )[0]
  return probs, generator.normal(size=(10, 3)), generator.normal(size=3)


@pytest.mark.parametrize('cohort_size', [1, 4, 12])
def test_independent_slots_are_unbiased_with_variance_one_over_k(cohort_size):
  """Eqs. 39 and 42: E c = sum_k v_k w_k, E|c - E c|^2 = V / K <= 2 / K E|w|^2.

  20,000 draws; 5 standard errors of the mean and 5% of the variance, whose
  relative standard error is below 1%: false alarms below 1e-5.
  """
  probs, models, old = _skewed()
  centers = _centers(models, _slots(probs, cohort_size, True))
  expected = probs @ models
  variance = probs @ np.sum((models - expected) ** 2, axis=1) / cohort_size
  errors = centers.std(axis=0) / np.sqrt(_NUM_DRAWS)
  assert (np.abs(centers.mean(axis=0) - expected) < 5 * errors).all()
  found = np.mean(np.sum((centers - expected) ** 2, axis=1))
  assert abs(found / variance - 1) < 0.05
  assert found <= 2 / cohort_size * probs @ np.sum((models - old) ** 2, axis=1)


def test_draws_without_replacement_are_biased():
  """The plain mean flattens skewed chances, by far more than 50 standard
  errors: no seed passes by luck."""
  probs, models, _ = _skewed()
  centers = _centers(models, _slots(probs, 6, False))
  errors = centers.std(axis=0) / np.sqrt(_NUM_DRAWS)
  bias = centers.mean(axis=0) - probs @ models
  assert (np.abs(bias) / errors).max() > 50
  flat = models.mean(axis=0) - probs @ models
  assert bias @ flat > 0, 'it leads to the mean of everybody'


@pytest.mark.parametrize(
  ('mixture', 'in_mind', 'expected'),
  [
    (_TEN_NINETY, 0.9, 0.78),
    (_THIRTY_SEVENTY, 0.7, 0.63),
  ],
)
def test_share_of_the_majority_in_a_cohort_of_sixty(mixture, in_mind, expected):
  """2,000 draws of 60 of 100: 0.01 is over 10 standard errors."""
  probs = client_selection.selection_probs(mixture, np.full(100, 150))[0]
  assert abs(probs[:50].sum() - in_mind) < 1e-9
  slots = _slots(probs, 60, False, 2_000)
  assert abs(slots[:50].sum() / slots.sum() - expected) < 0.01


def test_mean_share_of_a_source_in_a_cohort_of_the_linear_partition():
  """0.61 in place of the 0.67 of the weighted mean; 0.01 is over 10 standard
  errors."""
  probs = client_selection.selection_probs(_LINEAR, np.full(100, 150))[0]
  assert abs(probs @ _OWN - 0.67) < 0.005
  slots = _slots(probs, 60, False, 2_000)
  assert abs(slots.sum(axis=1) @ _OWN / slots.sum() - 0.61) < 0.01


def _mean_union(mixture, with_replacement, num_draws):
  """Mean number of clients that train, over rounds of two clusters, K = 60."""
  probs = client_selection.selection_probs(mixture, np.full(100, 150))
  first, second = (
    _slots(row, 60, with_replacement, num_draws, seed)
    for seed, row in enumerate(probs)
  )
  return np.mean(np.sum(first + second > 0, axis=0))


def test_number_of_clients_that_train():
  """N (1 - (1 - K/N)^S) = 84 for equal chances, less than S K = 120.

  10,000 draws: 0.1 is 4 standard errors (false alarms 6e-5). Slots with
  replacement give N (1 - (1 - 1/N)^(S K)) = 70.06; a standard deviation of 3
  makes 0.15 five standard errors.
  """
  uniform = np.full((100, 2), 0.5)
  assert abs(_mean_union(uniform, False, 10_000) - 84) < 0.1
  assert abs(_mean_union(uniform, True, 10_000) - 70.06) < 0.15


def test_number_of_clients_that_train_with_the_chances_of_ten_ninety():
  """Skewed chances draw other clients for each cluster: 95, not 84.

  1,000 draws: 0.5 is over 8 standard errors.
  """
  assert abs(_mean_union(_TEN_NINETY, False, 1_000) - 95) < 0.5


def test_selection_chance_is_bounded_by_lemma_two():
  """E[X / (X + R)] <= E[X] E[1 / (X + R)] (Eq. 24): 0.50 <= 0.69.

  X = u n of one client, R that of the rest, independent and uniform; 100,000
  clusters as trials, standard errors below 0.002, a gap of 0.19.
  """
  importance = np.random.default_rng(2).uniform(size=(2, 100_000))
  shares = client_selection.selection_probs(importance, np.array([1, 1]))[:, 0]
  bound = importance[0].mean() * np.mean(1 / importance.sum(axis=0))
  assert shares.mean() <= bound
  assert abs(shares.mean() - 0.5) < 0.01 and abs(bound - np.log(2)) < 0.01
