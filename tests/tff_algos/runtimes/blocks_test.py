"""The size of a block: cache, cores, and a memory budget that is honest."""

import pytest
import tensorflow as tf

from tff_algos.core import errors
from tff_algos.runtimes import blocks


def _choose(**changes):
  arguments = {
    'cohort_size': 1000,
    'weight_bytes': 4 * 159_010,
    'bytes_per_client': 1 << 20,
    'num_parallel': 2,
    'budget_bytes': 0,
    **changes,
  }
  return blocks.clients_per_block(**arguments)


def test_weights_of_a_block_fit_the_cache():
  assert _choose() == (8 << 20) // (4 * 159_010)


def test_small_models_come_by_the_hundred_and_large_ones_by_eight():
  assert _choose(weight_bytes=4) == 100
  assert _choose(weight_bytes=1 << 30) == 8


def test_a_small_cohort_is_shared_by_all_cores():
  assert _choose(cohort_size=7) == 4
  assert _choose(cohort_size=1) == 1


def test_budget_counts_the_blocks_that_run_and_the_one_that_is_read():
  assert _choose(budget_bytes=3 * 5 << 20) == 5
  assert _choose(budget_bytes=1 << 40) == _choose()


def test_budget_below_one_client_says_what_it_takes():
  with pytest.raises(
    errors.ConfigError, match=r'memory_budget_mib is 2, .* give at least 3'
  ):
    _choose(budget_bytes=2 << 20)


def test_bytes_of_a_client():
  weights = {'w': tf.TensorSpec([3, 2], tf.float32)}
  data = (
    tf.TensorSpec([None, 4], tf.float32),
    tf.TensorSpec([None], tf.int32),
    tf.TensorSpec([None], tf.float32),
  )
  state = tf.TensorSpec([5], tf.float32)
  assert blocks.num_bytes(weights) == 24
  assert blocks.client_bytes(weights, data, state, capacity=10) == (
    2 * 10 * (16 + 4 + 4) + 6 * 24 + 2 * 20
  )
