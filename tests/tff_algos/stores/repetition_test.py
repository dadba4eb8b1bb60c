import errno
import threading

import pytest

from tff_algos.core import errors
from tff_algos.stores import repetition


@pytest.mark.parametrize(
  'error',
  [
    errors.InfrastructureError('the store is away'),
    OSError(errno.ENOSPC, 'No space left on device'),
  ],
)
def test_a_function_is_called_again_also_after_an_error_until_the_end(error):
  calls, often = [], threading.Event()

  def call():
    calls.append(None)
    if len(calls) == 3:
      often.set()
    raise error

  before = set(threading.enumerate())
  with repetition.repeated(call, 0.001):
    assert often.wait(60)
  count = len(calls)
  assert not set(threading.enumerate()) - before
  assert len(calls) == count


def test_nothing_is_called_before_its_time():
  calls = []
  with repetition.repeated(lambda: calls.append(None), 1000):
    pass
  assert not calls
