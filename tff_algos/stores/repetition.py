"""Repetition of a request by a thread."""

import contextlib
import threading
from collections.abc import Callable, Generator

from absl import logging

from tff_algos.core import errors


@contextlib.contextmanager
def repeated(function: Callable[[], object], seconds: float) -> Generator[None]:
  """Calls a function again and again by a thread within the block.

  A UserError or OSError of it, as of a full disk, is logged, and it is called
  again.

  Args:
    function: The function.
    seconds: Time between two calls; the first is after one such time.
  """
  done = threading.Event()

  def repeat():
    while not done.wait(seconds):
      try:
        function()
      except (errors.UserError, OSError) as error:
        logging.warning('%s', error)

  thread = threading.Thread(target=repeat, daemon=True)
  thread.start()
  try:
    yield
  finally:
    done.set()
    thread.join()
