"""Tests of seeds: the same for the same use, unrelated for any other."""

import itertools

import numpy as np
import pytest
from scipy import stats

from tff_algos.core import seeds


def test_same_use_gives_the_same_seed():
  arguments = (7, 'train', 3, 'c1')
  np.testing.assert_array_equal(
    seeds.derive_seed(*arguments), seeds.derive_seed(*arguments)
  )
  first = seeds.numpy_generator(*arguments).integers(0, 2**63, 5)
  again = seeds.numpy_generator(*arguments).integers(0, 2**63, 5)
  np.testing.assert_array_equal(first, again)


def test_seeds_never_change_between_versions():
  """Written down: a changed seed would change every resumed run."""
  seed = seeds.derive_seed(7, 'train', 3, 'c1')
  assert seed.dtype == np.int32
  assert seed.tolist() == [498966282, -474155078]


def test_seeds_of_several_clients_are_those_of_each_alone():
  ids = ['c1', '', 'c', 'c1']
  np.testing.assert_array_equal(
    seeds.derive_seeds(7, 'train', 3, ids),
    [seeds.derive_seed(7, 'train', 3, client_id) for client_id in ids],
  )


def test_every_part_of_the_use_matters():
  uses = list(itertools.product((0, 1, 10), ('a', 'b'), (0, 1, 10), ('', 'c')))
  derived = {tuple(seeds.derive_seed(*use)) for use in uses}
  assert len(derived) == len(uses)
  drawn = {seeds.numpy_generator(*use).integers(0, 2**63) for use in uses}
  assert len(drawn) == len(uses)


@pytest.mark.parametrize(
  ('first', 'second'),
  [
    ((1, 'a', 12, 'c'), (1, 'a1', 2, 'c')),
    ((1, 'a', 1, '2c'), (1, 'a', 12, 'c')),
    ((11, 'a', 1, ''), (1, '1a', 1, '')),
    ((1, 'a', 1, 'b'), (1, 'ab', 1, '')),
  ],
)
def test_uses_that_read_alike_when_joined_are_told_apart(first, second):
  assert seeds.derive_seed(*first).tolist() != (
    seeds.derive_seed(*second).tolist()
  )


def test_client_ids_may_be_any_text():
  ids = ['ü', 'u', '客户', 'a b', 'a\nb', '\x00', '']
  derived = {tuple(seeds.derive_seed(0, 'x', 1, name)) for name in ids}
  assert len(derived) == len(ids)


def test_bits_of_clients_seeds_are_fair():
  """Chi-square of 64 bits over 4,000 clients; false-alarm rate 1e-6."""
  words = np.stack(
    [seeds.derive_seed(0, 'train', 1, f'c{i}') for i in range(4000)]
  )
  ones = np.unpackbits(words.view(np.uint8), axis=1).sum(axis=0)
  statistic = np.sum((ones - 2000.0) ** 2 / 1000)
  assert statistic < stats.chi2.isf(1e-6, 64)


def test_a_negative_seed_is_refused():
  with pytest.raises(ValueError, match='seed must be >= 0, got -1'):
    seeds.derive_seed(-1, 'train')
  with pytest.raises(ValueError, match='seed must be >= 0, got -1'):
    seeds.numpy_generator(-1, 'train')
