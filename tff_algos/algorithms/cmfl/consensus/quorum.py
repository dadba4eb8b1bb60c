"""Quorum sizes of a committee, and the faults that they tolerate.

Che, Li, Chen, He and Zheng (CMFL, TPDS 2022), section 4.2.4: the primary needs
floor(C / 2) + 1 identical replies of the C - 1 replicates. That is impossible
for C < 3: here C = 1 needs no reply, and C = 2 needs the only replicate's.
"""


def required_replies(committee_size: int) -> int:
  """Returns the number of identical replies that the primary needs, >= 0.

  Args:
    committee_size: C, >= 1.
  """
  if committee_size <= 2:
    return committee_size - 1
  return committee_size // 2 + 1


def required_votes(committee_size: int) -> int:
  """Returns how many votes prove a decision: the replicates' and the primary's.

  That many malicious members can make the others accept a false statement;
  fewer can only prevent agreement.
  """
  return required_replies(committee_size) + 1


def majority(committee_size: int) -> int:
  """Returns the number of members that can end a view."""
  return committee_size // 2 + 1


def tolerated_faults(committee_size: int) -> int:
  """Returns f: with f malicious or crashed members the others still agree.

  The primary is not one of its replicates, so there must be one more honest
  member than required replies: f = ceil(C / 2) - 2, and 0 up to C = 4.
  """
  return committee_size - required_votes(committee_size)
