"""Noise of tree aggregation against a tree in NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from tff_algos.numerics import index_random
from tff_algos.privacy import tree_noise

_SEED = tf.constant([3, 4])


def _nodes(steps):
  """Returns (level, end) of the nodes that add up to the first steps."""
  found, end = [], 0
  for level in reversed(range(steps.bit_length())):
    if steps >> level & 1:
      end += 1 << level
      found.append((level, end >> level))
  return found


def _node_noise(epoch, level, place, size):
  seed = _SEED
  for number in (epoch, level, place):
    seed = index_random.derive_secret(seed, number)
  return tf.random.stateless_normal([size], seed).numpy()


def _draw_all(num_steps, epoch_steps, size):
  return np.array(
    [
      tree_noise.draw(_SEED, tf.constant(step), epoch_steps, size)
      for step in range(num_steps)
    ]
  )


@pytest.mark.parametrize('epoch_steps', [1, 6, 8])
def test_sums_have_the_noise_of_their_nodes(epoch_steps):
  found = _draw_all(2 * epoch_steps, epoch_steps, 5)
  for epoch in range(2):
    sums = np.cumsum(found[epoch * epoch_steps :][:epoch_steps], axis=0)
    for i, total in enumerate(sums):
      nodes = [_node_noise(epoch, *node, 5) for node in _nodes(i + 1)]
      np.testing.assert_allclose(total, np.sum(nodes, axis=0), atol=1e-5)


def test_the_deviation_of_a_sum_is_that_of_as_many_nodes():
  """False alarm: 8 sums, each beyond 5 sigma, below 1e-5, for another seed."""
  size = 10_000
  sums = np.cumsum(_draw_all(8, 8, size), axis=0)
  for i, total in enumerate(sums):
    variance = (i + 1).bit_count()
    assert np.mean(total**2) == pytest.approx(
      variance, rel=5 * (2 / size) ** 0.5
    )
