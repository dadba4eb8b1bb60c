import numpy as np
import pytest

from pipelines import distributions, options
from pipelines.sources import registry
from tff_algos.core import errors

_DIGITS = registry.create('digits', {}, 0)
_REGRESSION = registry.create('linear_regression', {'num_sources': 3}, 0)


def _build(kind, source=_DIGITS, **more):
  config = options.DistributionsConfig(kind, **more)
  return distributions.build_distributions(config, source, 0)


def test_identity():
  (only,) = _build('identity')
  x, y = np.ones((2, 8, 8, 1)), np.array([1, 2])
  assert only.name == 'all'
  assert only.transform(x, y) == (x, y)


def test_rotation_is_counter_clockwise():
  upright, rotated = _build('rotations', quarter_turns=(0, 1))
  assert (upright.name, rotated.name) == ('upright', 'rotated_90')
  x = np.arange(8).reshape(2, 2, 2, 1)  # [[0, 1], [2, 3]] and the next four
  y = np.array([5, 6])
  turned, labels = rotated.transform(x, y)
  np.testing.assert_array_equal(turned[0, :, :, 0], [[1, 3], [0, 2]])
  np.testing.assert_array_equal(turned[1], np.rot90(x[1]))
  np.testing.assert_array_equal(labels, y)
  np.testing.assert_array_equal(upright.transform(x, y)[0], x)


def test_four_turns_give_back_the_image():
  quarter = distributions.rotation(1)
  x = np.random.default_rng(0).integers(0, 9, (3, 4, 4, 1))
  turned = x
  for turns in range(1, 5):
    turned, _ = quarter.transform(turned, None)
    expected, _ = distributions.rotation(turns % 4).transform(x, None)
    np.testing.assert_array_equal(turned, expected)
  np.testing.assert_array_equal(turned, x)


def test_label_permutations():
  same, first, second = _build('label_permutations', num_permutations=3)
  labels = np.arange(10)
  x = np.zeros((10, 8, 8, 1))
  np.testing.assert_array_equal(same.transform(x, labels)[1], labels)
  for permuted in (first, second):
    y = permuted.transform(x, labels)[1]
    np.testing.assert_array_equal(np.sort(y), labels)
    assert np.any(y != labels)
  assert np.any(first.transform(x, labels)[1] != second.transform(x, labels)[1])


def test_native_distributions_have_the_names_of_the_source():
  built = _build('native', _REGRESSION)
  assert [one.name for one in built] == ['theta_0', 'theta_1', 'theta_2']


@pytest.mark.parametrize(
  ('kind', 'source', 'more', 'text'),
  [
    ('native', _DIGITS, {}, 'source has no distributions of its own'),
    ('identity', _REGRESSION, {}, 'source has distributions of its own'),
    ('rotations', _REGRESSION, {'quarter_turns': (0,)}, 'has distributions'),
  ],
)
def test_distributions_must_go_with_the_source(kind, source, more, text):
  with pytest.raises(errors.ConfigError, match=text):
    _build(kind, source, **more)


def test_rotations_need_square_images(tmp_path):
  table = registry.create(
    'csv',
    {
      'folder': str(tmp_path),
      'train_file': 'x.csv',
      'label_column': 'y',
      'feature_columns': ['a', 'b'],
    },
    0,
  )
  with pytest.raises(errors.ConfigError, match=r'square images.*\(2,\)'):
    _build('rotations', table, quarter_turns=(0, 1))
  with pytest.raises(errors.ConfigError, match='need classes'):
    _build('label_permutations', table, num_permutations=2)
