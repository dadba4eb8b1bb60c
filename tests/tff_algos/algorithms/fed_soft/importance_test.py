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
_POINTS = np.array([[0.1, 0], [0, 3.5], [-1, -1], [9, 9.1]], np.float32)
_SOURCE = points.clients(
  [
    _POINTS,
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


def _estimate(x, mask=None, centers=_CENTERS, smoother=0.0):
  mask = np.ones(len(x)) if mask is None else mask
  data = algorithm_lib.ClientData(
    tf.constant(x, tf.float32),
    tf.zeros([len(x)]),
    tf.constant(mask, tf.float32),
  )
  phase = importance.build_estimation(points.model(2), smoother)
  models = {'point': tf.constant(centers)}
  output = phase.client_work(models, (), (), data, None)
  return output.result['importance_weights'].numpy()


@pytest.mark.parametrize('smoother', [0.0, 1e-4, 0.3])
def test_importance_is_the_share_but_at_least_the_smoother(smoother):
  """FedSoft: max(n_ks / n_k, sigma), not renormalised."""
  found = _estimate(_POINTS, smoother=smoother)
  np.testing.assert_array_equal(found, np.float32([0.5, smoother, 0.5]))


def test_a_client_without_examples_gets_the_smoother_everywhere():
  found = _estimate(_POINTS, [0, 0, 0, 0], smoother=0.125)
  assert found.tolist() == [0.125] * 3


def test_permuted_centers_permute_the_weights():
  expected = _estimate(_POINTS)
  for order in ([2, 0, 1], [1, 2, 0], [0, 2, 1]):
    np.testing.assert_array_equal(
      _estimate(_POINTS, centers=_CENTERS[order]), expected[order]
    )


def test_ties_go_to_the_lowest_cluster():
  same = np.zeros([3, 2], np.float32)
  assert _estimate(_POINTS, centers=same).tolist() == [1, 0, 0]
  same = np.stack([_CENTERS[1], _CENTERS[2], _CENTERS[2]])
  assert _estimate(_POINTS, centers=same)[2] == 0


@pytest.mark.parametrize('value', [np.nan, np.inf])
def test_a_center_that_is_not_finite_fits_nothing(value):
  broken = _CENTERS.copy()
  broken[0, 1] = value
  found = _estimate(_POINTS, centers=broken)
  assert found[0] == 0
  assert found.sum() == 1


@pytest.mark.parametrize('value', [np.nan, np.inf, 3e38])
def test_an_example_that_fits_no_cluster_makes_all_weights_unknown(value):
  """With 3e38 the example is finite and its squared distances are not."""
  broken = np.concatenate([_POINTS, [[0, value]]])
  assert np.isnan(_estimate(broken, smoother=1e-4)).all()


def test_padding_is_no_example():
  """Whatever is in it. Of an example at each of two centers, each has half."""
  x = [[0, 0], [4, 0], [0, 4], [np.nan, np.nan]]
  found = _estimate(x, [1, 1, 0, 0], smoother=0.125)
  np.testing.assert_array_equal(found, [0.5, 0.5, 0.125])


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
