"""A round of FedSoft by hand: who is drawn, and a client's step (Eqs. 4 and 5)."""

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import toys
from tff_algos.algorithms.fed_soft import center_download, fed_soft
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.numerics import optimizers
from tff_algos.stages.client import local_training


def _build(**options):
  solver = local_training.LocalTrainingConfig(
    1, 32, optimizers.OptimizerConfig('sgd', 0.1)
  )
  config = fed_soft.FedSoftConfig(local_training=solver, **options)
  return fed_soft.build_fed_soft(toys.linear(3), config)


@pytest.mark.parametrize(
  ('start', 'expected', 'origin'),
  [('own', 1.24, 7), ('mixed_center', 7.0, 7), ('best_center', 7.96, 8)],
)
def test_a_step_goes_to_the_mixed_center(start, expected, origin):
  """Of 4 and 8, by 0.2 and 0.6: 7. Examples of zeros have no gradient, so a
  step from w ends in w + 0.1 * 0.5 * 0.8 * (7 - w).
  """
  phase = _build(start=start, proximal_weight=0.5).phases['train']
  models = {'kernel': tf.constant([4.0, 8])[:, None, None] * tf.ones([3, 1])}
  told = center_download.TrainInput(tf.constant([0.2, 0.6]), tf.ones([2]))
  output = phase.client_work(
    models,
    told,
    fed_soft.ClientState({'kernel': tf.ones([3, 1])}, tf.constant(1)),
    algorithm_lib.ClientData(tf.zeros([2, 3]), tf.zeros([2]), tf.ones([2])),
    tf.constant([0, 0]),
  )
  for weights in (
    output.result.local_weights,
    output.client_state.personalized_weights,
  ):
    np.testing.assert_allclose(weights['kernel'], expected, rtol=1e-6)
  assert output.client_state.num_updates == 2
  # What an attacker changes is the way from the start, or from the mixed center
  # where the start is in no message.
  found = phase.uploads['local_weights'](models, told, output.result)
  np.testing.assert_allclose(found['kernel'], origin, rtol=1e-6)


def test_clients_are_drawn_by_what_the_round_has_estimated():
  """Two clients have a chance in each cluster: others before, others after."""
  population = algorithm_lib.Population(tuple('abcd'), np.array([3, 3, 3, 3]))
  before, after = (
    fed_soft.ServerState({'kernel': np.zeros((2, 3, 1), 'f')}, np.array(u, 'f'))
    for u in (
      [[1, 0], [1, 0], [0, 1], [0, 1]],
      [[0, 0], [1, 0], [0.5, 0.5], [0, 1]],
    )
  )
  plan = _build(cohort_size_per_cluster=2).plan_round(before, population, 1, 0)
  assert next(plan).phase == 'estimate_importance'
  call = plan.send(after)
  assert call.client_indices.tolist() == [1, 2, 3]
  np.testing.assert_array_equal(
    call.client_inputs.importance_weights, after.importance_weights[1:]
  )
