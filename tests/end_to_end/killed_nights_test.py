"""Nights that are killed, started again, and end in the same files."""

import pathlib
import shutil
import signal

import numpy as np
import pytest

from tests.testing import nights

_PROGRAM = 'tests.testing.killed_nightly'
_NUM_KILLS = 50
_MAX_DELAY_SECONDS = 0.3


class _Production:
  """A production folder and its raw files.

  All nights of the test read the same raw files, whose path is in the config.
  """

  def __init__(self, launcher, raw: pathlib.Path, folder: pathlib.Path):
    self.folder = folder
    self._raw = raw
    self._launcher = launcher

  def copy(self, folder: pathlib.Path) -> '_Production':
    shutil.copytree(self.folder, folder, symlinks=True)
    return _Production(self._launcher, self._raw, folder)

  def run(self, date: str = nights.SECOND, **environment):
    """Runs a night, maybe to its kill; returns the program."""
    flags = nights.flags(self._raw, self.folder, date)
    return self._launcher.run(
      _PROGRAM, *flags, FOLDER=str(self.folder), **environment
    )

  def content(self) -> dict[str, bytes | str]:
    return nights.content(self.folder)


@pytest.fixture(name='first', scope='module')
def make_first(launcher, tmp_path_factory):
  """The production after its first night, with raw files for the second."""
  folder = tmp_path_factory.mktemp('nights')
  raw = folder / 'raw'
  nights.write_day(raw, nights.FIRST, 'abyz')
  production = _Production(launcher, raw, folder / 'production')
  program = production.run(nights.FIRST)
  assert program.returncode == 0, program.stderr
  nights.write_day(raw, nights.SECOND, 'abcyz')
  return production


@pytest.fixture(name='undisturbed', scope='module')
def make_undisturbed(first, tmp_path_factory):
  """The second night, and the number of its changes of the disk."""
  folder = tmp_path_factory.mktemp('undisturbed')
  night = first.copy(folder / 'night')
  program = night.run(COUNT=str(folder / 'count'))
  assert program.returncode == 0, program.stderr
  return night.content(), int((folder / 'count').read_text())


def _assert_same(found, expected, places=()) -> None:
  differing = [
    name
    for name in sorted({*found, *expected})
    if found.get(name) != expected.get(name)
  ]
  assert not differing, places


@pytest.mark.slow
def test_killed_between_its_steps_it_ends_in_the_same_files(
  first, undisturbed, tmp_path
):
  """Before the link of the run, its parent's states, and the released files."""
  night = first.copy(tmp_path / 'night')
  for place in ('os.symlink', 'checkpoints/.writing', '/cluster_models/2'):
    program = night.run(KILL_AT=place)
    assert program.returncode == -signal.SIGKILL, (place, program.stderr)
  program = night.run()
  assert program.returncode == 0, program.stderr
  _assert_same(night.content(), undisturbed[0])


@pytest.mark.verify
def test_killed_at_random_it_ends_in_the_same_files(
  first, undisturbed, tmp_path
):
  """50 kills, half of them between two changes of the disk."""
  expected, num_changes = undisturbed
  generator = np.random.default_rng(21)
  num_kills = num_nights = 0
  while num_kills < _NUM_KILLS:
    num_nights += 1
    night = first.copy(tmp_path / f'night_{num_nights}')
    program = None
    places = []
    while program is None or program.returncode:
      place, delay = '', 0.0
      if num_kills < _NUM_KILLS:
        place = str(generator.integers(1, num_changes + 1))
        delay = generator.choice([0, generator.uniform(0, _MAX_DELAY_SECONDS)])
      places.append((place, delay))
      program = night.run(KILL_AT=place, DELAY=str(delay))
      assert program.returncode in (0, -signal.SIGKILL), program.stderr
      num_kills += program.returncode != 0
    _assert_same(night.content(), expected, places)
    shutil.rmtree(night.folder)
