"""Tests of what travels when, and of what it costs."""

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import factored
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import errors
from tff_algos.models import registry
from tff_algos.numerics import trees
from tff_algos.stages import slow_weights

_MODEL = factored.model()


def _config(**options):
  return slow_weights.ScheduleConfig(**({'slow_period': 3} | options))


def test_rounds_1_4_and_7_are_full_and_versions_count_them():
  config = _config()
  full = [number for number in range(1, 9) if config.is_full(number)]
  assert full == [1, 4, 7]
  versions = [config.version(number) for number in range(1, 9)]
  assert versions == [0, 1, 1, 1, 2, 2, 2, 3]
  every = _config(slow_period=1)
  assert all(every.is_full(number) for number in range(1, 5))


def test_slow_groups_are_the_others():
  assert _config().slow_groups == ('coefficients', 'other')
  assert slow_weights.slow_names(_MODEL, _config()) == ('conv/coefficients',)
  config = _config(fast_groups=('atoms',))
  assert slow_weights.slow_names(_MODEL, config) == (
    *('conv/coefficients', 'dense/kernel'),
  )


def test_a_client_starts_from_its_own_slow_weights_while_they_are_fresh():
  received = _MODEL.initialize(tf.constant([1, 2]))
  own = {'conv/coefficients': tf.ones([2, 1, 2])}
  kept = slow_weights.Kept(own, tf.constant(2))
  fresh = kept.start(received, tf.constant(2))
  np.testing.assert_array_equal(fresh['conv/coefficients'], 1)
  stale = kept.start(received, tf.constant(3))
  first = slow_weights.initial(_MODEL, _config()).start(
    received, tf.constant(0)
  )
  for weights in (stale, first):
    for name, leaf in received.items():
      np.testing.assert_array_equal(weights[name], leaf)


def test_frozen_weights_have_no_gradient_and_change_no_output():
  weights = _MODEL.initialize(tf.constant([1, 2]))
  x = factored.SOURCE.examples(0).x
  frozen = slow_weights.freeze(_MODEL, _config())
  with tf.GradientTape() as tape:
    tape.watch(weights)
    outputs = frozen.apply(weights, x)
    value = tf.reduce_sum(outputs)
  slopes = tape.gradient(value, weights)
  assert slopes['conv/coefficients'] is None
  assert np.abs(slopes['conv/atoms']).max() > 0
  np.testing.assert_array_equal(outputs, _MODEL.apply(weights, x))


def _costs(num_rounds, **options):
  """Costs of two clients a round: 0 and 1, then 1 and 2, 2 and 3, ..."""

  def drawn_in(number):
    return np.array([number - 1, number], np.int32)

  num_slow = slow_weights.num_slow(_MODEL, _config())
  costs = []
  for number in range(1, num_rounds + 1):
    whole = 2 * factored.NUM_ALL
    call = algorithm_lib.PhaseCall(
      'train', drawn_in(number), (), algorithm_lib.Cost(whole, whole, 2)
    )
    cost = slow_weights.cost_of(
      call, number, num_slow, _config(**options), drawn_in
    )
    assert cost.local_solves == 2
    costs.append((whole - cost.downlink_floats, whole - cost.uplink_floats))
  return costs


def test_fast_rounds_spare_the_slow_weights_both_ways():
  slow = factored.NUM_COEFFICIENTS
  expected = [(0, 0), (2 * slow, 2 * slow), (2 * slow, 2 * slow)] * 2
  assert _costs(6) == expected


def test_with_a_cache_whoever_lacks_the_slow_weights_pays():
  """In round r clients r - 1 and r are drawn. After a full round f, everybody
  needs its weights in f + 1; then one of two was drawn in the round before.
  """
  slow = factored.NUM_COEFFICIENTS
  downlink = [spared for spared, _ in _costs(6, downlink_accounting='cache')]
  assert downlink == [0, 0, slow, slow, 0, slow]


@pytest.mark.parametrize(
  ('variant', 'num_outputs', 'fast_groups', 'ratio'),
  [
    ('fed_dyn', 10, ('atoms',), 0.2005),
    ('fed_dyn', 10, ('atoms', 'head'), 0.2026),
    ('fed_dyn', 100, ('atoms', 'head'), 0.2211),
    ('fed_rep', 10, ('atoms', 'head'), 0.2037),
    ('fed_rep_wide', 100, ('atoms',), 0.2004),
    ('fed_rep_wide', 100, ('atoms', 'head'), 0.2113),
  ],
)
def test_share_of_the_uplink_that_remains_with_beta_one_fifth(
  variant, num_outputs, fast_groups, ratio
):
  """(beta * full + (1 - beta) * fast) / full."""
  model = registry.build_model(
    {
      **{'name': 'lenet', 'variant': variant},
      'decomposition': {'num_atoms': 9},
    },
    task='classification',
    input_shape=(32, 32, 3),
    num_outputs=num_outputs,
  )
  full = trees.num_entries(model.weights_spec())
  config = _config(slow_period=5, fast_groups=fast_groups)
  num_slow = slow_weights.num_slow(model, config)
  sent = 0
  for number in range(1, 6):
    call = algorithm_lib.PhaseCall(
      'train', np.array([0], np.int32), (), algorithm_lib.Cost(full, full, 1)
    )
    sent += slow_weights.cost_of(
      call, number, num_slow, config, lambda number: np.array([0])
    ).uplink_floats
  assert round(sent / (5 * full), 4) == ratio


@pytest.mark.parametrize(
  ('options', 'text'),
  [
    ({'slow_period': 0}, 'slow_period must be an integer >= 1, got 0'),
    ({'slow_period': 2.5}, 'slow_period must be an integer >= 1, got 2.5'),
    ({'fast_groups': ('body',)}, "fast_groups must be one of 'atoms'"),
    ({'fast_groups': ()}, 'fast_groups is empty: nothing would travel'),
    ({'fast_rounds': 'skip'}, "fast_rounds must be one of 'discard'"),
    ({'downlink_accounting': 'none'}, 'downlink_accounting must be one of'),
  ],
)
def test_options_out_of_range_are_refused(options, text):
  with pytest.raises(errors.ConfigError, match=text):
    _config(**options)
