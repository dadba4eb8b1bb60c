"""What all know before a vote."""

import collections

import pytest

from tff_algos.algorithms.cmfl.consensus import ballot
from tff_algos.core import errors

_COMMITTEE = ('a', 'b', 'c', 'd', 'e')


def test_primaries_are_drawn_uniformly():
  """Chi-squared of 2000 draws, 4 degrees: fails by chance never (fixed seed).

  A uniform draw exceeds 23.5 for one seed in 10,000.
  """
  opened = ballot.Ballot(_COMMITTEE, 'r1', seed=0)
  counts = collections.Counter(opened.primary(view) for view in range(2000))
  assert {*counts} == {*_COMMITTEE}
  assert sum((count - 400) ** 2 / 400 for count in counts.values()) < 23.5


def test_primaries_depend_on_the_vote_and_on_the_seed_alone():
  def primaries(instance, seed):
    opened = ballot.Ballot(_COMMITTEE, instance, seed)
    return [opened.primary(view) for view in range(20)]

  assert primaries('r1', 0) == primaries('r1', 0)
  assert primaries('r1', 0) != primaries('r2', 0)
  assert primaries('r1', 0) != primaries('r1', 1)


@pytest.mark.parametrize('committee', [(), ('a', 'a')])
def test_a_committee_has_distinct_ids(committee):
  with pytest.raises(errors.ConfigError, match='committee must be distinct'):
    ballot.Ballot(committee, 'r1', seed=0)


@pytest.mark.parametrize(
  ('limits', 'text'),
  [
    ({'max_views': 0}, 'max_views must be an integer >= 1, got 0'),
    ({'timeout_seconds': 0.0}, 'timeout_seconds must be a finite number > 0'),
  ],
)
def test_limits_are_checked(limits, text):
  with pytest.raises(errors.ConfigError, match=text):
    ballot.Limits(**limits)
