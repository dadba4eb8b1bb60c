"""A binary that ends in the way that the environment variable ENDING names."""

import errno
import functools
import os
import signal
import sys
import time

from absl import logging

from binaries import command
from tff_algos.core import errors


def _wait_for_signal() -> None:
  try:
    os.write(1, b'ready\n')  # Whole, whenever the signal comes.
    time.sleep(60)
  finally:
    print('cleaned up')


class _Swallows:
  """An exception that is raised while it is collected goes nowhere."""

  def __init__(self, signum: int):
    self._signum = signum

  def __del__(self):
    signal.raise_signal(self._signum)


def _swallow(signum: int) -> None:
  _Swallows(signum)
  time.sleep(60)
  print('nothing came')


def _user_error() -> None:
  raise errors.DataError('no such thing; take another')


def _busy() -> None:
  raise errors.WorkdirBusyError('another run is at work; wait for it')


def _not_approved() -> None:
  raise errors.NotApprovedError('accuracy fell by 9 points; look at gate.json')


def _bug() -> None:
  raise RuntimeError('a bug of ours')


def _full_disk() -> None:
  raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), 'config.json')


def _missing_file() -> None:
  open('/no/such/file')


def _missing_extra() -> None:
  sys.modules['apache_beam'] = None
  import apache_beam  # noqa: F401


def _talk() -> None:
  logging.info('our own words')
  logging.warning('our own warning')
  print('the result')


def _print_to_nobody() -> None:
  reader, writer = os.pipe()
  os.close(reader)
  os.dup2(writer, 1)
  print('the result', flush=True)


_ENDINGS = {
  'print_to_nobody': _print_to_nobody,
  'user_error': _user_error,
  'busy': _busy,
  'not_approved': _not_approved,
  'bug': _bug,
  'full_disk': _full_disk,
  'missing_extra': _missing_extra,
  'missing_file': _missing_file,
  'swallow_ctrl_c': functools.partial(_swallow, signal.SIGINT),
  'swallow_sigterm': functools.partial(_swallow, signal.SIGTERM),
  'wait': _wait_for_signal,
  'talk': _talk,
}


def main() -> None:
  ending = os.environ['ENDING']
  if ending == 'ctrl_c_while_importing':
    signal.raise_signal(signal.SIGINT)
  command.run(_ENDINGS[ending])


if __name__ == '__main__':
  main()
