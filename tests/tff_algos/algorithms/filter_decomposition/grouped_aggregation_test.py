"""Tests of uploads by group, and by kernel, of three clients by hand."""

from collections import OrderedDict
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tests.testing import factored
from tff_algos.algorithms.filter_decomposition import (
  filter_groups,
  grouped_aggregation,
)
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.numerics import factored_weights
from tff_algos.rounds import aggregation, composer

_MODEL = factored.model()
_GROUPS = filter_groups.names_by_group(_MODEL)
_UPLOADS = [_MODEL.initialize(tf.constant([i, 7])) for i in range(3)]
_OLD = _MODEL.initialize(tf.constant([9, 9]))
_WEIGHTS = [1.0, 2.0, 5.0]


class _State(NamedTuple):
  model_weights: OrderedDict


def _host():
  """Uploads a client's weights, and the mean becomes the model, halved."""

  def update(server_state, aggregates):
    mean = aggregates['local_weights']
    halved = tf.nest.map_structure(lambda leaf: leaf / 2, mean.value)
    return _State(halved), OrderedDict(weight=mean.weight)

  return algorithm_lib.Phase(
    name='train',
    make_message=lambda server_state: (),
    client_work=lambda weights, weight: algorithm_lib.ClientOutput(
      {'local_weights': weights, 'client_weight': weight}, (), {}
    ),
    aggregation={'local_weights': aggregation.WeightedMean('client_weight')},
    server_update=update,
  )


def _run(phase):
  """Returns the fields that are uploaded, the new model and the metrics."""
  outputs = [
    phase.client_work(weights, tf.constant(weight))
    for weights, weight in zip(_UPLOADS, _WEIGHTS, strict=True)
  ]
  results = tf.nest.map_structure(
    lambda *leaves: tf.stack(leaves), *[one.result for one in outputs]
  )
  guarded = composer.GuardedOutput(results, (), {}, tf.ones([3], tf.bool))
  sums = composer.partial_sums(phase, guarded)
  state, metrics = composer.server_update(phase, _State(_OLD), sums, {})
  return set(outputs[0].result), state.model_weights, metrics


def _mean(name):
  return np.average(
    [weights[name] for weights in _UPLOADS], axis=0, weights=_WEIGHTS
  )


def test_groups_travel_apart_and_the_host_gets_their_means_together():
  fields, weights, metrics = _run(
    grouped_aggregation.by_group(_host(), _GROUPS)
  )
  assert fields == {
    *('local_atoms', 'local_coefficients', 'local_head', 'client_weight')
  }
  assert list(weights) == list(_OLD)
  for name, leaf in weights.items():
    np.testing.assert_allclose(leaf, _mean(name) / 2, rtol=1e-5)
  assert metrics['weight'] == 8


def test_groups_that_are_not_sent_stay_at_the_server_bit_for_bit():
  """Whatever the host makes of the mean; here it halves it."""
  fields, weights, _ = _run(
    grouped_aggregation.by_group(_host(), _GROUPS, ('atoms',))
  )
  assert fields == {'local_atoms', 'client_weight'}
  for name, leaf in weights.items():
    if name.endswith('/atoms'):
      np.testing.assert_allclose(leaf, _mean(name) / 2, rtol=1e-5)
    else:
      np.testing.assert_array_equal(leaf, _OLD[name])


def test_what_the_host_keeps_of_groups_that_are_not_sent_stays_too():
  """Whatever is called by their names, however deep in its state."""

  class State(NamedTuple):
    model_weights: OrderedDict
    slots: tuple

  def update(server_state, aggregates):
    mean = aggregates['local_weights'].value
    velocity, count = server_state.slots
    slots = tf.nest.map_structure(lambda leaf: leaf * 0.9, velocity)
    return State(mean, (slots, count + 1)), {}

  phase = grouped_aggregation.by_group(
    _host()._replace(server_update=update), _GROUPS, ('atoms',)
  )
  mean = aggregation.Mean({'conv/atoms': _OLD['conv/atoms']}, tf.constant(1.0))
  after, _ = phase.server_update(
    State(_OLD, (_UPLOADS[0], tf.constant(3))), {'local_atoms': mean}
  )
  velocity, count = after.slots
  assert count == 4
  for name, leaf in _UPLOADS[0].items():
    factor = 0.9 if name == 'conv/atoms' else 1
    np.testing.assert_allclose(velocity[name], leaf * factor, rtol=1e-6)


def test_kernels_travel_and_are_factored_anew():
  """One pair of channels to two: two atoms lose nothing of the mean."""
  host = _host()._replace(
    server_update=lambda state, aggregates: (
      _State(aggregates['local_weights'].value),
      {},
    )
  )
  fields, weights, _ = _run(grouped_aggregation.by_kernel(host))
  assert fields == {'local_kernels', 'client_weight'}
  kernels = [factored_weights.build_kernels(one) for one in _UPLOADS]
  mean = np.average(
    [one['conv/kernel'] for one in kernels], axis=0, weights=_WEIGHTS
  )
  assert list(weights) == list(_OLD)
  rebuilt = factored_weights.build_kernels(weights)['conv/kernel']
  np.testing.assert_allclose(rebuilt, mean, rtol=1e-4, atol=1e-5)
  np.testing.assert_allclose(
    weights['dense/kernel'], _mean('dense/kernel'), rtol=1e-5
  )
  # The product of the mean factors is another kernel.
  means = OrderedDict((name, _mean(name)) for name in _OLD)
  product = factored_weights.build_kernels(means)['conv/kernel']
  assert np.abs(product - mean).max() > 0.1


def test_kernels_have_fewer_numbers_than_factors_of_few_channels():
  """3 x 3 x 1 x 2 against 18 + 4."""
  assert grouped_aggregation.kernels_beyond_factors(_MODEL) == 18 - 22
