import hypothesis
import numpy as np
import pytest
from hypothesis import strategies

from pipelines.partitions import apportion, classes, division
from tff_algos.core import errors


@hypothesis.given(strategies.data())
def test_each_client_has_its_classes_and_each_class_is_used_up(data):
  counts = np.array(
    data.draw(
      strategies.lists(strategies.integers(30, 200), min_size=1, max_size=30)
    )
  )
  num_each = data.draw(strategies.integers(1, len(counts)))
  # Otherwise nobody has some class.
  num_clients = data.draw(strategies.integers(-(-len(counts) // num_each), 30))
  request = division.Request(counts, num_clients, 0, 5)
  divided = classes.divide(classes.Options(num_each), request)
  has = divided.shares > 0
  assert set(has.sum(axis=1)) == {num_each}
  holders = has.sum(axis=0)
  assert holders.max() - holders.min() <= 1
  quotas = apportion.apportion(divided.shares, counts)
  np.testing.assert_array_equal(quotas.sum(axis=0), counts)
  for label, quota in enumerate(quotas.T):
    mine = quota[has[:, label]]
    assert mine.max() - mine.min() <= 1


def test_classes_without_examples_are_nobodys():
  request = division.Request(np.array([10, 0, 10, 10]), 6, 0, 0)
  divided = classes.divide(classes.Options(2), request)
  np.testing.assert_array_equal((divided.shares > 0).sum(axis=0), [4, 0, 4, 4])


def test_seeds_give_other_classes():
  counts = np.full(10, 100)
  shares = [
    classes.divide(
      classes.Options(3), division.Request(counts, 20, 0, seed)
    ).shares
    for seed in (0, 0, 1)
  ]
  np.testing.assert_array_equal(shares[0], shares[1])
  assert np.any(shares[0] != shares[2])


def test_more_classes_than_there_are():
  request = division.Request(np.array([10, 0, 10]), 6, 0, 0)
  with pytest.raises(
    errors.PartitionError, match='classes_per_client is 3 and only 2 classes'
  ):
    classes.divide(classes.Options(3), request)


def test_class_with_fewer_examples_than_clients():
  request = division.Request(np.array([10, 2, 10]), 6, 0, 0)
  with pytest.raises(errors.PartitionError, match='class 1 has 2 .* 4 clients'):
    classes.divide(classes.Options(2), request)


def test_bad_options():
  with pytest.raises(errors.ConfigError, match='classes_per_client must be'):
    classes.Options(0)
