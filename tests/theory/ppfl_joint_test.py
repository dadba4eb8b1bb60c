"""PPFL's phase `joint` (Algorithm 3) in terms of its two parts."""

import numpy as np
import tensorflow as tf

from tests.testing import client_data, contract, toys
from tff_algos.algorithms.ppfl import (
  membership_descent,
  mixed_training,
  mixing,
  ppfl,
)
from tff_algos.stages.client import local_training


def test_weights_are_trained_with_the_membership_after_its_step():
  training = local_training.LocalTrainingConfig(1, 4)
  membership = membership_descent.MembershipConfig(5.0, batch_size=4)
  algorithm = ppfl.build_ppfl(
    toys.mlp(),
    ppfl.PpflConfig(membership=membership, local_training=training),
  )
  source = contract.build_source()
  state, states = tf.nest.map_structure(
    tf.constant, toys.initial_states(algorithm, source.population)
  )
  examples = source.examples(3)
  data = client_data.build(examples.x, examples.y)
  seed = tf.constant([1, 2])
  output = algorithm.phases['joint'].client_work(
    state.model_weights, {'client_weight': 1.0}, states[3], data, seed
  )
  c = output.client_state.membership
  assert np.abs(c - 0.5).max() > 0.01
  expected, *_ = mixed_training.train(
    mixing.build(toys.mlp(), 2, ('all',), 'outputs'),
    state.model_weights,
    c,
    (),
    data,
    seed,
    training,
  )
  tf.nest.map_structure(
    np.testing.assert_array_equal, output.result['local_weights'], expected
  )
  assert output.result['client_weight'] == 12
