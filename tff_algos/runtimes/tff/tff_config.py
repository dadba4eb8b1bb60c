"""Options of the TFF runtime; reading them needs no TFF."""

import dataclasses

from tff_algos.core import checks


@dataclasses.dataclass(frozen=True)
class TffConfig:
  """Options of the TFF runtime.

  Attributes:
    workers: Addresses `host:port` of TFF workers that run already, to share
      each cohort; none starts a worker process on this machine.
    start_timeout_seconds: How long a worker may take to answer, > 0.
    max_concurrent_calls: Clients that our own worker computes at a time; -1
      lets TFF decide.
  """

  workers: tuple[str, ...] = ()
  start_timeout_seconds: float = 30.0
  max_concurrent_calls: int = -1

  def __post_init__(self):
    checks.check_positive('start_timeout_seconds', self.start_timeout_seconds)
    checks.check_int(
      'max_concurrent_calls', self.max_concurrent_calls, minimum=-1
    )
    for address in self.workers:
      checks.check_address('worker address', address)
