"""The atoms of a network and the distances of clients' own ones."""

import types

import numpy as np
import tensorflow as tf

from tests.testing import factored, toys
from tff_algos.experiments.analyses import filter_atoms


def test_a_row_for_each_atom():
  weights = factored.model().initialize(tf.constant([1, 2]))
  rows = filter_atoms.atom_rows(weights)
  assert [(row['layer'], row['atom']) for row in rows] == [
    ('conv', 0),
    ('conv', 1),
  ]
  for atom, row in enumerate(rows):
    entries = [row[f'entry_{place}'] for place in range(9)]
    assert (row['height'], row['width']) == (3, 3)
    np.testing.assert_array_equal(
      np.reshape(entries, (3, 3)), weights['conv/atoms'][..., atom]
    )
    np.testing.assert_allclose(
      row['coefficient_norm'],
      np.sqrt(np.sum(np.square(weights['conv/coefficients'][atom]))),
      rtol=1e-6,
    )


def test_a_network_without_atoms_has_no_rows():
  weights = toys.mlp().initialize(tf.constant([1, 2]))
  assert not filter_atoms.atom_rows(weights)


def test_own_atoms_are_apart_of_who_has_trained_some():
  algorithm = factored.build(local_atoms={'own': 'atoms'})
  population = factored.SOURCE.population
  state, states, _ = factored.run(algorithm, 1)
  (call,) = algorithm.plan_round(None, population, 1, 0)

  def load(indices):
    rows = [states[int(index)] for index in indices]
    return tf.nest.map_structure(lambda *leaves: np.stack(leaves), *rows)

  opened = types.SimpleNamespace(
    algorithm=algorithm,
    source=factored.SOURCE,
    store=types.SimpleNamespace(load=load),
  )
  rows = filter_atoms.own_rows(opened, state)
  assert [row['client_id'] for row in rows] == list(population.client_ids)
  for index, row in enumerate(rows):
    own = states[index].own.weights['conv/atoms']
    gap = np.linalg.norm(own - state.model_weights['conv/atoms'])
    expected = gap if index in call.client_indices else 0
    np.testing.assert_allclose(row['distance_conv'], expected, rtol=1e-5)
    assert expected == 0 or expected > 1e-4
