"""Tests of the little that the contract itself does."""

import numpy as np
import tensorflow as tf

from tff_algos.core import algorithm


def test_population_counts_its_clients():
  population = algorithm.Population(('a', 'b', 'c'), np.array([4, 0, 1]))
  assert population.num_clients == 3


def test_a_call_costs_nothing_unless_it_says_so():
  assert algorithm.Cost() == (0, 0, 0)


def test_a_phase_uses_client_state_and_no_input_by_default():
  phase = algorithm.Phase('p', None, None, {}, None)
  assert phase.uses_client_state
  assert phase.client_input == ()


def test_client_data_is_a_structure_of_tensors():
  data = algorithm.ClientData(tf.ones([2, 3]), tf.ones([2]), tf.ones([2]))
  assert [leaf.shape.rank for leaf in tf.nest.flatten(data)] == [2, 1, 1]
