import numpy as np
import pytest

from tff_algos.algorithms.cmfl import committee, committee_roles
from tff_algos.core import algorithm, errors

_SIZES = np.array([3, 0, 5, 1, 0, 2, 2, 9, 4, 0])
_POPULATION = algorithm.Population(tuple('abcdefghij'), _SIZES)
_CONFIG = committee.CommitteeConfig(active_rate=1.0, committee_rate=1 / 3)
_NOBODY = np.zeros(10, bool)


def _assign(is_member=_NOBODY, drawn_in=1, round_num=1, population=_POPULATION):
  return committee_roles.assign(
    population, is_member, drawn_in, round_num, 0, _CONFIG, 0.5
  )


def test_everybody_with_examples_has_one_role():
  """7 of 10: C = 2 (2.33), n = 5 (4.67), and 2 of 5 are averaged."""
  cast = _assign()
  assert (len(cast.members), len(cast.training)) == (2, 5)
  assert cast.active.tolist() == [0, 2, 3, 5, 6, 7, 8]
  np.testing.assert_array_equal(cast.active[cast.roles.is_member], cast.members)
  assert set(cast.roles.committee_size) == {2}
  assert set(cast.roles.num_selected) == {2}
  assert set(cast.roles.server_learning_rate) == {0.5}
  assert [leaf.dtype for leaf in cast.roles] == [
    spec.dtype.as_numpy_dtype for spec in committee_roles.SPEC
  ]


def test_a_committee_that_was_drawn_is_drawn_again_until_it_agrees():
  first = _assign().members
  for round_num in range(2, 6):
    again = _assign(drawn_in=1, round_num=round_num).members
    np.testing.assert_array_equal(again, first)
  others = {tuple(_assign(drawn_in=n, round_num=n).members) for n in range(9)}
  assert len(others) > 1


def test_the_elected_are_the_committee():
  is_member = np.isin(np.arange(10), [3, 8])
  cast = _assign(is_member, round_num=4)
  assert cast.members.tolist() == [3, 8]
  assert not {3, 8} & {*cast.training}


def test_one_client_is_too_few():
  population = algorithm.Population(('a',), np.array([4]))
  with pytest.raises(errors.ConfigError, match='there are 1 clients'):
    _assign(_NOBODY[:1], population=population)


def test_a_single_client_with_examples_has_nobody_to_score():
  population = algorithm.Population(('a', 'b', 'c'), np.array([0, 4, 0]))
  cast = _assign(_NOBODY[:3], population=population)
  assert cast.members.tolist() == [1]
  assert cast.training.size == 0


def test_roles_are_sized_by_the_available_clients():
  some = _POPULATION._replace(is_available=np.arange(10) < 6)
  fewer = _POPULATION._replace(num_examples=some.available_examples)
  for found, expected in zip(
    _assign(_NOBODY, population=some),
    _assign(_NOBODY, population=fewer),
    strict=True,
  ):
    np.testing.assert_equal(found, expected)
