"""CMFL's uploads: which of them the server uses, and what attackers falsify."""

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import points
from tff_algos.algorithms.cmfl import cmfl, committee, committee_roles
from tff_algos.rounds import aggregation

# Zeros stand for what was refused: of training client 0.
_UPLOADS = np.array([[0, 0], [9, 9], [1, 0], [2, 0], [9, 9], [3, 6]], 'f')
_IS_MEMBER = np.array([False, True, False, False, True, False])
_IS_VALID = np.arange(6) > 0


def test_a_lost_training_client_is_neither_averaged_nor_elected():
  """Clients 2, 3 and 5, of 1, 2 and 1 examples, are left: mean (2, 1.5)."""
  config = cmfl.CmflConfig(committee=committee.CommitteeConfig(selection='all'))
  algorithm = cmfl.build_cmfl(points.model(2), config)
  state = algorithm.init_server_state(tf.constant([1, 2]), 6)
  told = tf.constant(_IS_VALID, tf.int32)
  roles = committee_roles.Role(
    tf.constant(_IS_MEMBER), 3 * told, 4 * told, tf.cast(told, tf.float32)
  )

  def collect(values):
    return aggregation.Collected(values, tf.range(6), tf.constant(_IS_VALID))

  after, metrics = algorithm.phases['train'].server_update(
    state,
    {
      'upload': collect({'point': tf.constant(_UPLOADS)}),
      'num_examples': collect(tf.constant([0.0, 4, 1, 2, 5, 1])),
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


@pytest.mark.parametrize('upload', cmfl.UPLOADS)
def test_a_model_is_falsified_less_the_global_one(upload):
  algorithm = cmfl.build_cmfl(points.model(2), cmfl.CmflConfig(upload=upload))
  sent = {'point': tf.constant([3.0, 4])}
  start = algorithm.phases['train'].uploads['upload'](sent, None, None)
  expected = [3, 4] if upload == 'model' else [0, 0]
  np.testing.assert_array_equal(start['point'], expected)
