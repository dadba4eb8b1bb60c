import json

import pytest

from tff_algos.core import errors, records, sealed_json
from tff_algos.data import integrity, layout


def _write(folder, **changes):
  """Writes a version `v1` with one shard and a table; returns its folder."""
  version = folder / 'versions' / 'v1'
  version.mkdir(parents=True)
  (version / 'a.array_record').write_bytes(b'records')
  (version / 'clients.parquet').write_bytes(b'table')
  manifest = {
    'schema_version': 1,
    'version': 'v1',
    'files': {
      path.name: records.describe_file(path) for path in version.iterdir()
    },
  }
  manifest |= changes
  manifest = sealed_json.seal(manifest)
  (version / 'manifest.json').write_text(json.dumps(manifest))
  (folder / 'CURRENT').write_text('v1\n')
  return version


def test_whole_version_passes(tmp_path):
  version = _write(tmp_path)
  assert integrity.find_current(tmp_path) == version
  manifest = integrity.read_manifest(version)
  integrity.check_files(version, manifest, verify=True)


def test_missing_folder(tmp_path):
  with pytest.raises(errors.DataError, match='the folder does not exist'):
    integrity.find_current(tmp_path / 'nowhere')


def test_unpublished_folder(tmp_path):
  with pytest.raises(errors.DataError, match='not a published .* CURRENT'):
    integrity.find_current(tmp_path)


@pytest.mark.parametrize(
  ('content', 'words'),
  [
    (b'', 'CURRENT is damaged'),
    (b'\xff', 'CURRENT is damaged'),
    (b'v2\n', 'does not exist'),
  ],
)
def test_current_that_names_nothing(tmp_path, content, words):
  _write(tmp_path)
  (tmp_path / 'CURRENT').write_bytes(content)
  with pytest.raises(errors.DataError, match=words):
    integrity.find_current(tmp_path)


def test_removed_version_is_named_by_its_date(tmp_path):
  (tmp_path / 'as_of').mkdir()
  (tmp_path / 'as_of' / '2026-11-20').write_text('v1\n')
  with pytest.raises(
    errors.DataError, match=r'for 2026-11-20, .* --as_of=2026-11-20\.'
  ):
    integrity.find(tmp_path, '2026-11-23', None)


def test_a_version_is_named_by_its_date_or_its_name(tmp_path):
  with pytest.raises(errors.ConfigError, match="'2026-11-23' and version 'v1'"):
    integrity.find(tmp_path, '2026-11-23', 'v1')


def test_version_that_is_replaced_between_two_looks(tmp_path, monkeypatch):
  version = _write(tmp_path)
  (tmp_path / 'CURRENT').write_text('v0\n')
  find = layout.version_folder

  def publish_first(dataset, name):
    (tmp_path / 'CURRENT').write_text('v1\n')
    return find(dataset, name)

  monkeypatch.setattr(layout, 'version_folder', publish_first)
  assert integrity.find_current(tmp_path) == version


def test_missing_manifest(tmp_path):
  version = _write(tmp_path)
  (version / 'manifest.json').unlink()
  with pytest.raises(errors.DataError, match='json is missing. Build'):
    integrity.read_manifest(version)


@pytest.mark.parametrize('content', [b'', b'{', b'[]', b'{}', b'\xff\xfe'])
def test_unreadable_manifest(tmp_path, content):
  version = _write(tmp_path)
  (version / 'manifest.json').write_bytes(content)
  with pytest.raises(errors.DataError, match='is damaged|schema version None'):
    integrity.read_manifest(version)


def test_a_folder_is_no_manifest(tmp_path):
  (tmp_path / 'manifest.json').mkdir()
  with pytest.raises(errors.DataError, match='cannot be read: Is a dir'):
    integrity.read_manifest(tmp_path)


def test_other_schema_version(tmp_path):
  version = _write(tmp_path, schema_version=7)
  with pytest.raises(errors.DataError, match='schema version 7.*version 1'):
    integrity.read_manifest(version)


def test_manifest_of_another_version(tmp_path):
  version = _write(tmp_path, version='v2')
  with pytest.raises(errors.DataError, match="belongs to version 'v2'"):
    integrity.read_manifest(version)


def test_every_changed_digit_in_the_manifest_is_found(tmp_path):
  version = _write(tmp_path)
  text = (version / 'manifest.json').read_text()
  positions = [i for i, letter in enumerate(text) if letter.isdigit()]
  for i in positions:
    changed = text[:i] + str((int(text[i]) + 1) % 10) + text[i + 1 :]
    (version / 'manifest.json').write_text(changed)
    with pytest.raises(errors.DataError):
      integrity.read_manifest(version)


@pytest.mark.parametrize(
  ('name', 'content', 'verify', 'words'),
  [
    ('a.array_record', None, False, 'a.array_record is missing'),
    ('a.array_record', b'record', False, 'has 6 bytes, .* says 7'),
    ('a.array_record', b'recores', True, 'a.array_record is damaged'),
    # A table is checked all the same.
    ('clients.parquet', b'tablo', False, 'clients.parquet is damaged'),
  ],
)
def test_a_damaged_file_is_named(tmp_path, name, content, verify, words):
  version = _write(tmp_path)
  (version / name).unlink()
  if content is not None:
    (version / name).write_bytes(content)
  manifest = integrity.read_manifest(version)
  with pytest.raises(errors.DataError, match=words):
    integrity.check_files(version, manifest, verify)
