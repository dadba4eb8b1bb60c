"""Options of the TFF runtime, without an import of TFF."""

import dataclasses

from tff_algos.core import checks


@dataclasses.dataclass(frozen=True)
class TffConfig:
  """Options of the TFF runtime.

  Attributes:
    workers: Addresses `host:port` of running TFF workers, among which each
      cohort is divided; none starts a worker process on this machine.
    start_timeout_seconds: Maximal wait for a worker to answer, > 0, at
      most a day.
    max_concurrent_calls: Clients computed at a time by the worker process of
      this machine; -1 for TFF's default.
  """

  workers: tuple[str, ...] = ()
  start_timeout_seconds: float = 30.0
  max_concurrent_calls: int = -1

  def __post_init__(self):
    checks.check_timeout('start_timeout_seconds', self.start_timeout_seconds)
    checks.check_int(
      'max_concurrent_calls', self.max_concurrent_calls, minimum=-1
    )
    for address in self.workers:
      checks.check_address('worker address', address)
