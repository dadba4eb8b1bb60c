import os

import pytest

from pipelines.publishing import staging as staging_lib
from pipelines.publishing import versions
from tff_algos.core import errors
from tff_algos.data import leases

_A, _B, _C, _D = (letter * 16 for letter in 'abcd')


def _publish(
  dataset, version, as_of=None, keep_versions=None, age=0, needed=()
):
  """Publishes a version; `age` in seconds makes it an old one."""
  removed = ()
  with staging_lib.open_staging(dataset) as staging:
    if not (dataset / 'versions' / version).exists():
      (staging.version / 'manifest.json').write_text(version)
      staging_lib.publish(staging, dataset, version)
    is_current = versions.announce(staging, dataset, version, as_of)
    if age:
      folder = dataset / 'versions' / version
      time = folder.stat().st_mtime - age
      os.utime(folder, (time, time))
    if keep_versions is not None:
      removed = versions.remove_old(
        staging, dataset, version, keep_versions, needed
      )
  return is_current, removed


def _names(folder):
  return sorted(path.name for path in folder.iterdir())


def _current(dataset):
  return (dataset / 'CURRENT').read_text().strip()


def test_without_dates_the_last_one_is_current(tmp_path):
  for version in (_A, _B, _A):
    assert _publish(tmp_path, version) == (True, ())
    assert _current(tmp_path) == version
  assert _names(tmp_path) == ['CURRENT', 'versions']


def test_backfill_of_an_older_date_leaves_the_current_one(tmp_path):
  assert _publish(tmp_path, _A, '2026-11-20')[0]
  assert not _publish(tmp_path, _B, '2026-11-19')[0]
  assert _current(tmp_path) == _A
  # The same data as on the latest date.
  assert _publish(tmp_path, _A, '2026-11-18')[0]
  assert _publish(tmp_path, _C, '2026-11-20T010000Z')[0]
  assert _current(tmp_path) == _C
  assert {
    path.name: path.read_text() for path in (tmp_path / 'as_of').iterdir()
  } == {
    '2026-11-18': f'{_A}\n',
    '2026-11-19': f'{_B}\n',
    '2026-11-20': f'{_A}\n',
    '2026-11-20T010000Z': f'{_C}\n',
  }


def test_backfill_after_a_killed_first_build_is_current(tmp_path):
  _publish(tmp_path, _A, '2026-11-20')
  (tmp_path / 'CURRENT').unlink()  # As if killed before it was written.
  assert _publish(tmp_path, _B, '2026-11-19')[0]
  assert _current(tmp_path) == _B
  assert _publish(tmp_path, _A, '2026-11-20')[0]
  assert _current(tmp_path) == _A


def test_other_files_among_the_records_hold_up_no_date(tmp_path):
  _publish(tmp_path, _A, '2026-11-20')
  (tmp_path / 'as_of' / '2026-11-20~').write_text(_A)
  (tmp_path / 'as_of' / 'notes.txt').write_text('Mend the raw files')
  assert _publish(tmp_path, _B, '2026-11-20')[0]
  assert _current(tmp_path) == _B


def test_a_backfill_replaces_no_damaged_current_version(tmp_path):
  _publish(tmp_path, _A, '2026-11-20')
  (tmp_path / 'CURRENT').write_bytes(b'\xff')
  with pytest.raises(errors.DataError, match='CURRENT is damaged'):
    _publish(tmp_path, _B, '2026-11-19')
  assert _publish(tmp_path, _A, '2026-11-20')[0]
  assert _current(tmp_path) == _A


def test_rerun_of_a_date_names_the_new_version(tmp_path):
  _publish(tmp_path, _A, '2026-11-20')
  assert _publish(tmp_path, _B, '2026-11-20')[0]
  assert _current(tmp_path) == _B
  assert (tmp_path / 'as_of' / '2026-11-20').read_text() == f'{_B}\n'


def test_oldest_versions_go(tmp_path):
  for age, version in ((400, _B), (300, _A), (200, _C)):
    _publish(tmp_path, version, age=age)
  assert _publish(tmp_path, _D, keep_versions=2) == (True, (_B, _A))
  assert _names(tmp_path / 'versions') == [_C, _D]
  assert _names(tmp_path) == ['CURRENT', 'versions']


def test_needed_versions_take_no_place_of_young_ones(tmp_path):
  for age, version in ((400, _A), (300, _B), (200, _C)):
    _publish(tmp_path, version, age=age)
  _, removed = _publish(tmp_path, _D, keep_versions=2, needed=(_A,))
  assert removed == (_B,)
  assert _names(tmp_path / 'versions') == [_A, _C, _D]


def test_version_that_was_found_again_is_young(tmp_path):
  for age, version in ((400, _A), (300, _B)):
    _publish(tmp_path, version, age=age)
  _publish(tmp_path, _A)
  assert _publish(tmp_path, _C, keep_versions=2) == (True, (_B,))


def test_current_one_and_the_one_just_published_stay(tmp_path):
  _publish(tmp_path, _A, '2026-11-20', age=900)
  _publish(tmp_path, _B, '2026-11-18', age=800)
  # A backfill: the oldest folder is the current version.
  assert _publish(tmp_path, _C, '2026-11-19', 1) == (False, (_B,))
  assert _names(tmp_path / 'versions') == [_A, _C]
  # Who asks for the date of a removed version must not get another one.
  assert (tmp_path / 'as_of' / '2026-11-18').exists()


def test_version_in_use_stays_until_it_is_free(tmp_path):
  _publish(tmp_path, _A, age=900)
  with leases.hold(tmp_path / 'versions' / _A):
    assert _publish(tmp_path, _B, keep_versions=1) == (True, ())
  assert _publish(tmp_path, _B, keep_versions=1) == (True, (_A,))


def test_what_is_no_version_is_left_alone(tmp_path):
  _publish(tmp_path, _A)
  (tmp_path / 'versions' / 'notes').mkdir()
  (tmp_path / 'versions' / ('e' * 16)).write_text('a file')
  assert _publish(tmp_path, _B, keep_versions=1) == (True, (_A,))
  assert _names(tmp_path / 'versions') == [_B, 'e' * 16, 'notes']


def test_half_a_version_goes(tmp_path):
  _publish(tmp_path, _A, age=900)
  (tmp_path / 'versions' / _A / 'manifest.json').unlink()
  os.utime(tmp_path / 'versions' / _A, (0, 0))
  assert _publish(tmp_path, _B, keep_versions=1) == (True, (_A,))


@pytest.mark.parametrize(
  ('arguments', 'words'),
  [
    ({'keep_versions': 0}, 'keep_versions must be an integer >= 1'),
    ({'as_of': 'today'}, 'as_of must be a date'),
  ],
)
def test_publication_checks_itself(arguments, words):
  with pytest.raises(errors.ConfigError, match=words):
    versions.Publication(**arguments)


def test_publication_spells_its_date_as_it_is_recorded():
  publication = versions.Publication(as_of='2026-11-20T01:00:00+01:00')
  assert publication.as_of == '2026-11-20'
