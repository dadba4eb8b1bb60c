"""Robust means of pFedKM's clusters: who weighs what, and from where they start."""

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import points
from tff_algos.algorithms.pfedkm import pfedkm
from tff_algos.rounds import aggregation
from tff_algos.stages.server import robust_aggregation

# k-means makes clusters of the first two and of the others, which most of their
# clients come from: clusters 1 and 0.
_UPLOADS = np.array([[0, 2], [0, 4], [10, 0], [12, 0], [14, 0]], np.float32)
_WEIGHTS = np.array([2, 1, 3, 1, 1], np.float32)
_BEFORE = [1, 0, 0, 0, 0]
_MODELS = np.array([[12, 0], [0, 3]], np.float32)


def _round(radius):
  """Returns the cluster models after a round of means by norm clipping."""
  rule = robust_aggregation.AggregationConfig(
    rule='norm_clipping', clipping_radius=radius
  )
  algorithm = pfedkm.build_pfedkm(
    points.model(2), pfedkm.PFedKMConfig(aggregation=rule)
  )

  def collect(values):
    return aggregation.Collected(values, tf.range(5), tf.fill([5], True))

  state, _ = algorithm.phases['train'].server_update(
    pfedkm.ServerState(
      {'point': tf.constant(_MODELS)}, tf.constant(_BEFORE), tf.constant([1, 2])
    ),
    {
      'local_weights': collect({'point': tf.constant(_UPLOADS)}),
      'client_weight': collect(tf.constant(_WEIGHTS)),
    },
  )
  np.testing.assert_array_equal(state.cluster_assignment, [1, 1, 0, 0, 0])
  return state.cluster_models['point']


@pytest.mark.parametrize(
  ('radius', 'expected'),
  [
    # Nothing is clipped: (3 * 10 + 12 + 14) / 5 and (2 * 2 + 4) / 3.
    (1e3, [[11.2, 0], [0, 8 / 3]]),
    # No update is left: what members received, two parts (0, 3), one (12, 0).
    (1e-6, [[12, 0], [4, 2]]),
  ],
)
def test_members_count_by_their_weights(radius, expected):
  np.testing.assert_allclose(_round(radius), expected, atol=1e-4)
