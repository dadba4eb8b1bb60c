"""Tests of importance weights, estimated and given."""

from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import points, running_sum, toys
from tff_algos.algorithms.fed_soft import importance
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import errors
from tff_algos.runtimes import debug_runtime

_CENTERS = np.array([[0.0, 0], [4, 0], [0, 4]], np.float32)
_SOURCE = points.clients(
  [
    np.array([[0.1, 0], [0, 3.5], [-1, -1], [9, 9.1]]),
    np.array([[3.0, 0], [5, 1]]),
    np.array([[np.nan, 0]]),
    np.zeros([2, 2]),
  ]
)


class _State(NamedTuple):
  cluster_models: Any
  importance_weights: Any
  num_calls: Any


def test_estimation_writes_the_shares_of_who_took_part():
  """Client 2 has a NaN and is refused; client 3 takes no part."""
  phase = importance.build_estimation(points.model(2), 0.125)
  before = _State(
    {'point': _CENTERS}, np.full([4, 3], 0.25, np.float32), np.int32(7)
  )
  call = algorithm_lib.PhaseCall(
    phase.name, np.array([1, 0, 2], np.int32), (), algorithm_lib.Cost()
  )
  output = toys.run_call(
    debug_runtime.DebugRuntime(running_sum.algorithm(), 4),
    phase,
    before,
    [],
    call,
    (1, 0, _SOURCE),
  )
  after = output.server_state
  np.testing.assert_array_equal(
    after.importance_weights,
    [[0.5, 0.125, 0.5], [0.125, 1, 0.125], [0.25] * 3, [0.25] * 3],
  )
  np.testing.assert_array_equal(after.cluster_models['point'], _CENTERS)
  assert after.num_calls == 7
  assert output.num_invalid == 1
  loss = output.client_metrics['assigned_loss']
  squared = [0.1**2, 0.5**2, 2, 81 + 5.1**2, 1, 2]
  np.testing.assert_allclose(loss.total, sum(squared), rtol=1e-5)
  assert float(loss.weight) == 6


def test_padding_is_no_example():
  """Of one example at each of two centers, each has one half."""
  phase = importance.build_estimation(points.model(2), 0.125)
  data = algorithm_lib.ClientData(
    tf.constant([[0.0, 0], [4, 0], [0, 4], [0, 4]]),
    tf.zeros([4]),
    tf.constant([1.0, 1, 0, 0]),
  )
  models = {'point': tf.constant(_CENTERS)}
  output = phase.client_work(models, (), (), data, None)
  np.testing.assert_array_equal(
    output.result['importance_weights'], [0.5, 0.5, 0.125]
  )


def test_fixed_weights_are_taken_as_they_are():
  table = ((0.9, 0.1, 0.0), (1.0, 1.0, 0.5))
  weights = importance.fixed_weights(table, 2, 3)
  assert weights.dtype == np.float32
  np.testing.assert_array_equal(weights, np.array(table, np.float32))


_HALVES = (0.5, 0.5)


@pytest.mark.parametrize(
  ('table', 'text'),
  [
    (
      (_HALVES, _HALVES),
      'a row for each of the 3 clients with a weight for each of the 2 '
      'clusters, got 2 rows with 2 weights',
    ),
    (((1.0,), (1.0,), (1.0,)), 'got 3 rows with 1 weights'),
    ((_HALVES, (1.0,), _HALVES), 'got 3 rows with 1 or 2 weights'),
    ((_HALVES, _HALVES, (1.5, 0.5)), r'row 2 is \(1.5, 0.5\)'),
    ((_HALVES, (-0.5, 1.0), _HALVES), r'row 1 is \(-0.5, 1.0\)'),
    (((0.0, 0.0), _HALVES, _HALVES), 'not all 0; row 0'),
    ((_HALVES, (float('nan'), 1.0), _HALVES), 'row 1 is'),
  ],
)
def test_fixed_weights_that_do_not_fit_are_refused(table, text):
  with pytest.raises(errors.ConfigError, match=text):
    importance.fixed_weights(table, 3, 2)
