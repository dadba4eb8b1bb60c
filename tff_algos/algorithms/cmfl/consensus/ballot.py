"""Ballot: parameters of a vote, common to all members."""

import dataclasses
import functools

from tff_algos.core import checks, errors, seeds


@dataclasses.dataclass(frozen=True)
class Limits:
  """Limits of a vote.

  Attributes:
    max_views: Maximum number of views, each with its primary, >= 1; then the
      update is skipped. The paper has no bound.
    timeout_seconds: Timeout of the first view, > 0; that of view v, from 0, is
      v + 1 times as long, so that it exceeds any delay if `max_views` allows.
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
    committee: Distinct ids, at least one.
    instance: Name of the vote, such as `'run 3f9a, round 7, selection'`. Two
      votes with the same keys must have different names: it names the run too,
      unless each run has its own keys.
    seed: Of the draws of primaries, >= 0; public, so that no member chooses.
    limits: Number of views and timeout.
  """

  committee: tuple[str, ...]
  instance: str
  seed: int
  limits: Limits = Limits()

  def __post_init__(self):
    if not self.committee or len({*self.committee}) != len(self.committee):
      raise errors.ConfigError(
        f'committee must be distinct ids, at least one, got {self.committee!r}'
      )

  def primary(self, view: int) -> str:
    """Returns the primary of a view, drawn uniformly and independently."""
    size = len(self.committee)
    return self.committee[_draw(self.seed, view, self.instance, size)]


@functools.lru_cache(maxsize=4096)
def _draw(seed: int, view: int, instance: str, size: int) -> int:
  """Returns a number below `size`; cached, as members need it per message."""
  generator = seeds.numpy_generator(seed, 'consensus_primary', view, instance)
  return int(generator.integers(size))
