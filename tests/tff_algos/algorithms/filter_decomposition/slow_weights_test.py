"""Tests of what travels when, and of what it costs."""

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import client_data, factored, toys
from tff_algos.algorithms import registry as algorithms
from tff_algos.algorithms.filter_decomposition import slow_weights
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import errors
from tff_algos.numerics import trees

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
  assert _config().slow_groups == ('coefficients', 'hidden', 'other')
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


def _full_batch_steps(start, data, num_steps, rate, proximal_weight, decay):
  """The fast weights after some steps beside coefficients that stay."""
  weights = dict(start)
  for _ in range(num_steps):
    with tf.GradientTape() as tape:
      tape.watch(weights)
      losses = _MODEL.example_losses(_MODEL.apply(weights, data.x), data.y)
      value = tf.reduce_mean(losses)
    slopes = tape.gradient(value, weights)
    for name in ('conv/atoms', 'dense/kernel'):
      pull = proximal_weight * (weights[name] - start[name])
      slope = slopes[name] + pull + decay * weights[name]
      weights[name] = weights[name] - rate * slope
  return weights


@pytest.mark.parametrize('proximal_weight', [0.0, 0.7])
def test_neither_decay_nor_pull_moves_frozen_weights(proximal_weight):
  """Three steps, of which later ones see what earlier ones did to the slow."""
  host = factored.host(proximal_weight=proximal_weight)
  host['local_training'] |= {
    **{'num_local_epochs': 3, 'batch_size': 32, 'weight_decay': 0.5}
  }

  def build_phases(model):
    return algorithms.build_algorithm(
      algorithms.parse_config(host), model
    ).phases

  phase = build_phases(_MODEL)['train']
  frozen = slow_weights.freeze(phase, _MODEL, _config(), build_phases)
  start = _MODEL.initialize(tf.constant([1, 2]))
  examples = factored.SOURCE.examples(3)
  data = client_data.build(examples.x, examples.y)
  result = frozen.client_work(start, (), (), data, tf.constant([3, 4])).result
  expected = _full_batch_steps(start, data, 3, 0.1, proximal_weight, 0.5)
  assert set(result.local_weights) == {'conv/atoms', 'dense/kernel'}
  for name, leaf in result.local_weights.items():
    np.testing.assert_allclose(leaf, expected[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
  ('model', 'groups', 'text'),
  [
    (toys.mlp(), ('atoms', 'head'), "names 'atoms', .* 'mlp' are head, hidden"),
    (toys.mlp(), ('coefficients',), "names 'coefficients', but the weights of"),
    (_MODEL, ('atoms', 'other'), "names 'other', but the weights of model"),
    (_MODEL, ('atoms', 'coefficients', 'head'), 'a fast round spares nothing'),
  ],
)
def test_fast_groups_that_the_model_has_not_are_refused(model, groups, text):
  with pytest.raises(errors.ConfigError, match=text):
    slow_weights.check_fits(model, _config(fast_groups=groups))


def test_fast_groups_of_a_network_without_factors_may_be_its_head():
  slow_weights.check_fits(toys.mlp(), _config(fast_groups=('head',)))


def _costs(num_rounds):
  """What each round of two clients spares, down and up."""
  num_slow = slow_weights.num_slow(_MODEL, _config())
  costs = []
  for number in range(1, num_rounds + 1):
    whole = 2 * factored.NUM_ALL
    call = algorithm_lib.PhaseCall(
      'train',
      np.array([0, 1], np.int32),
      (),
      algorithm_lib.Cost(whole, whole, 2),
    )
    cost = slow_weights.cost_of(call, number, num_slow, _config())
    assert cost.local_solves == 2
    costs.append((whole - cost.downlink_floats, whole - cost.uplink_floats))
  return costs


def test_fast_rounds_spare_the_slow_weights_both_ways():
  slow = factored.NUM_COEFFICIENTS
  expected = [(0, 0), (2 * slow, 2 * slow), (2 * slow, 2 * slow)] * 2
  assert _costs(6) == expected


@pytest.mark.parametrize(
  ('fast_groups', 'ratios'),
  [
    (('atoms',), (0.2005, 0.2005, 0.2015, 0.2004)),
    (('atoms', 'head'), (0.2026, 0.2211, 0.2037, 0.2113)),
    (('atoms', 'hidden', 'head'), (0.9576, 0.9585, 0.8708, 0.9357)),
  ],
)
@pytest.mark.parametrize(
  ('column', 'variant', 'num_outputs'),
  [
    *((0, 'fed_dyn', 10), (1, 'fed_dyn', 100)),
    *((2, 'fed_rep', 10), (3, 'fed_rep_wide', 100)),
  ],
)
def test_share_of_the_uplink_that_remains_with_beta_one_fifth(
  column, variant, num_outputs, fast_groups, ratios
):
  """(beta * full + (1 - beta) * fast) / full."""
  model = toys.build(
    {
      **{'name': 'lenet', 'variant': variant},
      'decomposition': {'num_atoms': 9},
    },
    (32, 32, 3),
    num_outputs,
  )
  full = trees.num_entries(model.weights_spec())
  config = _config(slow_period=5, fast_groups=fast_groups)
  num_slow = slow_weights.num_slow(model, config)
  sent = 0
  for number in range(1, 6):
    call = algorithm_lib.PhaseCall(
      'train', np.array([0], np.int32), (), algorithm_lib.Cost(full, full, 1)
    )
    sent += slow_weights.cost_of(call, number, num_slow, config).uplink_floats
  assert round(sent / (5 * full), 4) == ratios[column]


@pytest.mark.parametrize(
  ('options', 'text'),
  [
    ({'slow_period': 0}, 'slow_period must be an integer >= 1, got 0'),
    ({'slow_period': 2.5}, 'slow_period must be an integer >= 1, got 2.5'),
    ({'fast_groups': ('body',)}, "fast_groups must be one of 'atoms'"),
    ({'fast_groups': ()}, 'fast_groups is empty: nothing would travel'),
    ({'fast_rounds': 'skip'}, "fast_rounds must be one of 'discard'"),
  ],
)
def test_options_out_of_range_are_refused(options, text):
  with pytest.raises(errors.ConfigError, match=text):
    _config(**options)
