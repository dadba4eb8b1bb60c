import numpy as np
import pytest

from pipelines.sources import registry
from tests.testing import raw_sources
from tff_algos.core import errors


def _source(folder, *, num_classes=None, **arrays):
  """Returns the source of the sample, with other arrays."""
  options = raw_sources.write_arrays(folder)
  for name, array in arrays.items():
    np.save(folder / f'{name}.npy', array)
  return registry.create('arrays', {**options, 'num_classes': num_classes}, 0)


def test_examples_with_their_clients_and_classes_by_name(tmp_path):
  source = _source(tmp_path)
  examples = raw_sources.read(source)
  assert [(e.client, e.y, e.is_test) for e in examples] == [
    *(('ann', 2, False), ('bob', 1, False), ('ann', 1, False)),
    *(('bob', 0, False), ('ann', 2, True), ('bob', 0, False)),
  ]
  np.testing.assert_array_equal(examples[3].x, [6, 7])
  assert source.facts() == {'class_names': ['run', 'sit', 'walk']}
  assert source.has_test_split()


@pytest.mark.parametrize(
  ('x', 'dtype', 'scale'),
  [
    (np.zeros((6, 4, 4, 1), np.uint8), 'uint8', 1 / 255),
    (np.zeros((6, 5), np.int64), 'int32', 1.0),
    (np.zeros((6, 5)), 'float32', 1.0),
  ],
)
def test_dtype_of_x_says_what_it_means(tmp_path, x, dtype, scale):
  features = _source(tmp_path, x=x).features()
  assert features[:3] == (dtype, x.shape[1:], scale)
  # An embedding has no row of an id below 0.
  assert features.x_range == ((0, np.inf) if dtype == 'int32' else None)


@pytest.mark.parametrize(
  ('y', 'num_classes', 'task', 'count', 'shape'),
  [
    (np.arange(6) % 3, None, 'classification', 3, ()),
    (np.arange(6) % 3, 10, 'classification', 10, ()),
    (np.arange(6) / 3, None, 'regression', 0, ()),
    (np.arange(12).reshape(6, 2), None, 'classification', 12, (2,)),
  ],
)
def test_dtype_of_y_says_the_task(tmp_path, y, num_classes, task, count, shape):
  features = _source(tmp_path, y=y, num_classes=num_classes).features()
  assert features.task == task
  assert features.num_classes == count
  assert features.y_shape == shape


def test_official_test_split_is_optional(tmp_path):
  source = _source(tmp_path)
  (tmp_path / 'is_test.npy').unlink()
  assert not source.has_test_split()
  assert not any(example.is_test for example in raw_sources.read(source))


@pytest.mark.parametrize('name', ['x', 'is_test'])
def test_compressed_arrays_are_not_mapped(tmp_path, name):
  source = _source(tmp_path)
  (tmp_path / f'{name}.npy').rename(tmp_path / f'{name}.npy.gz')
  with pytest.raises(errors.DataError, match=rf'no plain file .*{name}\.npy\.'):
    source.features()


@pytest.mark.parametrize(
  ('arrays', 'words'),
  [
    (
      {'client': np.arange(6)},
      'client.npy must be an array of text, got int64',
    ),
    ({'x': np.zeros((5, 2))}, 'must have the same length, got 5 of x, 6 of y'),
    ({'y': np.zeros(6, int)}, 'one class alone, 0; a model needs two or more'),
    ({'y': np.ones(6, int)}, 'one class alone, 1; a model needs two or more'),
    ({'y': np.arange(6) % 2 * 2 - 1}, 'has the label -1. Number classes from'),
    ({'y': np.full(6, 'a')}, 'one class alone, a; a model needs two or more'),
    ({'y': np.array(['a', '', 'b'] * 2)}, 'has empty texts among its labels'),
    (
      {'y': np.array(['a', 'b'] * 3), 'num_classes': 3},
      'has labels that are texts, .* num_classes=3; leave it out',
    ),
    ({'y': np.arange(6) * 100}, 'classes from 0 to 500, for 6 labels'),
    ({'y': np.zeros((6, 2))}, 'must be one an example and no classes'),
    ({'y': np.float32(1)}, r'must be an array .* got float32 of shape \(\)'),
    ({'x': np.array([None] * 6)}, 'x.npy is no array of numbers'),
  ],
)
def test_unsuitable_arrays_are_one_clear_error(tmp_path, arrays, words):
  with pytest.raises(errors.DataError, match=words):
    _source(tmp_path, **arrays).features()


def test_changed_file_is_read_again(tmp_path):
  source = _source(tmp_path)
  assert raw_sources.read(source)[0].x[0] == 0
  np.save(tmp_path / 'x.npy', np.ones((6, 2), np.float32))
  assert raw_sources.read(source)[0].x[0] == 1
