import hypothesis
import numpy as np
import pytest
from hypothesis import strategies

from pipelines.partitions import apportion, division, groups
from tff_algos.core import errors

# Classes of CIFAR-10: airplane 0, automobile 1, ship 8, truck 9, six animals.
_CIFAR = ((1, 9), (0, 8), (2, 3, 4, 5, 6, 7))


def _divide(options, counts, num_clients, num_unseen=0, seed=0):
  return groups.divide(
    groups.Options(**options),
    division.Request(np.asarray(counts), num_clients, num_unseen, seed),
  )


def test_ppfl_on_mnist():
  """100 clients in 4 groups; seed 12345 draws the groups of its code."""
  counts = np.array(
    [6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958]
  )
  divided = _divide({'group_sizes': (2, 2, 3, 3)}, counts, 100, seed=12345)
  found = divided.facts['class_groups']
  assert [set(group) for group in found] == [
    {6, 0},
    {5, 8},
    {3, 2, 9},
    {1, 4, 7},
  ]
  np.testing.assert_array_equal(np.bincount(divided.clusters), [25] * 4)
  pools = divided.pool_sizes(counts)
  sizes = apportion.apportion(divided.shares, pools).sum(axis=1)
  for cluster, group in enumerate(found):
    mine = sizes[divided.clusters == cluster]
    assert mine.sum() == counts[group].sum()
    assert mine.max() - mine.min() <= 1
  # The paper's code gives clients about 525 to 880 examples.
  assert (sizes.min(), sizes.max()) == (525, 880)


def test_ppfl_on_cifar():
  """80 clients: 27 and 27 with vehicles, 26 with animals."""
  counts = np.full(10, 6000)
  divided = _divide({'class_groups': _CIFAR}, counts, 80)
  np.testing.assert_array_equal(np.bincount(divided.clusters), [27, 27, 26])
  assert divided.facts == {'class_groups': [list(group) for group in _CIFAR]}
  sizes = apportion.apportion(divided.shares, divided.pool_sizes(counts)).sum(
    axis=1
  )
  assert set(sizes[:54]) == {444, 445}
  assert set(sizes[54:]) == {1384, 1385}


@hypothesis.given(
  sizes=strategies.lists(strategies.integers(1, 4), min_size=1, max_size=5),
  more=strategies.integers(0, 20),
  num_unseen=strategies.integers(0, 9),
  seed=strategies.integers(0, 100),
)
def test_groups_are_disjoint_and_used_up(sizes, more, num_unseen, seed):
  counts = 40 + np.arange(sum(sizes))
  num_clients = len(sizes) + more
  divided = _divide(
    {'group_sizes': tuple(sizes)}, counts, num_clients, num_unseen, seed
  )
  found = divided.facts['class_groups']
  assert [len(group) for group in found] == sizes
  assert sorted(sum(found, [])) == list(range(len(counts)))
  for g, group in enumerate(found):
    assert np.all(divided.pool_of_class[group] == g)
  members = np.bincount(divided.clusters[:num_clients], minlength=len(sizes))
  assert members.max() - members.min() <= 1
  pools = divided.pool_sizes(counts)
  quotas = apportion.apportion(divided.shares, pools)
  np.testing.assert_array_equal(quotas.sum(axis=0), pools)
  np.testing.assert_array_equal(
    (divided.shares > 0).argmax(axis=1), divided.clusters
  )


def test_group_with_fewer_examples_than_clients():
  with pytest.raises(
    errors.PartitionError, match=r'classes \[2\] has 1 .* for 2 clients'
  ):
    _divide({'class_groups': ((0, 1), (2,))}, [5, 5, 1], 4)


def test_classes_in_no_group_are_not_used():
  divided = _divide({'class_groups': ((0, 2),)}, [5, 5, 5], 2)
  np.testing.assert_array_equal(divided.pool_of_class, [0, -1, 0])
  np.testing.assert_array_equal(divided.pool_sizes(np.array([5, 5, 5])), [10])


@pytest.mark.parametrize(
  ('options', 'error', 'text'),
  [
    ({}, errors.ConfigError, 'exactly one of class_groups and group_sizes'),
    (
      {'class_groups': ((0,),), 'group_sizes': (3,)},
      errors.ConfigError,
      'exactly one',
    ),
    ({'class_groups': ()}, errors.ConfigError, 'at least one group'),
    ({'class_groups': ((0, 1), ())}, errors.ConfigError, 'none of them empty'),
    ({'class_groups': ((0, 1), (1,))}, errors.ConfigError, 'no class in two'),
    ({'class_groups': ((-1,),)}, errors.ConfigError, 'class_groups must be'),
    (
      {'class_groups': ((0, 3),)},
      errors.ConfigError,
      'names class 3; .* 0 to 2',
    ),
    ({'group_sizes': (1, 1)}, errors.ConfigError, r'must sum to .* 3'),
    ({'group_sizes': (3, 0)}, errors.ConfigError, 'group_sizes must be'),
    ({'group_sizes': (1, 1, 1)}, errors.PartitionError, '2 for 3 groups'),
  ],
)
def test_groups_that_cannot_be(options, error, text):
  with pytest.raises(error, match=text):
    _divide(options, [5, 5, 5], 2)
