"""CMFL's server without the uploads that are refused."""

import numpy as np
import tensorflow as tf

from tests.testing import points
from tff_algos.algorithms import cmfl
from tff_algos.stages import aggregation, committee, committee_roles

# Zeros stand for what was refused: of the training client 1.
_UPLOADS = np.array([[9, 9], [0, 0], [1, 0], [2, 0], [9, 9], [3, 6]], 'f')
_IS_MEMBER = np.array([True, False, False, False, True, False])
_IS_VALID = np.array([True, False, True, True, True, True])


def test_a_lost_training_client_is_neither_averaged_nor_elected():
  """Clients 2, 3 and 5, of 1, 2 and 1 examples, are left: mean (2, 1.5)."""
  config = cmfl.CmflConfig(committee=committee.CommitteeConfig(selection='all'))
  algorithm = cmfl.build_cmfl(points.model(2), config)
  state = algorithm.init_server_state(tf.constant([1, 2]), 6)
  filled = tf.ones([6], tf.int32)
  roles = committee_roles.Role(
    *(tf.constant(_IS_MEMBER & _IS_VALID), 3 * filled, 4 * filled),
    tf.ones([6]),
  )

  def collect(values):
    return aggregation.Collected(values, tf.range(6), tf.constant(_IS_VALID))

  after, metrics = algorithm.phases['train'].server_update(
    state,
    {
      'upload': collect({'point': tf.constant(_UPLOADS)}),
      'num_examples': collect(tf.constant([5.0, 4, 1, 2, 5, 1])),
      'role': collect(roles),
    },
  )
  proposed, left = after.proposed, [2, 3, 5]
  np.testing.assert_array_equal(np.flatnonzero(proposed.is_selected), left)
  np.testing.assert_array_equal(np.flatnonzero(proposed.is_member), left)
  np.testing.assert_allclose(
    state.agreed.model_weights['point'] - proposed.model_weights['point'],
    [2, 1.5],
    rtol=1e-5,
  )
  assert metrics['num_training'] == 3
