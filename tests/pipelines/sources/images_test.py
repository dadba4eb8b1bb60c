import errno
import functools
import json
import os

import numpy as np
import pytest
import tensorflow as tf

from pipelines import build_dataset
from pipelines.examples import cleaning
from pipelines.publishing import dead_letters
from pipelines.sources import base, registry
from tests.testing import raw_data, raw_sources
from tff_algos.core import errors
from tff_algos.data import dataset as dataset_lib
from tff_algos.features import preprocessing


def _source(folder, **more):
  return registry.create('images', {'folder': str(folder), **more}, 0)


def _problems(source):
  """Returns the place and the error of each malformed image."""
  features, spec = source.features(), source.feature_spec()
  (block,) = source.blocks()
  _, letters = cleaning.clean(block, source.read(block), features, spec=spec)
  return [
    (
      source.locate('all', letter.position),
      str(base.Problem(letter.reason, letter.column, letter.value)),
    )
    for letter in letters
  ]


def _write_table(folder, *rows):
  (folder / 'files.csv').write_text('\n'.join(('path,label,client', *rows)))
  return _source(folder, table='files.csv', shape=(4, 4, 3))


def test_clients_and_classes_are_folders(tmp_path):
  source = registry.create('images', raw_sources.write_images(tmp_path), 0)
  examples = raw_sources.read(source)
  assert [(e.client, e.y) for e in examples] == [
    *(('ann', 0), ('ann', 0), ('ann', 1), ('bob', 0), ('bob', 1), ('bob', 1))
  ]
  assert source.facts() == {'class_names': ['cat', 'dat']}
  features = source.features()
  assert (features.x_shape, features.num_classes) == ((4, 4, 3), 2)
  assert examples[1].x == {
    'image': (tmp_path / 'ann' / 'cat' / '1.png').read_bytes()
  }


def test_spec_resizes_the_images(tmp_path):
  source = registry.create('images', raw_sources.write_images(tmp_path), 0)
  spec = source.feature_spec()
  contents = tf.constant([e.x['image'] for e in raw_sources.read(source)])
  encoded = preprocessing.Preprocessing(spec).encode({'image': contents})
  assert spec.output().shape == encoded.shape[1:] == (4, 4, 3)
  np.testing.assert_array_equal(
    encoded[:, 0, 0, 0], [97, 137, 177, 98, 138, 178]
  )


def test_table_names_file_class_and_client(tmp_path):
  raw_sources.write_images(tmp_path)
  source = _write_table(
    tmp_path, 'bob/cat/0.png,wolf,eve', 'ann/dat/2.png,fox,eve'
  )
  assert [(e.client, e.y) for e in raw_sources.read(source)] == [
    ('eve', 1),
    ('eve', 0),
  ]
  assert source.facts() == {'class_names': ['fox', 'wolf']}


def test_odd_files_are_dead_letters_with_their_paths(tmp_path):
  source = registry.create('images', raw_sources.write_images(tmp_path), 0)
  whole = (tmp_path / 'bob/cat/0.png').read_bytes()
  (tmp_path / 'bob/cat/0.png').write_bytes(whole[:40])
  (tmp_path / 'ann/cat/notes.txt').write_text('no image')
  (tmp_path / 'ann/stray.png').write_bytes(whole)
  (tmp_path / 'ann/.hidden').write_text('ignored')
  for folder in ('.hidden/cat', 'ann/.hidden_class'):
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / '0.png').write_bytes(whole)
  broken = (
    "column 'image': not a PNG, JPEG or BMP image of at most 33,554,432 pixels, "
    '1,032 for each byte; a BMP file needs 24 or 32 bits a pixel, or a palette of 256 grays'
  )
  assert [(place.file, problem) for place, problem in _problems(source)] == [
    ('ann/cat/notes.txt', broken),
    (
      'ann/stray.png',
      "the file does not lie at client/class/file, got 'ann/stray.png'",
    ),
    ('bob/cat/0.png', broken),
  ]
  assert source.facts() == {'class_names': ['cat', 'dat']}
  examples = raw_sources.read(source)
  assert {example.client for example in examples} == {'ann', 'bob', None}


def test_rows_of_a_table_that_name_no_image_are_dead_letters(tmp_path):
  raw_sources.write_images(tmp_path)
  source = _write_table(
    tmp_path, 'ann/cat/0.png,a,x', 'no.png,b,x', ',a,x', 'ann/cat/1.png,,x'
  )
  (missing, first), (nameless, second), (_, third) = _problems(source)
  assert first == "the file cannot be read, got 'no.png'"
  assert (missing.file, missing.line) == ('files.csv', 3)
  assert missing.row == {'path': 'no.png', 'label': 'b', 'client': 'x'}
  assert second == "column 'path': the path is missing, got None"
  assert nameless.line == 4
  assert third == 'the label is missing'


def test_table_follows_the_rules_of_csv(tmp_path):
  """Blanks around a class are none of it; a row has a cell for each column."""
  raw_sources.write_images(tmp_path)
  source = _write_table(
    tmp_path,
    'ann/cat/0.png,a,x',
    'ann/cat/1.png,b ,x',
    'ann/dat/2.png,b, x ',
    'bob/cat/0.png,a,x, y',
    'bob/cat,0.png,a,x',
    'bob/cat/0.png,a',
  )
  assert source.facts() == {'class_names': ['a', 'b']}
  assert {e.client for e in raw_sources.read(source) if e.problem is None} == {
    'x'
  }
  assert [problem for _, problem in _problems(source)] == [
    'the row has too many cells',
    'the row has too many cells',
    'the row has too few cells',
  ]


def test_a_row_that_is_mended_is_another_version(tmp_path):
  raw_sources.write_images(tmp_path)
  sound = 'ann/cat/0.png,a,x'
  checksums = [
    _write_table(tmp_path, sound, f'ann/dat/2.png,b,x{more}').checksums()
    for more in (',y', '')
  ]
  assert checksums[0] != checksums[1]


def test_paths_that_no_file_can_have(tmp_path):
  raw_sources.write_images(tmp_path)
  long = 'a' * 300
  source = _write_table(
    tmp_path, 'ann/cat/0.png,a,x', f'{long},b,x', 'ann\0cat,a,x'
  )
  (_, first), (_, second) = _problems(source)
  assert first == f"the file cannot be read, got '{long}'"
  assert second.startswith("column 'path': the path is missing")
  assert [*source.checksums()] == ['images']


def test_disk_that_fails(tmp_path):
  raw_sources.write_images(tmp_path)
  (tmp_path / 'failing.png').symlink_to('/proc/self/mem')
  source = _write_table(tmp_path, 'failing.png,a,x', 'ann/cat/0.png,b,x')
  for read in (source.checksums, lambda: raw_sources.read(source)):
    with pytest.raises(OSError, match='Input/output error'):
      read()


def test_folder_that_may_not_be_read(tmp_path, monkeypatch):
  """Such as another user's of mode 0700; root may read that one."""
  raw_sources.write_images(tmp_path)

  def refuse(original, *args):
    if args and os.path.basename(args[0]) == 'bob':
      raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), args[0])
    return original(*args)

  for name in ('listdir', 'scandir'):
    patched = functools.partial(refuse, getattr(os, name))
    monkeypatch.setattr(os, name, patched)
  with pytest.raises(PermissionError, match='bob'):
    _source(tmp_path).blocks()


def test_class_folder_of_another_encoding(tmp_path):
  """Such as an old archive has."""
  raw_sources.write_images(tmp_path)
  latin = os.fsdecode('Käse'.encode('latin-1'))
  (tmp_path / 'ann' / 'dat').rename(tmp_path / 'ann' / latin)
  source = _source(tmp_path, shape=(4, 4, 3))
  assert source.facts() == {'class_names': ['cat', 'dat']}
  ((place, problem),) = _problems(source)
  assert place.file == f'ann/{latin}/2.png'
  assert problem == r"the class is not Unicode text, got 'K\udce4se'"


def test_class_that_is_not_listed(tmp_path):
  raw_sources.write_images(tmp_path)
  source = _source(tmp_path, classes=('cat', 'dog'))
  assert {problem for _, problem in _problems(source)} == {
    "the class is unknown, got 'dat'"
  }


def _no_folder(folder):
  return _source(folder / 'none')


def _no_files(folder):
  return _source(folder)


def _no_client_level(folder):
  (folder / 'cat').mkdir()
  raw_sources.write_jpeg(folder / 'cat' / '0.jpg', 9)
  return _source(folder)


def _one_class(folder):
  (folder / 'ann' / 'cat').mkdir(parents=True)
  raw_sources.write_jpeg(folder / 'ann' / 'cat' / '0.jpg', 9)
  return _source(folder)


def _column_twice(folder):
  (folder / 'files.csv').write_text('path,label,client,label\n')
  return _source(folder, table='files.csv')


def _linked_client(folder):
  raw_sources.write_images(folder / 'all')
  raw_sources.write_images(folder / 'images')
  (folder / 'images' / 'carl').symlink_to(folder / 'all' / 'bob')
  return _source(folder / 'images')


def _no_column(folder):
  (folder / 'files.csv').write_text('path,client\n')
  return _source(folder, table='files.csv')


@pytest.mark.parametrize(
  ('make', 'words'),
  [
    (_no_folder, "no raw data: there is no folder '.*none'"),
    (_no_files, 'no raw data: .* has no files'),
    (_no_client_level, "no folders client/class: .* like 'cat/0.jpg'"),
    (_one_class, 'have one class alone, cat'),
    (_column_twice, "has 2 column 'label'"),
    (_linked_client, "images/carl' is a link to a folder"),
    (_no_column, "no column 'label'; its columns are: path, client"),
  ],
)
def test_unsuitable_folder_is_one_clear_error(tmp_path, make, words):
  source = make(tmp_path)
  with pytest.raises(errors.DataError, match=words):
    source.blocks()
    source.features()


def test_dataset_of_images(tmp_path):
  """Pixels resized and standardized, a broken file as a dead letter."""
  options = raw_sources.write_images(tmp_path / 'raw')
  (tmp_path / 'raw/bob/cat/9.png').write_text('no image')
  config = raw_data.digits_config(
    source={'name': 'images', 'options': options},
    distributions={},
    partition={'law': 'natural'},
    sizes={},
    splits={'held_out_fraction': 0.0},
    num_shards=1,
    max_dead_letter_fraction=0.2,
    pixel_mean=0.25,
    pixel_std=0.5,
  )
  result = build_dataset.build(config, tmp_path / 'dataset')
  with dataset_lib.FederatedDataset.open(result.path) as dataset:
    spec = dataset.feature_spec
    assert build_dataset.preview(config) == (dataset.schema, spec)
    assert spec.features[0].shape == (4, 4, 3)
    stored = dataset.examples('bob', 'train')
    levels = np.rint(255 * (0.25 + 0.5 * stored.x[:, 0, 0, 0])).astype(int)
    assert sorted(zip(levels, stored.y, strict=True)) == [
      *((98, 0), (138, 1), (178, 1))
    ]
    (cat,) = stored.x[stored.y == 0]  # As a served model reads the file.
    content = tf.constant([(tmp_path / 'raw/bob/cat/0.png').read_bytes()])
    (served,) = preprocessing.Preprocessing(spec).model_input(
      {'image': content}
    )
    np.testing.assert_allclose(served, cat, atol=1e-6)
    (letter,) = (dataset.path / dead_letters.FILE).read_text().splitlines()
  assert json.loads(letter)['file'] == 'bob/cat/9.png'


@pytest.mark.parametrize('shape', [(4, 4), (4, 4, 2), (0, 4, 3)])
def test_shape_that_no_image_has(tmp_path, shape):
  with pytest.raises(errors.ConfigError, match='shape'):
    _source(tmp_path, shape=shape)


def test_class_that_is_named_twice(tmp_path):
  with pytest.raises(errors.ConfigError, match='different labels'):
    _source(tmp_path, classes=('cat', 'cat', 'dog'))
