import os
import subprocess
import sys

import pytest

from tff_algos.data import leases


@pytest.fixture
def folder(tmp_path):
  """A version's folder."""
  (tmp_path / 'manifest.json').write_text('{}')
  return tmp_path


def _is_free(folder):
  with leases.forbid(folder) as is_free:
    return is_free


def test_version_in_use_is_not_free(folder):
  with leases.hold(folder), leases.hold(folder):
    assert not _is_free(folder)
  assert _is_free(folder)


def test_lease_of_a_killed_process_ends(folder):
  program = (
    'import pathlib, sys, time; from tff_algos.data import leases; '
    'lease = leases.hold(pathlib.Path(sys.argv[1])); print("held", flush=True);'
    'time.sleep(60)'
  )
  with subprocess.Popen(
    [sys.executable, '-c', program, str(folder)], stdout=subprocess.PIPE
  ) as process:
    assert process.stdout.readline() == b'held\n'
    assert not _is_free(folder)
    process.kill()
  assert _is_free(folder)


def test_version_that_goes_away_gives_no_lease(folder, monkeypatch):
  def retire(file, operation):
    os.rename(folder / 'manifest.json', folder / 'retired')

  monkeypatch.setattr(leases.fcntl, 'flock', retire)
  assert leases.hold(folder) is None
  assert leases.hold(folder) is None


def test_version_that_is_made_anew_meanwhile_gives_no_lease(
  folder, monkeypatch
):
  """The lock would be on a manifest that is no longer the version's."""

  def replace(file, operation):
    os.rename(folder / 'manifest.json', folder / 'retired')
    (folder / 'manifest.json').write_text('{}')

  monkeypatch.setattr(leases.fcntl, 'flock', replace)
  assert leases.hold(folder) is None


def test_file_system_without_locks(folder, monkeypatch):
  def refuse(file, operation):
    raise OSError('no locks')

  monkeypatch.setattr(leases.fcntl, 'flock', refuse)
  with leases.hold(folder):
    assert _is_free(folder)
