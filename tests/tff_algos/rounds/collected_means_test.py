"""Tests that means of collected results are those that are added up."""

import numpy as np
import tensorflow as tf

from tests.testing import running_sum, toys
from tff_algos.rounds import aggregation, collected_means
from tff_algos.runtimes import debug_runtime

_CLIENTS = running_sum.source([1, 2], [10], [], [100, 200, 300])
_PHASE = running_sum.algorithm().phases[running_sum.PHASE]


def _run(phase):
  algorithm = running_sum.algorithm(
    aggregation=phase.aggregation, server_update=phase.server_update
  )
  call = running_sum.phase_call([0, 1, 2, 3], [0, 0, 0, 0])
  return running_sum.run_call(
    debug_runtime.DebugRuntime(algorithm, 4), algorithm, _CLIENTS, call, 5.0
  )


def test_a_phase_that_collects_gives_the_same():
  collecting = collected_means.collect_means(_PHASE)
  assert all(
    isinstance(one, aggregation.Collect)
    for one in collecting.aggregation.values()
  )
  assert set(collecting.aggregation) == {*_PHASE.aggregation, 'weight'}
  toys.assert_outputs_close(_run(collecting), _run(_PHASE), rtol=1e-6)


def test_cluster_means_of_collected_results_are_the_same():
  results = {
    'model': tf.constant([[1.0, 2], [3, -4], [0.5, 8]]),
    'slots': tf.constant([[1.0, 0, 0], [2, 0, 1], [0, 0, 1]]),
  }
  mean = collected_means.plain_mean(
    None, aggregation.ClusterMean('slots'), results, 'model'
  )
  np.testing.assert_array_equal(mean.weight, [3, 0, 2])
  np.testing.assert_allclose(
    mean.value, [[7 / 3, -2], [0, 0], [1.75, 2]], rtol=1e-6
  )


def test_a_mean_is_taken_by_who_is_asked_to():
  """He gets the old state and the field of every client with its weight."""
  seen = {}

  def take_mean(server_state, aggregator, results, field):
    seen['total'] = float(server_state.total)
    seen['weights'] = results[aggregator.weight_field].numpy().tolist()
    return aggregation.Mean(results[field][1], tf.constant(7.0))

  output = _run(collected_means.collect_means(_PHASE, take_mean))
  assert seen == {'total': 5.0, 'weights': [2, 1, 0, 3]}
  assert float(output.server_state.mean) == 15
  assert float(output.server_metrics['weight']) == 7


def test_a_phase_that_only_collects_stays_what_it_is():
  phase = _PHASE._replace(aggregation={'said': aggregation.Collect()})
  assert collected_means.collect_means(phase) is phase
