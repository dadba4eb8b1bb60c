"""Quorum sizes of a committee, and the faults that they tolerate.

Che, Li, Chen, He and Zheng (CMFL, TPDS 2022), section 4.2.4: the primary needs
floor(C / 2) + 1 identical replies of replicates, of which a committee of C has
C - 1. That cannot be met for C < 3, so there C = 1 agrees with itself and
C = 2 needs both.
"""


def required_replies(committee_size: int) -> int:
  """Returns how many replicates must reply alike; >= 0.

  Args:
    committee_size: C, >= 1. Of 2 members the replicate must agree with the
      primary, whose own vote counts there.
  """
  if committee_size <= 2:
    return committee_size - 1
  return committee_size // 2 + 1


def required_votes(committee_size: int) -> int:
  """Returns how many votes prove a decision: the replicates' and the primary's.

  So many malicious members can make the others accept a lie; fewer can only
  keep the committee from agreeing.
  """
  return required_replies(committee_size) + 1


def majority(committee_size: int) -> int:
  """Returns how many members, oneself included, can end a view."""
  return committee_size // 2 + 1


def tolerated_faults(committee_size: int) -> int:
  """Returns f: with so many malicious or dead members the rest still agrees.

  The primary does not count among its replicates, so the honest members alone
  must be one more than the replies: f = ceil(C / 2) - 2, and 0 up to C = 4.
  """
  return committee_size - required_votes(committee_size)
