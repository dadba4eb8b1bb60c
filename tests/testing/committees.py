"""Committees that vote, with primaries of our choice."""

from collections.abc import Sequence

from tff_algos.algorithms.cmfl.consensus import (
  authentication,
  ballot,
  endpoint,
  statements,
)

TRUTH = statements.state(['c1', 'c2'], 'the result')


def names(size: int) -> tuple[str, ...]:
  return tuple(f'm{number}' for number in range(size))


def open_ballot(
  size: int, primaries: Sequence[str] = (), **limits
) -> ballot.Ballot:
  """Returns a vote whose first primaries are these."""
  for seed in range(100_000):
    opened = ballot.Ballot(names(size), 'r1', seed, ballot.Limits(**limits))
    drawn = [opened.primary(view) for view in range(len(primaries))]
    if drawn == [*primaries]:
      return opened
  raise ValueError(f'no seed draws {primaries}')


def keyring(opened: ballot.Ballot, member: str) -> authentication.Keyring:
  keys = authentication.simulated_keys(opened.committee, opened.seed)
  return authentication.Keyring(
    member, opened.committee, keys[member], opened.instance
  )


def endpoints(opened: ballot.Ballot) -> dict[str, endpoint.Endpoint]:
  """Returns the endpoints of members that computed the same."""
  keys = authentication.simulated_keys(opened.committee, opened.seed)
  return {
    member: endpoint.Endpoint(opened, member, TRUTH, keys[member])
    for member in opened.committee
  }
