import hypothesis
import numpy as np
import pytest
from hypothesis import strategies

from pipelines.examples import hashing
from pipelines.partitions import natural
from tff_algos.core import errors


def _clients(train, test=None, seed=0):
  names = np.array([f'writer_{i:03d}' for i in range(len(train))])
  sizes = np.zeros((3, len(train)), np.int64)
  sizes[0] = train
  sizes[2] = 0 if test is None else test
  return natural.Clients(
    names,
    hashing.draw_lots(names, seed, 'test'),
    sizes,
    np.ones(len(names), bool),
  )


def _choose(clients, num_clients=None, num_unseen=0, **options):
  return natural.choose(
    natural.Options(**options), clients, num_clients, num_unseen
  )


def test_ppfl_takes_clients_with_100_training_and_25_test_examples():
  clients = _clients([100, 99, 500, 100], [25, 80, 24, 30])
  kept = _choose(clients, min_train_examples=100, min_test_examples=25)
  np.testing.assert_array_equal(kept, [0, 3])


def test_least_examples_count_all_splits():
  clients = _clients([20, 29, 30], [10, 0, 0])
  np.testing.assert_array_equal(_choose(clients, min_examples=30), [0, 2])


@hypothesis.given(
  sizes=strategies.lists(strategies.integers(0, 50), min_size=1, max_size=30),
  fraction=strategies.floats(0.01, 1),
)
def test_sample_has_the_fraction_and_not_a_client_more(sizes, fraction):
  hypothesis.assume(sum(sizes))
  clients = _clients(sizes)
  kept = _choose(clients, sample_fraction=fraction)
  share = clients.sizes[0][kept].sum() / sum(sizes)
  assert share >= fraction - 1e-9
  last = kept[np.argmax(clients.lot[kept])]
  if fraction < 1:
    assert share - clients.sizes[0][last] / sum(sizes) < fraction


def test_clients_are_chosen_by_lot():
  clients = _clients([5] * 50)
  kept = _choose(clients, 10, 2)
  by_lot = np.argsort(clients.lot)[:12]
  np.testing.assert_array_equal(kept, np.sort(by_lot))
  assert np.any(_choose(_clients([5] * 50, seed=1), 10, 2) != kept)


@pytest.mark.parametrize(
  ('num_clients', 'num_unseen', 'options'),
  [(4, 0, {}), (None, 3, {}), (2, 0, {'min_examples': 6})],
)
def test_too_few_clients(num_clients, num_unseen, options):
  with pytest.raises(errors.PartitionError, match='at least one must be left'):
    _choose(_clients([5, 6, 5]), num_clients, num_unseen, **options)


def test_sizes_and_new_numbers():
  index, roles = np.array([0, 2, 2, 0, 1, 2]), np.array([0, 0, 2, 2, 3, -1])
  np.testing.assert_array_equal(
    natural.count_sizes(index, roles, 3), [[1, 0, 1], [0, 0, 0], [1, 0, 1]]
  )
  np.testing.assert_array_equal(
    natural.renumber(np.array([2, 0]), 3), [1, -1, 0]
  )


@pytest.mark.parametrize(
  'options',
  [
    {'sample_fraction': 0.0},
    {'sample_fraction': 1.5},
    {'min_examples': -1},
    {'min_train_examples': -1},
    {'min_test_examples': -1},
  ],
)
def test_bad_options(options):
  with pytest.raises(errors.ConfigError, match=next(iter(options))):
    natural.Options(**options)
