"""Tests of the little that the contract itself does."""

import dataclasses

import numpy as np
import pytest

from tff_algos.core import algorithm, errors


def test_population_counts_its_clients():
  population = algorithm.Population(('a', 'b', 'c'), np.array([4, 0, 1]))
  assert population.num_clients == 3
  assert population.all_clients.tolist() == [0, 1, 2]
  assert population.clients_with_examples.tolist() == [0, 2]
  today = population._replace(is_available=np.array([False, True, True]))
  assert today.clients_with_examples.tolist() == [2]
  assert today.available_examples.tolist() == [0, 0, 1]


def test_a_call_that_names_a_client_twice_is_refused():
  call = algorithm.PhaseCall(
    'train', np.array([3, 0, 7], np.int32), (), algorithm.Cost()
  )
  text = (
    "^phase 'train': the plan contains client_index 7 more than once; "
    'client_indices must be distinct'
  )
  with pytest.raises(errors.StageTypeError, match=text):
    dataclasses.replace(call, client_indices=np.array([7, 0, 7], np.int32))
