"""What a power loss leaves of a published dataset and of an exported bundle."""

import pytest

from pipelines.publishing import staging as staging_lib
from pipelines.publishing import versions as dataset_versions
from tests.testing import power_loss
from tff_algos.core import errors
from tff_algos.data import integrity, layout
from tff_algos.export import bundle as bundle_lib
from tff_algos.export import versions as bundle_versions

_FILES = {'train-00000': 'examples', 'clients': 'table'}


def _publish(dataset, version, as_of=None):
  """Publishes a version of two small files, as `build_dataset.build` does."""
  with staging_lib.open_staging(dataset) as staging:
    for name, text in _FILES.items():
      with staging.atomic_path(staging.version / name) as path:
        path.write_text(f'{text} of {version}')
    staging_lib.publish(staging, dataset, version)
    dataset_versions.announce(staging, dataset, version, as_of)


def _check_version(folder):
  for name, text in _FILES.items():
    assert (folder / name).read_text() == f'{text} of {folder.name}'


@pytest.mark.parametrize('before', [(), ('v1',)])
def test_dataset_is_the_one_before_or_the_new_one(tmp_path, before):
  """The first one also makes the folders on the way."""
  run = tmp_path / 'run'
  run.mkdir()
  for version in before:
    _publish(run / 'sub' / 'dataset', version)

  def recover(place, is_finished):
    dataset = place / 'sub' / 'dataset'
    try:
      found = integrity.find_current(dataset)
    except errors.DataError as error:
      assert not before and not is_finished
      assert 'binaries.preprocess' in str(error)
      _publish(dataset, 'new')
      assert integrity.find_current(dataset).name == 'new'
    else:
      allowed = ('new', *before)[: 1 if is_finished else 2]
      assert found.name in allowed
      _check_version(found)
    for folder in (dataset / layout.VERSIONS).glob('*'):
      _check_version(folder)
    with staging_lib.open_staging(dataset):
      pass
    assert not list(dataset.glob('.staging-*'))

  power_loss.check(
    run, lambda: _publish(run / 'sub' / 'dataset', 'new'), recover
  )


def test_date_of_a_dataset_is_recorded(tmp_path):
  """The date lies before another one's, so that `CURRENT` stays as it is."""
  dataset = tmp_path / 'dataset'
  _publish(dataset, 'v1', '2024-02-01')

  def recover(place, is_finished):
    assert integrity.find_current(place).name == 'v1'
    try:
      found = integrity.find_as_of(place, '2024-01-01').name
    except errors.DataError as error:
      assert '--as_of=2024-01-01' in str(error)
      found = None
    assert found in ('new', None)[: 2 - is_finished]

  power_loss.check(
    dataset, lambda: _publish(dataset, 'new', '2024-01-01'), recover
  )


def _export(base, name):
  bundle = bundle_lib.Bundle(name, {}, {}, (), 0.0)
  return bundle_lib.write_bundle(base, bundle, provenance=None)


@pytest.fixture
def small_bundles(monkeypatch):
  """Bundles are two small files; TensorFlow is not the subject."""

  def save(folder, bundle, unused_provenance):
    (folder / 'variables').mkdir(parents=True)
    for name in (f'{bundle.module}.pb', 'variables/data'):
      (folder / name).write_text(f'content of {bundle.module}')

  monkeypatch.setattr(bundle_lib, '_save', save)
  monkeypatch.setattr(bundle_lib, '_check_reads_back', lambda *unused: None)


def _check_bundle(folder, name):
  found = {path.name: path for path in folder.rglob('*') if path.is_file()}
  assert set(found) == {f'{name}.pb', 'data'}
  for path in found.values():
    assert path.read_text() == f'content of {name}'


@pytest.mark.usefixtures('small_bundles')
@pytest.mark.parametrize('before', [(), ('old',)])
def test_bundle_is_there_whole_or_not_at_all(tmp_path, before):
  """The first one also makes the folders on the way."""
  run = tmp_path / 'run'
  run.mkdir()
  for name in before:
    _export(run / 'sub' / 'model', name)

  def recover(place, is_finished):
    base = place / 'sub' / 'model'
    folders = bundle_versions.version_folders(base) if base.is_dir() else {}
    assert len(folders) >= len(before) + is_finished
    for folder, name in zip(folders.values(), (*before, 'new'), strict=False):
      _check_bundle(folder, name)
    # What was left behind neither stays nor gets into the next bundle.
    made = _export(base, 'next')
    _check_bundle(made, 'next')
    names = {path.name for path in base.iterdir()}
    assert names == {*map(str, folders), made.name}

  power_loss.check(run, lambda: _export(run / 'sub' / 'model', 'new'), recover)
