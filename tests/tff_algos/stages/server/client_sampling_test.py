"""Tests of who takes part, and of what each counts.

The statistical tests run on fixed seeds and cannot flicker; the stated
false-alarm rate is the chance that right code fails one at another seed.
"""

import numpy as np
import pytest
import tensorflow as tf

from tff_algos.core import algorithm, errors, seeds
from tff_algos.stages.server import client_sampling


def _population(*num_examples):
  ids = tuple(f'c{i}' for i in range(len(num_examples)))
  return algorithm.Population(ids, np.array(num_examples, np.int64))


def _generator(seed=0):
  return seeds.numpy_generator(seed, 'cohort', 1)


def test_more_clients_than_have_examples_is_an_error():
  population = _population(3, 0, 5)
  client_sampling.check_cohort_size('cohort_size', 2, population)
  text = 'cohort_size is 3, but only 2 of the 3 clients have training examples'
  with pytest.raises(errors.ConfigError, match=text):
    client_sampling.check_cohort_size('cohort_size', 3, population)
  text = 'only 1 of the 3 clients have training examples and are available'
  with pytest.raises(errors.ConfigError, match=text):
    client_sampling.check_cohort_size(
      'cohort_size', 2, population._replace(is_available=np.arange(3) < 2)
    )


def test_uniform_draws_are_distinct_sorted_and_have_examples():
  population = _population(1, 0, 2, 3, 0, 9)
  drawn = client_sampling.draw_uniform(
    population.clients_with_examples, 3, _generator()
  )
  assert drawn.dtype == np.int32
  assert len(set(drawn)) == 3
  assert sorted(drawn) == drawn.tolist()
  assert set(drawn) <= {0, 2, 3, 5}


def test_uniform_draws_take_every_client_equally_often():
  """5 standard errors of a binomial: false-alarm rate below 1e-5."""
  generator = _generator()
  counts = np.zeros(10)
  for _ in range(4000):
    counts[client_sampling.draw_uniform(np.arange(10), 3, generator)] += 1
  assert np.abs(counts - 1200).max() < 5 * np.sqrt(4000 * 0.3 * 0.7)


def test_a_cohort_size_of_0_is_everybody_who_has_examples():
  population = _population(3, 0, 5, 1)
  everybody = client_sampling.draw_cohort(population, 0, 7, 2)
  assert everybody.tolist() == [0, 2, 3]
  assert everybody.dtype == np.int32
  some = client_sampling.draw_cohort(population, 2, 7, 2)
  generator = seeds.numpy_generator(7, 'cohort', 2)
  np.testing.assert_array_equal(
    some, client_sampling.draw_uniform([0, 2, 3], 2, generator)
  )
  with pytest.raises(errors.ConfigError, match='cohort_size is 4, but only 3'):
    client_sampling.draw_cohort(population, 4, 7, 2)


@pytest.mark.parametrize(
  ('weighting', 'expected'), [('uniform', [1, 1, 0]), ('examples', [3, 1, 0])]
)
def test_what_a_client_counts(weighting, expected):
  for mask, count in zip(([1, 1, 1], [1, 0], [0]), expected, strict=True):
    mask = tf.constant(mask, tf.float32)
    data = algorithm.ClientData(mask, mask, mask)
    assert client_sampling.client_weight(data, weighting) == count


def test_shares_of_the_population_sum_to_one():
  population = _population(3, 0, 5)
  for weighting, expected in (
    ('examples', [3 / 8, 0, 5 / 8]),
    ('uniform', [1 / 2, 0, 1 / 2]),
  ):
    found = client_sampling.population_shares(population, weighting)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert found.dtype == np.float32
  with pytest.raises(errors.ConfigError, match='no client has training'):
    client_sampling.population_shares(_population(0, 0), 'examples')


def test_plan_draws_those_with_examples_and_multiplies_the_cost():
  plan = client_sampling.build_uniform_plan(
    2, downlink_floats=7, uplink_floats=3, local_solves=4
  )
  (call,) = plan(None, _population(3, 0, 2), 1, 0)
  assert call.client_indices.tolist() == [0, 2]
  assert call.cost == (14, 6, 8)
