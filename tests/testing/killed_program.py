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
import sys

from tests.testing import forks, unrendered


def _main() -> None:
  from tff_algos.experiments import served_prediction
  from tff_algos.experiments.production import gating

  environment = os.environ
  if 'QUICK' in environment:
    gating._check_plainly = lambda *_: ({}, [])
    served_prediction.asking = lambda _: contextlib.nullcontext(str)
  killer = forks.Killer(
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
