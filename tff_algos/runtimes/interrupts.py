"""Lets Ctrl-C wait until TensorFlow has finished what it is doing.

An exception that a signal raises in the midst of TensorFlow or TFF may be
swallowed, be taken for another error, or abort the process.
"""

import contextlib
import signal
import threading
from collections.abc import Generator

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def held() -> Generator[None]:
  """Holds Ctrl-C and SIGTERM back for the block; a second one acts at once.

  Does nothing outside the main thread, which alone receives signals.
  """
  if threading.current_thread() is not threading.main_thread():
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
    yield
  finally:
    restore()
  if received:
    signal.raise_signal(received[0])


def take_back() -> None:
  """Gives Python the signals again that a library has taken.

  TensorFlow's coordination service takes SIGTERM for a notice of preemption,
  and does nothing about it.
  """
  if threading.current_thread() is threading.main_thread():
    for signum in _SIGNALS:
      signal.signal(signum, signal.getsignal(signum))
