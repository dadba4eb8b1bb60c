"""Deferred handling of Ctrl-C and SIGTERM during TensorFlow calls.

An exception that a signal handler raises inside TensorFlow or TFF may be
swallowed, be mistaken for another error, or abort the process.
"""

import contextlib
import signal
import threading
from collections.abc import Generator

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Whether a block of `held` runs.
_is_held = False


@contextlib.contextmanager
def held() -> Generator[None]:
  """Defers Ctrl-C and SIGTERM to the block's end; a second acts at once.

  Does nothing inside another such block, nor outside the main thread, which
  alone receives signals.
  """
  global _is_held
  is_main = threading.current_thread() is threading.main_thread()
  if _is_held or not is_main:
    yield
    return
  received: list[int] = []
  handlers = {signum: signal.getsignal(signum) for signum in _SIGNALS}

  def restore() -> None:
    for signum, handler in handlers.items():
      signal.signal(signum, handler)

  def hold(signum, unused_frame) -> None:
    received.append(signum)
    if len(received) > 1:
      restore()
      signal.raise_signal(signum)

  for signum in _SIGNALS:
    signal.signal(signum, hold)
  try:
    _is_held = True
    yield
  finally:
    _is_held = False
    restore()
    if len(received) == 1:  # Also if the block fails.
      signal.raise_signal(received[0])


def take_back() -> None:
  """Restores Python's signal handlers after a library has replaced them.

  TensorFlow's coordination service handles SIGTERM as a preemption notice
  without any effect.
  """
  if threading.current_thread() is threading.main_thread():
    for signum in _SIGNALS:
      signal.signal(signum, signal.getsignal(signum))
