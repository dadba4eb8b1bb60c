"""Version folders beside other things."""

from tff_algos.export import versions


def test_only_folders_with_numbers_count(tmp_path):
  for name in ('10', '9', '2', '.writing-3', 'notes', '-1', '1.0', '٣'):
    (tmp_path / name).mkdir()
  (tmp_path / '11').write_text('a file')
  folders = versions.version_folders(tmp_path)
  assert list(folders.items()) == [
    (number, tmp_path / str(number)) for number in (2, 9, 10)
  ]


def test_models_have_versions(tmp_path):
  for name in ('b/1', 'a/2', 'empty', 'c/notes'):
    (tmp_path / name).mkdir(parents=True)
  (tmp_path / 'labels.json').write_text('{}')
  assert versions.model_names(tmp_path) == ['a', 'b']
