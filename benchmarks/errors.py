"""What can go wrong in a benchmark, and how a program ends then."""

import signal
import sys
from collections.abc import Callable


class BenchmarkError(Exception):
  """A contender failed, or computes something else than the others."""


def exit_status(work: Callable[[], None]) -> int:
  """Runs the work of a program; says what went wrong, returns its exit status.

  Asked to end, the program first ends what it started, as on Ctrl-C.
  """
  signal.signal(signal.SIGTERM, signal.default_int_handler)
  try:
    work()
  except BenchmarkError as error:
    print(error, file=sys.stderr)
    return 1
  except KeyboardInterrupt:
    return 130
  return 0
