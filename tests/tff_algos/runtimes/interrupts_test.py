import ctypes
import os
import signal
import threading
import time

import pytest

from tff_algos.runtimes import interrupts


def _handlers():
  return [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]


def test_ctrl_c_comes_at_the_end_of_the_block():
  before = _handlers()
  steps = []
  with pytest.raises(KeyboardInterrupt):
    with interrupts.held():
      signal.raise_signal(signal.SIGINT)
      steps.append('inside')
    steps.append('after')
  assert steps == ['inside']
  assert _handlers() == before


def test_second_ctrl_c_acts_at_once():
  before = _handlers()
  steps = []
  with pytest.raises(KeyboardInterrupt):
    with interrupts.held():
      signal.raise_signal(signal.SIGINT)
      steps.append('first')
      signal.raise_signal(signal.SIGINT)
      steps.append('second')
  assert steps == ['first']
  assert _handlers() == before


def test_signal_from_outside_while_the_block_waits():
  sender = threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT])
  with pytest.raises(KeyboardInterrupt):
    with interrupts.held():
      sender.start()
      time.sleep(0.3)
      has_ended = True
  assert has_ended
  sender.join()


def test_sigterm_reaches_its_own_handler_later():
  received = []
  before = signal.signal(
    signal.SIGTERM, lambda signum, _: received.append(signum)
  )
  try:
    with interrupts.held():
      signal.raise_signal(signal.SIGTERM)
      assert not received
    assert received == [signal.SIGTERM]
  finally:
    signal.signal(signal.SIGTERM, before)


def test_blocks_inside_blocks():
  steps = []
  with pytest.raises(KeyboardInterrupt):
    with interrupts.held():
      with interrupts.held():
        signal.raise_signal(signal.SIGINT)
        steps.append('inner')
      steps.append('outer')
    steps.append('after')
  assert steps == ['inner', 'outer']
  with pytest.raises(KeyboardInterrupt):
    with interrupts.held():
      with interrupts.held():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        steps.append('second')
  assert steps == ['inner', 'outer']


def test_error_in_the_block_comes_out_and_handlers_come_back():
  before = _handlers()
  with pytest.raises(ZeroDivisionError):
    with interrupts.held():
      raise ZeroDivisionError
  assert _handlers() == before


def test_a_signal_outlasts_an_error_of_the_block():
  with pytest.raises(KeyboardInterrupt):
    with interrupts.held():
      signal.raise_signal(signal.SIGINT)
      raise ZeroDivisionError


def test_block_without_a_signal_does_nothing():
  with interrupts.held():
    pass


def test_other_threads_are_left_alone():
  before = _handlers()
  seen = []

  def run():
    with interrupts.held():
      seen.append(_handlers())

  thread = threading.Thread(target=run)
  thread.start()
  thread.join()
  assert seen == [before]


def test_signals_that_a_library_has_taken_are_taken_back():
  received = []
  before = signal.signal(
    signal.SIGTERM, lambda signum, _: received.append(signum)
  )
  # As C code does: Python does not know of it.
  libc = ctypes.CDLL(None, use_errno=True)
  libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
  try:
    libc.signal(signal.SIGTERM, 1)  # SIG_IGN
    signal.raise_signal(signal.SIGTERM)
    assert not received
    interrupts.take_back()
    signal.raise_signal(signal.SIGTERM)
    assert received == [signal.SIGTERM]
  finally:
    signal.signal(signal.SIGTERM, before)
