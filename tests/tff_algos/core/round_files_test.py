"""The files of rounds: whole, and cut off on resume."""

import errno
import os

import numpy as np
import pytest

from tff_algos.core import errors, records, round_files

_VALUES = np.array([[0.25, 0.75], [1.0, 0.0], [0.5, 0.5]])


def _names(workdir):
  return sorted(path.name for path in (workdir / 'memberships').iterdir())


def _files(workdir):
  return round_files.RoundFiles(workdir, 'memberships', '.npy')


def _write(files, round_num, values=_VALUES):
  files.write(round_num, lambda file: np.save(file, values))


@pytest.fixture
def files(tmp_path):
  """Files of the rounds 0, 2 and 4."""
  files = _files(tmp_path)
  files.resume(0, {})
  for round_num in (0, 2, 4):
    _write(files, round_num, _VALUES + round_num)
  return files


def test_one_array_a_round(files, tmp_path):
  assert _names(tmp_path) == [f'round_00000{r}.npy' for r in (0, 2, 4)]
  found = np.load(tmp_path / 'memberships' / 'round_000002.npy')
  np.testing.assert_array_equal(found, _VALUES + 2)


@pytest.mark.parametrize(
  ('round_num', 'kept'), [(0, ()), (1, (0,)), (2, (0, 2)), (9, (0, 2, 4))]
)
def test_resume_cuts_off_what_will_be_run_again(
  files, tmp_path, round_num, kept
):
  (tmp_path / 'memberships' / 'round_000002.npy.writing').touch()
  files.resume(round_num, {})
  assert _names(tmp_path) == [f'round_00000{r}.npy' for r in kept]


def test_a_stray_copy_is_left_alone(files, tmp_path):
  copy = tmp_path / 'memberships' / 'round_000002 (copy).npy'
  copy.touch()
  files.resume(2, {})
  assert copy.exists() and len(files.entries) == 2


def test_entries_are_those_of_the_files(files, tmp_path):
  entries = dict(files.entries)
  assert set(entries) == {f'memberships/{name}' for name in _names(tmp_path)}
  assert records.first_problem(tmp_path, entries) is None
  again = _files(tmp_path)
  again.resume(2, entries)
  del entries['memberships/round_000004.npy']
  assert again.entries == entries


def test_folder_in_the_place_of_a_file_is_named(files, tmp_path):
  path = tmp_path / 'memberships' / 'round_000006.npy'
  path.mkdir()
  for function in (
    lambda: files.resume(2, {}),
    lambda: _write(files, 6),
  ):
    with pytest.raises(
      errors.DataError, match=f'{path} is a folder.*Remove it'
    ):
      function()


def test_a_round_that_is_run_again_replaces_its_file(files, tmp_path):
  _write(files, 4)
  found = np.load(tmp_path / 'memberships' / 'round_000004.npy')
  np.testing.assert_array_equal(found, _VALUES)


@pytest.mark.parametrize(
  'error', [OSError(errno.ENOSPC, 'No space left'), KeyboardInterrupt()]
)
def test_what_stops_a_write_leaves_the_old_file(
  files, tmp_path, monkeypatch, error
):
  def refuse(*paths):
    raise error

  monkeypatch.setattr(os, 'replace', refuse)
  expected = (
    errors.InfrastructureError
    if isinstance(error, OSError)
    else KeyboardInterrupt
  )
  with pytest.raises(expected) as raised:
    _write(files, 4)
  if isinstance(error, OSError):
    assert raised.match('cannot write .*round_000004.npy: No space left')
  assert _names(tmp_path) == [f'round_00000{r}.npy' for r in (0, 2, 4)]
  found = np.load(tmp_path / 'memberships' / 'round_000004.npy')
  np.testing.assert_array_equal(found, _VALUES + 4)
