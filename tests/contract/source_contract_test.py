"""What every source promises, and what it does with damaged files."""

import functools
import json
import os
import pathlib
import pickle
import shutil
import tempfile

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from pipelines import build_dataset
from pipelines.examples import (
  cleaning,
  column_statistics,
  encoding,
  raw_columns,
)
from pipelines.sources import base, registry
from tests.testing import raw_data, raw_sources
from tff_algos.core import errors
from tff_algos.data import dataset as dataset_lib
from tff_algos.data import raw_features
from tff_algos.data import schema as schema_lib
from tff_algos.export import raw_inputs
from tff_algos.features import preprocessing
from tff_algos.features import spec as spec_lib

# TFDS needs a prepared set: tests/pipelines/sources/tfds_test.py.
_SOURCES = sorted({*registry.SOURCES} - {'tfds'})


@pytest.fixture(name='written', scope='module')
def make_written(tmp_path_factory):
  """Source -> folder of its sample, not to change, and the options for it."""

  @functools.cache
  def write(name):
    folder = tmp_path_factory.mktemp(name)
    return folder, raw_sources.WRITERS[name](folder)

  return write


@pytest.fixture(name='sample', scope='module')
def make_sample(written):
  def sample(name):
    if name in raw_sources.GENERATORS:
      return registry.create(name, raw_sources.GENERATORS[name], 0)
    return registry.create(name, written(name)[1], 0)

  return sample


def _moved(options, old, new):
  """Returns the options of a sample for the same files in another folder."""
  return {
    key: value.replace(str(old), str(new)) if isinstance(value, str) else value
    for key, value in options.items()
  }


def _read(source):
  """Returns block -> its sound and its malformed examples."""
  features = source.features()
  return {
    block: cleaning.clean(
      block, source.read(block), features, spec=source.feature_spec()
    )
    for block in source.blocks()
  }


def test_every_source_is_tested():
  known = {*raw_sources.WRITERS, *raw_sources.GENERATORS, 'tfds'}
  assert known == {*registry.SOURCES}


def _assert_equal(before, after):
  """Compares arrays, or raw columns."""
  if isinstance(before, dict):
    assert before.keys() == after.keys()
    before, after = [*before.values()], [*after.values()]
  np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize('name', _SOURCES)
def test_samples_are_sound_and_always_the_same(name, sample):
  source = sample(name)
  first, second = _read(source), _read(pickle.loads(pickle.dumps(source)))
  assert first.keys() == second.keys()
  assert first
  for block, (sound, dead) in first.items():
    assert not dead
    assert len(sound.y)
    for before, after in zip(sound, second[block][0], strict=True):
      _assert_equal(before, after)
  is_test = np.concatenate([sound.is_test for sound, _ in first.values()])
  assert is_test.any() == source.has_test_split()
  assert not is_test.all()


def _raw_columns(spec, x):
  """Returns examples of arrays as raw columns, `[n, ...]`."""
  first = spec.features[0]
  if first.type == spec_lib.TENSOR:
    return {first.name: x}
  if first.type == spec_lib.IMAGE:
    return {first.name: [tf.io.encode_png(image).numpy() for image in x]}
  if first.type == spec_lib.NUMBER:
    return {one.name: x[:, i] for i, one in enumerate(spec.features)}
  special = {number: f'<{name}>' for name, number in spec.special_ids.items()}
  if 'padding' in spec.special_ids:
    special[spec.special_ids['padding']] = ''
  words = iter(spec.words())
  num_ids = len(special) + len(spec.words())
  names = [
    special[number] if number in special else next(words)
    for number in range(num_ids)
  ]
  return {first.name: np.array(names, object)[x]}


def _spec_and_examples(source):
  """Returns a fitted spec, raw columns of some examples, what is stored."""
  sound, _ = next(iter(_read(source).values()))
  spec = source.feature_spec()
  if spec is not None:
    statistics = column_statistics.create(spec)
    column_statistics.add(statistics, spec, sound.x)
    spec = spec.fit(column_statistics.finish(statistics, spec))
    nobody = np.zeros((0, len(spec.by_client)), np.float32)
    columns = raw_columns.select(sound.x, slice(3))
    encoder = encoding.Encoder(encoding.Fitted(spec, nobody, nobody))
    stored = encoder.encode(sound.x, np.full(len(sound.y), -1))[:3]
    return spec, columns, stored, spec.output()
  features = source.features()._asdict()
  del features['x_range']
  schema = schema_lib.Schema(**features, source_names=('all',))
  spec = raw_features.of_manifest(
    {
      'schema': schema.to_dict(),
      'recipe': {'source': {'options': dict(source.recipe())}},
      'source_facts': source.facts(),
    }
  )
  stored = sound.x[:3]
  return spec, _raw_columns(spec, stored), stored, schema


@pytest.fixture(name='encoded', scope='module', params=_SOURCES)
def make_encoded(request, sample):
  return _spec_and_examples(sample(request.param))


def test_raw_rows_are_encoded_as_they_are_stored(encoded):
  """The serving graph, a row at a time, has the bits of the dataset."""
  spec, columns, stored, schema = encoded
  module = preprocessing.Preprocessing(spec)
  specs = module.column_specs()
  encode = tf.function(
    module.model_input, input_signature=[specs], autograph=False
  )
  for row, expected in enumerate(stored):
    found = encode(
      {
        column: tf.constant(columns[column][row : row + 1], one.dtype)
        for column, one in specs.items()
      }
    )
    np.testing.assert_array_equal(found[0], _decoded(schema, expected))


def test_a_made_up_row_can_be_exported(encoded):
  spec, *_ = encoded
  row = raw_inputs.example_columns(spec)
  found = raw_inputs.RawInputs(spec).model_input(
    {column: tf.constant(value) for column, value in row.items()}
  )
  assert found.shape[0] == 1 and np.isfinite(found).all()


def _decoded(schema, stored):
  """Returns the input of a model for a stored example."""
  if isinstance(schema, schema_lib.Schema):
    return schema.decode_x(stored)
  if schema.dtype == 'int32':
    return stored
  scaled = stored.astype(np.float32) * np.float32(schema.scale)
  return scaled + np.float32(schema.offset)


@pytest.mark.parametrize('name', _SOURCES)
def test_distributions_are_those_that_the_source_names(name, sample):
  source = sample(name)
  names = source.native_source_names()
  native = np.concatenate([s.native_source for s, _ in _read(source).values()])
  if names is None:
    assert set(native) == {-1}
  else:
    assert set(native) <= set(range(len(names)))


@pytest.mark.parametrize('name', _SOURCES)
def test_what_the_manifest_records_is_json_without_the_folder(
  name, sample, tmp_path_factory
):
  source = sample(name)
  recorded = (source.recipe(), source.checksums(), source.facts())
  folders = str(tmp_path_factory.getbasetemp())
  assert folders not in json.dumps(recorded, allow_nan=False)
  assert all(len(checksum) == 64 for checksum in source.checksums().values())


def _files(folder):
  return sorted(path for path in folder.rglob('*') if path.is_file())


@pytest.mark.parametrize('name', sorted(raw_sources.WRITERS))
def test_checksums_see_every_file(name, tmp_path):
  source = registry.create(name, raw_sources.WRITERS[name](tmp_path), 0)
  before = source.checksums()
  for path in _files(tmp_path):
    content = path.read_bytes()
    path.write_bytes(content + b'\n')
    try:
      assert source.checksums() != before
    except errors.DataError:
      assert path.name == 'val_annotations.txt'
    path.write_bytes(content)


@pytest.mark.parametrize('name', sorted(raw_sources.WRITERS))
def test_missing_files_are_one_clear_error(name, written, tmp_path):
  folder, options = written(name)
  options = _moved(options, folder, tmp_path)
  with pytest.raises(errors.DataError, match='no raw data'):
    registry.create(name, options, 0).blocks()


@pytest.mark.parametrize('name', ['stack_overflow', 'federated_emnist'])
def test_dataset_by_natural_clients(name, tmp_path):
  config = raw_data.digits_config(
    source={'name': name, 'options': raw_sources.WRITERS[name](tmp_path)},
    partition={'law': 'natural'},
    distributions={},
    sizes={},
    # The words of a post belong together.
    splits={'split_by': 'group'} if name == 'stack_overflow' else {},
    num_shards=1,
  )
  result = build_dataset.build(config, tmp_path / 'dataset')
  source = registry.create(name, config.source.options, 0)
  raw = raw_sources.read(source)

  def content(one):
    return one.group if name == 'stack_overflow' else one.x.tobytes()

  tested = {content(one) for one in raw if one.is_test}
  expected = {}
  for one in raw:
    # Copies of test examples are left out.
    if content(one) not in tested:
      expected.setdefault(one.client, []).append(_spell(one.x, one.y))
  with dataset_lib.FederatedDataset.open(result.path) as dataset:
    assert dataset.client_ids == tuple(sorted(expected))
    for client_id, examples in expected.items():
      stored = dataset.examples(client_id, 'train')
      kind = np.int32 if name == 'stack_overflow' else np.float32
      assert stored.x.dtype == kind
      found = [_spell(x, y) for x, y in zip(stored.x, stored.y, strict=True)]
      assert sorted(found) == sorted(examples)


@pytest.mark.parametrize('split_by', ['content', 'client'])
def test_words_of_a_post_are_not_divided(tmp_path, split_by):
  write = raw_sources.WRITERS['stack_overflow']
  config = raw_data.digits_config(
    source={'name': 'stack_overflow', 'options': write(tmp_path)},
    partition={'law': 'natural'},
    distributions={},
    sizes={},
    splits={'split_by': split_by},
  )
  with pytest.raises(errors.ConfigError, match="Set it to 'group'"):
    build_dataset.build(config, tmp_path / 'dataset')


def _spell(x, y):
  return f'{np.asarray(x).tolist()} {y}'


def _damage(data, content):
  """Returns a file's content after a few accidents."""
  content = bytearray(content)
  for _ in range(data.draw(st.integers(1, 3))):
    start = data.draw(st.integers(0, len(content)))
    kind = data.draw(st.sampled_from(('cut', 'flip', 'drop', 'insert')))
    if kind == 'cut':
      del content[start:]
    elif kind == 'drop':
      del content[start : start + data.draw(st.integers(1, 40))]
    else:
      extra = data.draw(st.binary(min_size=1, max_size=8))
      stop = start + (len(extra) if kind == 'flip' else 0)
      content[start:stop] = extra
  return bytes(content)


@pytest.mark.parametrize('name', sorted(raw_sources.WRITERS))
@hypothesis.settings(max_examples=60)
@hypothesis.given(data=st.data())
def test_damaged_files_are_user_errors_or_sound_or_dead(name, written, data):
  """Whatever happens to a file, nothing but a `UserError` may come out.

  Sources remember what they read and map files into memory, so none is written
  to: each example has its own links to the files.
  """
  sound_folder, options = written(name)
  with tempfile.TemporaryDirectory() as made:
    folder = pathlib.Path(made) / 'damaged'
    shutil.copytree(sound_folder, folder, copy_function=os.link)
    source = registry.create(name, _moved(options, sound_folder, folder), 0)
    path = data.draw(st.sampled_from(_files(folder)))
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(_damage(data, content))
    try:
      source.checksums()
      source.facts()
      everything = _read(source)
    except errors.UserError:
      return
    features, spec = source.features(), source.feature_spec()
    for sound, _ in everything.values():
      for i in range(len(sound.y)):
        x = sound.x[i] if spec is None else raw_columns.select(sound.x, i)
        again = base.RawExample(x, sound.y[i], client=str(sound.client[i]))
        assert cleaning.find_problem(again, features, spec=spec) is None
      if features.x_dtype == 'int32' and len(sound.y):
        assert 0 <= sound.x.min()
        assert sound.x.max() < _num_tokens(source, features)


def _num_tokens(source, features):
  facts = source.facts()
  if 'special_ids' in facts:
    return facts['special_ids']['end'] + 1
  return features.num_classes


def test_clients_that_mix_components_have_their_true_mixture(tmp_path):
  """The share of each component among what a client was given."""
  config = raw_data.digits_config(
    source={'name': 'logistic_mixture', 'options': {'num_clients': 4}},
    partition={'law': 'natural'},
    distributions={'kind': 'native'},
    sizes={},
    splits={'held_out_fraction': 0.0, 'test_ratio': 0.25},
  )
  result = build_dataset.build(config, tmp_path)
  source = registry.create('logistic_mixture', {'num_clients': 4}, config.seed)
  with dataset_lib.FederatedDataset.open(result.path) as dataset:
    mixtures = dataset.true_mixture()
    for i, client_id in enumerate(dataset.client_ids):
      counts = source.client(i).counts
      np.testing.assert_allclose(mixtures[i], counts / counts.sum())
      parts = [dataset.examples(client_id, s).source for s in ('train', 'test')]
      found = np.bincount(np.concatenate(parts), minlength=3)
      np.testing.assert_array_equal(found, counts)


def test_letters_of_both_cases_in_both_rotations(tmp_path):
  """FedSoft: four distributions of 26 shared labels."""
  options = raw_sources.write_emnist(tmp_path, [*range(62)] * 2)
  options['cases_are'] = 'distributions'
  config = raw_data.digits_config(
    source={'name': 'emnist', 'options': options},
    distributions={'kind': 'rotations', 'quarter_turns': (0, 1)},
    partition={'law': 'iid', 'num_clients': 2},
    sizes={},
    splits={},
  )
  result = build_dataset.build(config, tmp_path / 'dataset')
  with dataset_lib.FederatedDataset.open(result.path) as dataset:
    assert dataset.source_names == (
      *('lower_upright', 'lower_rotated_90'),
      *('upper_upright', 'upper_rotated_90'),
    )
    for s in range(4):
      held_out = dataset.held_out(s)
      counts = np.bincount(held_out.y, minlength=26)
      np.testing.assert_array_equal(counts, [2] * 26)
      # The lit corner is at the top right, or turned to the top left.
      corner = held_out.x[:, 0, -1, 0] if s % 2 == 0 else held_out.x[:, 0, 0, 0]
      assert np.all(corner == 1)
      train = [dataset.examples(c, 'train') for c in dataset.client_ids]
      assert all(np.sum(one.source == s) for one in train)


def test_odd_client_ids_are_read_back(tmp_path):
  ids = ("../o'hara", 'a "b"', 'мария 名前', 'x' * 10_000)
  rows = ['a,b,y,who']
  for i in range(80):
    quoted = ids[i % 4].replace('"', '""')
    rows.append(f'{i},{i / 7},{("no", "yes")[i // 4 % 2]},"{quoted}"')
  (tmp_path / 'table.csv').write_text('\n'.join(rows))
  config = raw_data.csv_config(
    tmp_path, partition={'law': 'natural'}, max_dead_letter_fraction=0.25
  )
  result = build_dataset.build(config, tmp_path / 'dataset')
  assert result.manifest['counters']['dead_letters'] == 20
  with dataset_lib.FederatedDataset.open(result.path) as dataset:
    assert dataset.client_ids == tuple(sorted(ids[:3]))
    for i in range(3):
      x = dataset.examples(ids[i], 'train').x
      assert len(x)
      assert set(x[:, 0] % 4) == {i}
