"""Tests of which rows each step reads, of which epoch."""

import itertools

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
      lambda seed, mask: batches.draw_steps(seed, mask, *key),
      autograph=False,
      input_signature=[
        tf.TensorSpec([2], tf.int32),
        tf.TensorSpec([None], tf.float32),
      ],
    )
  mask = (np.arange(capacity) < size).astype(np.float32)
  return [part.numpy() for part in _GRAPHS[key](_SEED, mask)]


@pytest.mark.parametrize('num_batches', [1, 5])
@pytest.mark.parametrize('batch_size', [1, 4])
@pytest.mark.parametrize('size', [1, 3, 4, 7, 16, 17, 20, 21, 50])
def test_epochs_follow_each_other_in_fresh_orders(
  size, batch_size, num_batches
):
  """Short last batches, several epochs, and batches of everybody."""
  drawn = index_hash.batches(_SEED, num_batches, size, batch_size)
  expected = [*itertools.islice(drawn, num_batches)]
  for capacity in (size, size + 9):
    positions, masks, epochs = _draw(size, capacity, num_batches, batch_size)
    per_epoch = -(-size // batch_size)
    assert epochs.tolist() == [i // per_epoch for i in range(num_batches)]
    assert positions.shape == masks.shape == (num_batches, batch_size)
    for found, mask, rows in zip(positions, masks, expected, strict=True):
      assert found[mask > 0].tolist() == rows
      # Padding is never read.
      assert (found < size).all()


def test_a_client_without_examples_has_no_batch_that_counts():
  _, masks, _ = _draw(0, 6, 5, 4)
  assert masks.shape == (5, 4)
  assert not masks.any()


def test_every_epoch_reads_all_examples_once_in_a_fresh_order():
  mask = tf.cast(tf.range(12) < 9, tf.float32)
  positions, masks, epochs = batches.draw_epochs(tf.constant(_SEED), mask, 4, 5)
  assert positions.shape == masks.shape == (4 * 3, 5)
  assert epochs.numpy().tolist() == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
  orders = []
  for epoch in range(4):
    steps = np.s_[3 * epoch : 3 * (epoch + 1)]
    real = masks.numpy()[steps].ravel() > 0
    orders.append(positions.numpy()[steps].ravel()[real].tolist())
    assert orders[-1] == index_hash.shuffled(_SEED, epoch, 9)
    assert masks.numpy()[steps].sum(axis=1).tolist() == [5, 4, 0]
  assert len({tuple(order) for order in orders}) == 4


def test_masked_slots_read_a_real_row():
  mask = tf.constant([0.0, 1, 1, 0, 0, 0])
  positions, masks, _ = batches.draw_epochs(tf.constant(_SEED), mask, 3, 4)
  assert set(positions.numpy().ravel()) == {1, 2}
  assert masks.numpy().sum() == 3 * 2


@pytest.mark.parametrize('capacity', [9, 10, 23])
def test_independent_batches_begin_orders_of_their_own(capacity):
  mask = tf.cast(tf.range(capacity) < 9, tf.float32)
  drawn = batches.draw_independent(tf.constant(_SEED), mask, 5, 4)
  assert drawn.positions.shape == (5, 4)
  assert drawn.positions.numpy().tolist() == [
    index_hash.shuffled(_SEED, i, 9)[:4] for i in range(5)
  ]
  assert drawn.masks.numpy().all()


def test_independent_batches_of_a_small_client_have_all_its_examples():
  mask = tf.constant([1.0, 1, 1, 0, 0, 0, 0, 0, 0])
  drawn = batches.draw_independent(tf.constant(_SEED), mask, 6, 4)
  positions, masks, _ = (part.numpy() for part in drawn)
  assert masks.tolist() == [[1, 1, 1, 0]] * 6
  assert all(sorted(row[:3]) == [0, 1, 2] for row in positions)
  assert positions.max() < 3
  # None are all masked.
  drawn = batches.draw_independent(tf.constant(_SEED), tf.zeros(5), 2, 4)
  assert not drawn.masks.numpy().any()
