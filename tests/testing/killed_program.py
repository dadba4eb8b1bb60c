"""A program that is ended by SIGKILL when it changes the disk.

Environment:
  PROGRAM  Its module, such as `binaries.nightly`.
  FOLDER   Only changes in this folder count.
  KILL_AT  The change before which the process is killed: its number, from 1, or
           a part of its text, such as `os.rename .../export`; empty for none.
  DELAY    Seconds from that change to the kill; 0 by default.
  COUNT    File that receives the number of changes at the end.
  QUICK    If set, the gate loads no bundle in a process with TensorFlow alone,
           and a run asks no server.

Pictures are blank.
"""

import contextlib
import os
import pathlib
import runpy
import signal
import sys
import threading

from tests.testing import unrendered

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
# Events of shutil.rmtree are relative to a folder that is open.
_RELATIVE = ('os.remove', 'os.rmdir')
_CHANGES = (
  *('open', 'os.chmod', 'os.link', 'os.mkdir', 'os.rename', 'os.symlink'),
  *('os.truncate', 'os.utime', *_RELATIVE),
)


class _Killer:
  """Audit hook that counts changes, and kills the process at one of them."""

  def __init__(self, folder: str, place: str, delay: float):
    self.count = 0
    self._folder = folder
    self._place = place
    self._delay = delay
    self._lock = threading.Lock()

  def __call__(self, event: str, arguments: tuple) -> None:
    if event not in _CHANGES:
      return
    paths = [os.fsdecode(one) for one in arguments if _is_path(one)]
    is_inside = any(path.startswith(self._folder) for path in paths)
    is_relative = event in _RELATIVE and arguments[-1] != -1
    if not (is_inside or is_relative):
      return
    if event == 'open' and not arguments[2] & _WRITES:
      return
    with self._lock:
      self.count += 1
      number = self.count
    if self._is_place(number, ' '.join((event, *paths))):
      if self._delay:
        threading.Timer(self._delay, _kill).start()
      else:
        _kill()

  def _is_place(self, number: int, text: str) -> bool:
    if self._place.isdecimal():
      return number == int(self._place)
    return bool(self._place) and self._place in text


def _is_path(argument) -> bool:
  return isinstance(argument, (str, bytes, os.PathLike))


def _kill() -> None:
  os.kill(os.getpid(), signal.SIGKILL)


def _main() -> None:
  from tff_algos.experiments import served_prediction
  from tff_algos.experiments.production import gating

  environment = os.environ
  if 'QUICK' in environment:
    gating._check_plainly = lambda *_: ({}, [])
    served_prediction.asking = lambda _: contextlib.nullcontext(str)
  killer = _Killer(
    environment['FOLDER'],
    environment.get('KILL_AT', ''),
    float(environment.get('DELAY', '0')),
  )
  sys.addaudithook(killer)
  try:
    with unrendered.blank_pictures():
      runpy.run_module(
        environment['PROGRAM'], run_name='__main__', alter_sys=True
      )
  finally:
    if 'COUNT' in environment:
      pathlib.Path(environment['COUNT']).write_text(str(killer.count))


if __name__ == '__main__':
  _main()
