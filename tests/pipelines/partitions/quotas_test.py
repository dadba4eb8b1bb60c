import numpy as np
import pytest

from pipelines import options
from pipelines.partitions import mixtures, quotas
from tff_algos.core import errors


def _mixtures(num_clients):
  return mixtures.build_mixtures(
    '10:90', num_clients, 2, np.random.default_rng(0)
  )


def _largest_equal(built, available, config):
  return quotas.largest_sizes(
    lambda size: np.full(len(built), size),
    int(available[0].sum()),
    built,
    available,
    config,
  )


def test_split_sizes_come_on_top():
  config = options.SplitsConfig(validation_ratio=0.1, test_ratio=0.25)
  np.testing.assert_array_equal(
    quotas.split_sizes(np.array([10, 15, 0]), config),
    [[10, 15, 0], [1, 2, 0], [3, 4, 0]],
  )


def test_clients_that_are_split_by_themselves_draw_all_from_one_pool():
  config = options.SplitsConfig(0.1, 0.25, split_by='client')
  np.testing.assert_array_equal(
    quotas.split_sizes(np.array([10, 15]), config), [[10, 15], [0, 0], [0, 0]]
  )


def test_largest_sizes_cannot_be_raised():
  built = _mixtures(4)
  config = options.SplitsConfig(validation_ratio=0.5)
  available = np.array([[100, 90], [50, 40], [0, 0]])
  sizes = _largest_equal(built, available, config)
  # 4 clients * 40 validation examples of the second distribution allow 40.
  np.testing.assert_array_equal(sizes, np.full(4, 40))
  wanted = [
    quotas.count_quotas(built, np.full(4, n), config).sum(axis=1)
    for n in (40, 41)
  ]
  assert np.all(wanted[0] <= available)
  assert not np.all(wanted[1] <= available)


def test_largest_sizes_of_nothing():
  sizes = _largest_equal(
    _mixtures(4), np.zeros((3, 2), int), options.SplitsConfig()
  )
  np.testing.assert_array_equal(sizes, np.zeros(4))


def test_too_few_examples_are_named():
  wanted = np.array([[10, 20], [1, 2], [0, 0]])
  available = np.array([[10, 15], [5, 5], [0, 0]])
  with pytest.raises(
    errors.PartitionError,
    match=r"wants 20 train examples .*'rotated' and only 15 exist. Lower",
  ):
    quotas.check_available(wanted, available, ('upright', 'rotated'))
