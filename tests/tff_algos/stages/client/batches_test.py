"""Tests of which rows a given number of batches reads."""

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import index_hash
from tff_algos.core import seeds
from tff_algos.stages.client import batches

_SEED = seeds.derive_seed(1, 'train', 1, 'c0')
_GRAPHS = {}


def _draw(size, capacity, num_batches, batch_size):
  key = num_batches, batch_size
  if key not in _GRAPHS:
    _GRAPHS[key] = tf.function(
      lambda seed, mask: batches.draw_batches(seed, mask, *key),
      autograph=False,
      input_signature=[
        tf.TensorSpec([2], tf.int32),
        tf.TensorSpec([None], tf.float32),
      ],
    )
  mask = (np.arange(capacity) < size).astype(np.float32)
  positions, masks = _GRAPHS[key](_SEED, mask)
  return positions.numpy(), masks.numpy()


def _expected(size, num_batches, batch_size):
  rows, epoch = [], 0
  while len(rows) < num_batches:
    order = index_hash.shuffled(_SEED, epoch, size)
    rows += [
      order[begin : begin + batch_size] for begin in range(0, size, batch_size)
    ]
    epoch += 1
  return rows[:num_batches]


@pytest.mark.parametrize('num_batches', [1, 5])
@pytest.mark.parametrize('batch_size', [1, 4])
@pytest.mark.parametrize('size', [1, 3, 4, 7, 16, 17, 20, 21, 50])
def test_epochs_follow_each_other_in_fresh_orders(
  size, batch_size, num_batches
):
  """Short last batches, several epochs, and batches of everybody."""
  expected = _expected(size, num_batches, batch_size)
  for capacity in (size, size + 9):
    positions, masks = _draw(size, capacity, num_batches, batch_size)
    assert positions.shape == masks.shape == (num_batches, batch_size)
    for found, mask, rows in zip(positions, masks, expected, strict=True):
      assert found[mask > 0].tolist() == rows
      # Padding is never read.
      assert (found < size).all()


def test_batches_of_one_epoch_are_distinct_rows():
  positions, masks = _draw(50, 50, 5, 4)
  assert masks.all()
  assert len(np.unique(positions)) == 20


def test_a_client_without_examples_has_no_batch_that_counts():
  _, masks = _draw(0, 6, 5, 4)
  assert masks.shape == (5, 4)
  assert not masks.any()
