"""What clients without a server have together, against NumPy."""

import numpy as np
import tensorflow as tf

from tff_algos.stages.server import peer_models

_MODELS = {
  'a': np.array([[0, 2], [4, 2], [8, 10]], np.float32),
  'b': np.array([1, 5, 9], np.float32),
}


def test_shares_of_all_examples():
  assert peer_models.shares(tf.constant([1.0, 0, 3])).numpy().tolist() == [
    0.25,
    0,
    0.75,
  ]


def test_before_anybody_has_said_how_many_all_count_the_same():
  np.testing.assert_allclose(peer_models.shares(tf.zeros([4])), [0.25] * 4)


def test_mean_and_distance_by_hand():
  """(0, 2, 1) once and (4, 2, 5) three times: the mean is (3, 2, 4)."""
  mean, distance = peer_models.consensus(
    tf.nest.map_structure(tf.constant, _MODELS), tf.constant([1.0, 3, 0])
  )
  np.testing.assert_allclose(mean['a'], [3, 2])
  np.testing.assert_allclose(mean['b'], 4)
  # 3/4 squared distances of 2, 1/4 of 18.
  np.testing.assert_allclose(distance, np.sqrt(0.75 * 2 + 0.25 * 18))


def test_who_agree_have_no_distance():
  models = {'a': tf.ones([3, 2])}
  assert peer_models.consensus(models, tf.constant([1.0, 1, 2]))[1] == 0


def test_a_model_moves_its_share_of_the_way():
  own, others = {'a': tf.constant([0.0, 4])}, {'a': tf.constant([8.0, 0])}
  moved = peer_models.move(own, others, tf.constant(0.25))
  assert moved['a'].numpy().tolist() == [2, 3]
  by_entry = peer_models.move(own['a'], others['a'], tf.constant([0.5, 0]))
  assert by_entry.numpy().tolist() == [4, 4]


def test_share_0_changes_no_bit():
  own = {'a': tf.constant([0.1, 1e-30])}
  moved = peer_models.move(
    own, {'a': tf.constant([1e8, 3.0])}, tf.constant(0.0)
  )
  np.testing.assert_array_equal(moved['a'], own['a'])
