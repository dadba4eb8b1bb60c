"""Nights that are killed, started again, and end in the same files."""

import pathlib
import shutil
import signal
from typing import NamedTuple

import numpy as np
import pytest

from tests.testing import nights

_PROGRAM = 'tests.testing.killed_program'
_DAYS = {nights.FIRST: 'abyz', nights.SECOND: 'bcyz', nights.THIRD: 'abcdyz'}
_MAX_DELAY_SECONDS = 0.3


class _Production:
  """A production folder and its raw files, whose path is in the config."""

  def __init__(self, launcher, raw: pathlib.Path, folder: pathlib.Path):
    self.folder = folder
    self._raw = raw
    self._launcher = launcher

  def copy(self, folder: pathlib.Path) -> '_Production':
    if self.folder.exists():
      shutil.copytree(self.folder, folder, symlinks=True)
    return _Production(self._launcher, self._raw, folder)

  def run(self, date: str, **environment):
    """Runs a night, maybe to its kill; returns the program."""
    return self._launcher.run(
      _PROGRAM,
      *nights.flags(self._raw, self.folder, date),
      '--keep_versions=2',
      PROGRAM='binaries.nightly',
      FOLDER=str(self.folder),
      QUICK='1',
      **environment,
    )

  def content(self) -> dict[str, bytes | str]:
    return nights.content(self.folder)


class _Night(NamedTuple):
  """A night to disturb.

  Attributes:
    date: Its date.
    before: The production before it.
    expected: The content of the production after it, undisturbed.
    num_changes: Number of its changes of the disk.
  """

  date: str
  before: _Production
  expected: dict[str, bytes | str]
  num_changes: int


@pytest.fixture(name='night', scope='module')
def make_night(request, launcher, tmp_path_factory):
  """The night of the date in `request.param`, after those before it."""
  folder = tmp_path_factory.mktemp('nights')
  raw = folder / 'raw'
  before = _Production(launcher, raw, folder / 'before')
  for date, clients in _DAYS.items():
    nights.write_day(raw, date, clients)
    if date == request.param:
      break
    program = before.run(date)
    assert program.returncode == 0, program.stderr
  undisturbed = before.copy(folder / 'undisturbed')
  program = undisturbed.run(request.param, COUNT=str(folder / 'count'))
  assert program.returncode == 0, program.stderr
  num_changes = int((folder / 'count').read_text())
  return _Night(request.param, before, undisturbed.content(), num_changes)


def _assert_same(found, expected, places) -> None:
  differing = [
    name
    for name in sorted({*found, *expected})
    if found.get(name) != expected.get(name)
  ]
  assert not differing, places


@pytest.mark.verify
@pytest.mark.parametrize('night', [nights.SECOND], indirect=True)
def test_killed_between_its_steps_it_ends_in_the_same_files(night, tmp_path):
  """Before the link of the run, and before the release."""
  production = night.before.copy(tmp_path / 'production')
  places = ('os.symlink', '/cluster_models/2')
  for place in places:
    program = production.run(night.date, KILL_AT=place)
    assert program.returncode == -signal.SIGKILL, (place, program.stderr)
  program = production.run(night.date)
  assert program.returncode == 0, program.stderr
  _assert_same(production.content(), night.expected, places)


@pytest.mark.verify
@pytest.mark.parametrize(
  ('night', 'num_kills'),
  # The last one removes old versions.
  [(nights.FIRST, 10), (nights.SECOND, 30), (nights.THIRD, 10)],
  indirect=['night'],
)
def test_killed_at_random_it_ends_in_the_same_files(night, num_kills, tmp_path):
  """Half of the kills are at a change of the disk, half between two of them."""
  generator = np.random.default_rng(num_kills)
  num_left = num_kills
  while num_left:
    production = night.before.copy(tmp_path / 'production')
    places, program = [], None
    while program is None or program.returncode:
      place, delay = '', 0.0
      if num_left:
        place = str(generator.integers(1, night.num_changes + 1))
        delay = generator.choice([0, generator.uniform(0, _MAX_DELAY_SECONDS)])
      places.append((place, delay))
      program = production.run(night.date, KILL_AT=place, DELAY=str(delay))
      assert program.returncode in (0, -signal.SIGKILL), program.stderr
      num_left -= program.returncode != 0
    _assert_same(production.content(), night.expected, places)
    shutil.rmtree(production.folder)
