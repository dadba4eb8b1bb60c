"""Refusals, spread over time."""

import threading
import time

_PER_SECOND = 50


class Pace:
  """Times at which the bad requests of one API are refused.

  Whoever floods a server with bad requests and waits for the answers then
  leaves it to others. Few wait at a time, so that they hold no place that a
  good request needs; others are refused at once.
  """

  def __init__(self, max_waiting: int):
    self._max_seconds = (max_waiting + 0.5) / _PER_SECOND  # Rounding.
    self._next = 0.0
    self._lock = threading.Lock()

  def seconds(self) -> float:
    """Returns how long the refusal of a request is to wait."""
    now = time.monotonic()
    with self._lock:
      start = max(self._next, now)
      if start - now > self._max_seconds:
        return 0.0
      self._next = start + 1 / _PER_SECOND
    return start - now
