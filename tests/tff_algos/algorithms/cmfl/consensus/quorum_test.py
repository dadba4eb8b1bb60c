"""The table of small committees, by hand, and what the numbers must do."""

import pytest

from tff_algos.algorithms.cmfl.consensus import quorum


@pytest.mark.parametrize(
  ('size', 'replies', 'votes', 'majority', 'faults'),
  [
    (1, 0, 1, 1, 0),
    (2, 1, 2, 2, 0),
    (3, 2, 3, 2, 0),
    (4, 3, 4, 3, 0),
    (5, 3, 4, 3, 1),
    (6, 4, 5, 4, 1),
    (7, 4, 5, 4, 2),
    (43, 22, 23, 22, 20),
    (142, 72, 73, 72, 69),
  ],
)
def test_by_hand(size, replies, votes, majority, faults):
  assert quorum.required_replies(size) == replies
  assert quorum.required_votes(size) == votes
  assert quorum.majority(size) == majority
  assert quorum.tolerated_faults(size) == faults


@pytest.mark.parametrize('size', range(1, 60))
def test_numbers_fit_each_other(size):
  faults = quorum.tolerated_faults(size)
  honest = size - faults
  # The honest alone can reply and change views; the others can do neither.
  assert size == 1 or quorum.required_replies(size) <= honest - 1
  assert quorum.majority(size) <= honest
  assert faults < quorum.majority(size) <= quorum.required_votes(size)
  # One fault more, and the honest members are too few.
  assert quorum.required_votes(size) > honest - 1
