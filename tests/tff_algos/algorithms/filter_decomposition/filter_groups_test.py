"""Tests of the groups of weights."""

import pytest

from tests.testing import factored, toys
from tff_algos.algorithms.filter_decomposition import filter_groups
from tff_algos.core import errors
from tff_algos.numerics import trees


def _lenet():
  return toys.build(
    {
      **{'name': 'lenet', 'variant': 'fed_dyn'},
      'decomposition': {'num_atoms': 9},
    },
    (32, 32, 3),
    10,
  )


def test_groups_are_disjoint_and_complete():
  model = _lenet()
  groups = filter_groups.names_by_group(model)
  assert groups == {
    'atoms': ('conv_0/atoms', 'conv_1/atoms'),
    'coefficients': ('conv_0/coefficients', 'conv_1/coefficients'),
    'head': ('dense_2/kernel', 'dense_2/bias'),
    'hidden': (
      *('dense_0/kernel', 'dense_0/bias', 'dense_1/kernel', 'dense_1/bias'),
    ),
    'other': ('conv_0/bias', 'conv_1/bias'),
  }
  names = filter_groups.names_of(groups, filter_groups.GROUPS)
  assert sorted(names) == sorted(model.weights_spec())


def test_counts_add_up():
  """The larger LeNet: 450 numbers are atoms, 38,592 coefficients."""
  model = _lenet()
  spec = model.weights_spec()
  sizes = {
    group: trees.num_entries(filter_groups.take(spec, names))
    for group, names in filter_groups.names_by_group(model).items()
  }
  assert sizes == {
    **{'atoms': 450, 'coefficients': 38_592, 'head': 1_930},
    **{'hidden': 614_784 + 73_920, 'other': 128},
  }


def test_a_network_without_factors_has_fewer_groups():
  groups = filter_groups.names_by_group(toys.mlp())
  assert list(groups) == ['head', 'hidden']


def test_parts_are_taken_and_put_in_their_place():
  weights = {'a': 1, 'b': 2, 'c': 3}
  part = filter_groups.take(weights, ('c', 'a'))
  assert dict(part) == {'a': 1, 'c': 3}
  assert list(filter_groups.put(weights, {'b': 5}).items()) == [
    *(('a', 1), ('b', 5), ('c', 3)),
  ]


def test_a_network_without_atoms_is_refused_where_they_are_needed():
  filter_groups.check_has_atoms(factored.model(), 'this')
  text = "this needs filter atoms, but no convolution of model 'mlp' is decom"
  with pytest.raises(errors.ConfigError, match=text):
    filter_groups.check_has_atoms(toys.mlp(), 'this')
