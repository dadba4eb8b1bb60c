"""Tests of robust rules in the place of a phase's means."""

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import robust_oracle, running_sum, stacks
from tff_algos.core import errors
from tff_algos.runtimes import debug_runtime
from tff_algos.stages.server import robust_aggregation

_Config = robust_aggregation.AggregationConfig


def test_mean_leaves_the_phase_as_it_is():
  phase = running_sum.algorithm().phases[running_sum.PHASE]
  assert robust_aggregation.replace_means(phase, _Config(), None) is phase


@pytest.mark.parametrize(
  ('rule', 'start', 'mean'),
  [
    ('median', 'total', 15),
    # Every client is further from the start than 1.
    ('norm_clipping', 'total', 5 + 1),
    ('norm_clipping', None, 1),
  ],
)
def test_rules_of_a_phase_by_hand(rule, start, mean):
  """Clients say 3 and a total of 5, 10 + 5, 600 + 5; the empty one has weight 0."""
  clients = running_sum.source([1, 2], [10], [], [100, 200, 300])
  phase = robust_aggregation.replace_means(
    running_sum.algorithm().phases[running_sum.PHASE],
    _Config(rule=rule),
    start,
  )
  algorithm = running_sum.algorithm(
    aggregation=phase.aggregation, server_update=phase.server_update
  )
  output = running_sum.run_call(
    debug_runtime.DebugRuntime(algorithm, 4),
    algorithm,
    clients,
    running_sum.phase_call([3, 2, 1, 0], [0, 0, 0, 0]),
    5.0,
  )
  np.testing.assert_allclose(output.server_state.mean, mean, rtol=1e-5)
  assert float(output.server_metrics['weight']) == 6
  # What is summed is summed as before.
  assert float(output.server_state.total) == 5 + 8 + 15 + 5 + 605


@pytest.mark.parametrize('rule', ['trimmed_mean', 'krum', 'centered_clipping'])
def test_every_cluster_has_a_mean_of_its_own(rule):
  """Nine clients in two clusters, one of them in both, and an empty cluster."""
  rows = stacks.normal_rows(9)
  weights = np.zeros([9, 3])
  weights[:5, 0] = 1
  weights[4:, 2] = 2
  starts = stacks.normal_rows(3, seed=1)
  config = _Config(rule=rule, trim_fraction=0.2, num_iterations=3)
  means = robust_aggregation.robust_cluster_means(
    config,
    stacks.stack(rows),
    tf.constant(weights, tf.float32),
    stacks.stack(starts),
  )
  np.testing.assert_array_equal(means.weight, [5, 0, 10])
  found = stacks.flat(means.value, 1)
  for cluster_id, members in ((0, rows[:5]), (2, rows[4:])):
    expected = {
      'trimmed_mean': lambda rows, start: robust_oracle.trimmed_mean(rows, 1),
      'krum': lambda rows, start: rows[robust_oracle.krum_order(rows, 0)[0]],
      'centered_clipping': lambda rows, start: robust_oracle.centered_clipping(
        rows, np.ones(5), start, 1.0, 3
      ),
    }[rule](members, starts[cluster_id])
    np.testing.assert_allclose(found[cluster_id], expected, atol=1e-5)
  np.testing.assert_array_equal(found[1], 0)


@pytest.mark.parametrize('rule', robust_aggregation.robust_rules.RULES)
def test_one_client_alone_is_its_own_mean_and_nobody_zeros(rule):
  row = stacks.normal_rows(1)
  config = _Config(rule=rule, num_byzantine=2, clipping_radius=100.0)
  for weight, expected in ((3.0, row[0]), (0.0, np.zeros(stacks.NUM_WEIGHTS))):
    mean = robust_aggregation.robust_mean(
      config, stacks.stack(row), tf.constant([weight]), stacks.stack(0 * row[0])
    )
    np.testing.assert_allclose(stacks.flat(mean.value), expected, atol=1e-6)
    assert float(mean.weight) == weight


def test_mixing_comes_before_the_rule():
  rows = stacks.normal_rows(7)
  config = _Config(rule='median', num_byzantine=2, mixes_nearest_neighbors=True)
  mean = robust_aggregation.robust_mean(
    config, stacks.stack(rows), tf.ones([7]), stacks.stack(rows[0])
  )
  np.testing.assert_allclose(
    stacks.flat(mean.value),
    np.median(robust_oracle.mixed_neighbors(rows, 2), axis=0),
    atol=1e-5,
  )
  assert not _Config(mixes_nearest_neighbors=True).is_plain


@pytest.mark.parametrize(
  ('options', 'least'),
  [
    ({'rule': 'krum'}, 9),
    ({'rule': 'multi_krum'}, 9),
    ({'rule': 'bulyan'}, 15),
    ({'rule': 'median'}, 7),
    ({'rule': 'geometric_median'}, 7),
    ({'rule': 'trimmed_mean', 'trim_fraction': 0.3}, 10),
    ({'rule': 'mean', 'mixes_nearest_neighbors': True}, 7),
    ({'rule': 'mean'}, 1),
  ],
)
def test_too_few_clients_for_three_liars_are_refused(options, least):
  config = _Config(num_byzantine=3, **options)
  config.check_cohort_size('cohort_size', least)
  if least > 1:
    with pytest.raises(errors.ConfigError, match=r'aggregation\..* 3'):
      config.check_cohort_size('cohort_size', least - 1)


def test_a_cohort_of_all_clients_is_of_no_known_size():
  _Config(rule='krum', num_byzantine=3).check_cohort_size('cohort_size', 0)


def test_trimmed_values_are_counted_without_rounding_error():
  """0.29 * 100 is just below 29 in floating point."""
  config = _Config(rule='trimmed_mean', trim_fraction=0.29, num_byzantine=29)
  config.check_cohort_size('cohort_size', 100)
  with pytest.raises(errors.ConfigError, match='leaves out 28 of 99 values'):
    config.check_cohort_size('cohort_size', 99)


def test_refusals_name_the_rule_and_what_to_do():
  for config, words in (
    (
      _Config(rule='krum', num_byzantine=2),
      "aggregation.rule 'krum' with num_byzantine 2 needs at least 7 clients in "
      'a mean, but cohort_size is 5; raise cohort_size',
    ),
    (
      _Config(rule='multi_krum', num_selected=6),
      'num_selected is 6, more than cohort_size, 5',
    ),
    (
      _Config(rule='trimmed_mean', num_byzantine=1),
      'leaves out 0 of 5 values on each side',
    ),
  ):
    with pytest.raises(errors.ConfigError, match=words):
      config.check_cohort_size('cohort_size', 5)
  with pytest.raises(errors.ConfigError, match="rule must be one of 'mean'"):
    _Config(rule='average')


def test_a_population_is_checked_where_all_take_part():
  config = _Config(rule='krum')
  init = robust_aggregation.checked(config, lambda seed, num_clients: seed)
  assert init(8, 3) == 8
  with pytest.raises(errors.ConfigError, match='the number of clients is 2'):
    init(8, 2)


def test_number_of_clients_is_checked_inside_a_trace():
  config = robust_aggregation.AggregationConfig(
    rule='trimmed_mean', num_byzantine=1, trim_fraction=0.2
  )
  init = robust_aggregation.checked(config, lambda seed, num_clients: seed)
  traced = tf.function(lambda seed: init(seed, 5), autograph=False)
  traced.get_concrete_function(tf.TensorSpec([2], tf.int32))
