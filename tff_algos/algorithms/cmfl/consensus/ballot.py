"""Ballot: parameters of a vote, common to all members."""

import dataclasses
import functools

from tff_algos.algorithms.cmfl.consensus import quorum
from tff_algos.core import checks, errors, seeds


@dataclasses.dataclass(frozen=True)
class Limits:
  """When a committee gives up.

  Attributes:
    max_views: How many primaries may try, >= 1. The paper has no bound; here
      the update is skipped afterwards.
    timeout_seconds: How long the first view waits, > 0; view v, from 0, waits
      v + 1 times as long, so that any delay is outwaited if `max_views` allows.
  """

  max_views: int = 20
  timeout_seconds: float = 1.0

  def __post_init__(self):
    checks.check_int('max_views', self.max_views, minimum=1)
    checks.check_positive('timeout_seconds', self.timeout_seconds)


@dataclasses.dataclass(frozen=True)
class Ballot:
  """One vote of one committee.

  Attributes:
    committee: Different ids, at least one.
    instance: Names the vote, such as `'round 7, selection'`. Two votes of the
      same members must have different names.
    seed: Of the draws of primaries, >= 0; known to all, so nobody chooses.
    limits: When to give up.
  """

  committee: tuple[str, ...]
  instance: str
  seed: int
  limits: Limits = Limits()

  def __post_init__(self):
    if not self.committee or len({*self.committee}) != len(self.committee):
      raise errors.ConfigError(
        f'committee must be different ids, at least one, got {self.committee!r}'
      )

  @property
  def required_replies(self) -> int:
    """Returns how many replicates must reply alike."""
    return quorum.required_replies(len(self.committee))

  @property
  def required_votes(self) -> int:
    """Returns how many votes prove a decision."""
    return quorum.required_votes(len(self.committee))

  @property
  def majority(self) -> int:
    """Returns how many members can end a view."""
    return quorum.majority(len(self.committee))

  @property
  def tolerated_faults(self) -> int:
    """Returns how many malicious or dead members do no harm."""
    return quorum.tolerated_faults(len(self.committee))

  def primary(self, view: int) -> str:
    """Returns the primary of a view, drawn uniformly and independently."""
    size = len(self.committee)
    return self.committee[_draw(self.seed, view, self.instance, size)]


@functools.lru_cache(maxsize=4096)
def _draw(seed: int, view: int, instance: str, size: int) -> int:
  """Returns a number below `size`; every member asks at every message."""
  generator = seeds.numpy_generator(seed, 'consensus_primary', view, instance)
  return int(generator.integers(size))
