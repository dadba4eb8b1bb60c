"""Tests of mirror steps at the server, by hand.

That rounds of it are Algorithm 1 is tested in `tests/theory/ppfl_oracle_test.py`.
"""

from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import ppfl_oracle, toys
from tff_algos.algorithms.ppfl import (
  affinity,
  membership_descent,
  membership_exchange,
  mixing,
  server_memberships,
)
from tff_algos.core import algorithm
from tff_algos.rounds import aggregation

_TABLE = np.array([[0.5, 0.5], [0.3, 0.7], [0.9, 0.1]], np.float32)
_SLOPES = np.array([[1.0, 0], [0, 2]], np.float32)


class _State(NamedTuple):
  model_weights: Any
  membership: Any
  affinity_features: Any


def _build(weight, **options):
  traffic = membership_exchange.Traffic(
    mixing.build(toys.linear(3), 2, ('all',), 'outputs'),
    'random_block',
    True,
    0,
    membership_descent.MembershipConfig(0.5, **options),
    affinity.LaplacianConfig(weight, 'uniform'),
  )
  return traffic, server_memberships.build_step(traffic, 1.0)


@pytest.mark.parametrize('weight', [0.0, 0.2])
def test_server_steps_on_the_cohort_and_no_further(weight):
  """Clients 0 and 2, then client 0 alone, as client 2's gradient is broken."""
  _, phase = _build(weight)
  features = tf.ones([3, 1]) if weight else ()
  state = _State((), tf.constant(_TABLE), features)
  pulls = 2 * weight * (3 * _TABLE - _TABLE.sum(axis=0))
  for is_valid in (True, False):
    slopes = aggregation.Collected(
      tf.constant(_SLOPES), tf.constant([0, 2]), tf.constant([True, is_valid])
    )
    found, metrics = phase.server_update(state, {'membership_gradient': slopes})
    expected = _TABLE.astype(np.float64)
    for row, client in enumerate([0, 2] if is_valid else [0]):
      expected[client] = ppfl_oracle.mirror_step(
        expected[client], _SLOPES[row] + pulls[client], 0.5, 1e-6
      )
    np.testing.assert_allclose(found.membership, expected, rtol=1e-5)
    assert not metrics


@pytest.mark.parametrize('gradient_weight', ['client_weight', 'none'])
def test_a_client_uploads_its_gradient_times_p_i(gradient_weight):
  traffic, phase = _build(0.0, gradient_weight=gradient_weight)
  told = OrderedDict(membership=tf.constant([0.3, 0.7]))
  share = 1.0
  if gradient_weight == 'client_weight':
    told['client_weight'] = share = tf.constant(0.25)
  weights = traffic.mixture.initialize(tf.constant([1, 2]))
  data = algorithm.ClientData(
    tf.reshape(tf.range(6.0), [2, 3]), tf.ones([2]), tf.ones([2])
  )
  output = phase.client_work(weights, told, (), data, tf.constant([0, 0]))
  slope, _ = membership_descent.gradient(
    traffic.mixture, weights, told['membership'], data, None, traffic.membership
  )
  assert np.abs(slope).min() > 0.1
  np.testing.assert_allclose(
    output.result['membership_gradient'], share * slope, rtol=1e-6
  )
