"""Tests of statistics that merge by adding."""

import numpy as np
import pytest
import tensorflow as tf

from tff_algos.numerics import statistics, trees


def test_statistics_of_parts_add_up_to_that_of_the_whole():
  generator = np.random.default_rng(0)
  values = generator.normal(size=20).astype(np.float32)
  mask = generator.integers(0, 2, 20).astype(np.float32)
  whole = statistics.weighted_mean(tf.constant(values), tf.constant(mask))
  parts = statistics.empty_mean()
  for rows in np.split(np.arange(20), [3, 4, 11]):
    part = statistics.weighted_mean(
      tf.constant(values[rows]), tf.constant(mask[rows])
    )
    parts = trees.add(parts, part)
  np.testing.assert_allclose(parts.total, whole.total, rtol=1e-5)
  assert float(parts.weight) == float(whole.weight) == mask.sum()
  np.testing.assert_allclose(
    statistics.value_of(whole), values[mask > 0].mean(), rtol=1e-5
  )


@pytest.mark.parametrize('size', [0, 3])
def test_a_mean_of_nothing_is_nan_and_never_divides_by_zero(size):
  stat = statistics.weighted_mean(tf.ones([size]), tf.zeros([size]))
  assert float(stat.total) == float(stat.weight) == 0
  with np.errstate(all='raise'):
    assert np.isnan(statistics.value_of(stat))


def test_value_of_is_float64_and_by_entry():
  stat = statistics.MeanStat(
    np.array([1, 0], np.float32), np.array([3, 0], np.float32)
  )
  value = statistics.value_of(stat)
  assert value.dtype == np.float64
  assert value[0] == 1 / 3
  assert np.isnan(value[1])


def test_weighted_mean_counts_by_weight_even_beside_nan():
  values = tf.constant([1.0, 5, np.nan, 2])
  stat = statistics.weighted_mean(values, tf.constant([3.0, 1, 0, 0]))
  assert float(stat.total) == 8
  assert float(stat.weight) == 4
  rows = tf.stack([values, 2 * values])
  stat = statistics.weighted_mean(rows, tf.constant([3.0, 1, 0, 0]))
  assert stat.total.numpy().tolist() == [8, 16]
  assert stat.weight.numpy().tolist() == [4, 4]
