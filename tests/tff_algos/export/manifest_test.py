"""Manifests: what they say, and what they find."""

import pytest
import tensorflow as tf

from tests.testing import exportable
from tff_algos.core import errors
from tff_algos.export import manifest


def test_manifest_says_where_the_bundle_comes_from(tmp_path):
  folder = exportable.export_clusters(tmp_path)
  content = manifest.read_manifest(folder)
  files = content.pop('files')
  assert content == {
    'bundle_format': 1,
    'config_hash': '0123456789abcdef',
    'round_num': 7,
    'dataset_version': 'v3',
    'kind': 'cluster_models',
    'algorithm': 'tiny',
    'model': 'linear',
    'task': 'classification',
    'num_clusters': 2,
    'input_shape': [4],
    'label_shape': [],
    'padding_label': None,
    'num_classes': 3,
    'code_version': manifest.code_version(),
    'tensorflow_version': tf.__version__,
  }
  on_disk = {
    path.relative_to(folder).as_posix()
    for path in folder.rglob('*')
    if path.is_file()
  }
  assert set(files) == on_disk - {'assets.extra/bundle.json'}
  manifest.verify_files(folder)


def test_changed_and_missing_files_are_found(tmp_path):
  folder = exportable.export_clusters(tmp_path)
  data = folder / 'variables' / 'variables.data-00000-of-00001'
  content = bytearray(data.read_bytes())
  content[0] ^= 1
  data.write_bytes(content)
  with pytest.raises(errors.ExportError, match='has changed since'):
    manifest.verify_files(folder)
  data.unlink()
  with pytest.raises(errors.ExportError, match='cannot be read'):
    manifest.verify_files(folder)


@pytest.mark.parametrize('text', ['', '[]', '{"bundle_format": 2}', '{"a"'])
def test_bad_manifest_is_an_export_error(tmp_path, text):
  extra = tmp_path / manifest.EXTRA_FOLDER
  extra.mkdir()
  (extra / manifest.MANIFEST_FILE).write_text(text)
  with pytest.raises(errors.ExportError):
    manifest.read_manifest(tmp_path)
