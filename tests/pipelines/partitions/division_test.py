import numpy as np
import pytest

from pipelines.partitions import division
from tff_algos.core import errors


def test_pool_sizes():
  divided = division.Division(np.array([1, -1, 0, 1]), np.zeros((3, 2)))
  counts = np.array([[1, 10, 100, 1000], [5, 0, 0, 2]])
  np.testing.assert_array_equal(
    divided.pool_sizes(counts), [[100, 1001], [0, 7]]
  )


def test_more_classes_than_there_are():
  counts = np.array([3, 0, 1])
  division.check_num_classes('k', 2, counts)
  with pytest.raises(errors.PartitionError, match='k is 3 and only 2 classes'):
    division.check_num_classes('k', 3, counts)


def test_pool_for_more_clients_than_examples():
  division.check_enough('class 3', 4, 4)
  with pytest.raises(
    errors.PartitionError, match='class 3 has 4 .* for 5 clients'
  ):
    division.check_enough('class 3', 4, 5)
