"""A run that is killed after its training, started again, and ends equally."""

import pathlib
import signal

import pytest

from tests.testing import programs

_CONFIG = 'configs/fed_soft/digits.py:smoke'
# Folders and files whose bytes depend on the run alone. Logs of TensorBoard and
# records of programs have times.
_COMPARED = ('checkpoints', 'evaluation', 'export', 'metrics.csv', 'report')


def _run(launcher, folder: pathlib.Path, place: str = ''):
  return launcher.run(
    'tests.testing.killed_program',
    f'--config={_CONFIG}',
    f'--workdir={folder}',
    PROGRAM='binaries.run',
    FOLDER=str(folder),
    KILL_AT=place,
    QUICK='1',
  )


def _content(folder: pathlib.Path) -> dict[str, bytes]:
  return {
    str(path.relative_to(folder)): path.read_bytes()
    for name in _COMPARED
    for path in sorted([folder / name, *(folder / name).rglob('*')])
    if path.is_file()
  }
