import numpy as np
import pytest

from pipelines import options
from pipelines.examples import distributions
from pipelines.sources import base, registry
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


def test_permutations_need_one_label_for_each_example():
  features = base.token_features(5, 9)._replace(y_shape=(5,))
  with pytest.raises(errors.ConfigError, match='one class for each example'):
    distributions._label_permutations(
      options.DistributionsConfig('label_permutations', num_permutations=2),
      features,
      0,
    )


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


def test_label_permutations_of_few_classes_are_different():
  for seed in range(8):
    found = distributions.label_permutations(6, 3, seed)
    labels = {tuple(one.transform(None, np.arange(3))[1]) for one in found}
    assert len(labels) == 6


def test_native_distributions_have_the_names_of_the_source():
  built = _build('native', _REGRESSION)
  assert [one.name for one in built] == ['theta_0', 'theta_1', 'theta_2']


def test_native_distributions_are_shown_one_after_the_other():
  built = _build('noise', _REGRESSION, noise_levels=(0.0, 1.0))
  assert [one.name for one in built] == [
    *('theta_0_noise_0', 'theta_0_noise_1', 'theta_1_noise_0'),
    *('theta_1_noise_1', 'theta_2_noise_0', 'theta_2_noise_1'),
  ]


@pytest.mark.parametrize(
  ('kind', 'source', 'more', 'text'),
  [
    ('native', _DIGITS, {}, 'source has no distributions of its own'),
    ('identity', _REGRESSION, {}, 'source has distributions of its own'),
    ('rotations', _REGRESSION, {'quarter_turns': (0,)}, 'need square images'),
    (
      'label_permutations',
      _REGRESSION,
      {'num_permutations': 2},
      'source has distributions of its own',
    ),
  ],
)
def test_distributions_must_go_with_the_source(kind, source, more, text):
  with pytest.raises(errors.ConfigError, match=text):
    _build(kind, source, **more)


def test_rotations_need_square_images(tmp_path):
  table = registry.create(
    'csv',
    {
      'path': str(tmp_path / 'x.csv'),
      'label_column': 'y',
      'feature_columns': ['a', 'b'],
    },
    0,
  )
  with pytest.raises(errors.ConfigError, match=r'square images.*\(2,\)'):
    _build('rotations', table, quarter_turns=(0, 1))
  with pytest.raises(errors.ConfigError, match='need classes'):
    _build('label_permutations', table, num_permutations=2)
  with pytest.raises(errors.ConfigError, match=r'images of bytes.*\(2,\)'):
    _build('colors', table, colors=('original',))


def test_noise_has_its_level():
  """Deviation of 64,000 values within 5 standard errors: alarms < 1e-6."""
  clean, noisy = _build('noise', noise_levels=(0.0, 0.1))
  assert (clean.name, noisy.name) == ('noise_0', 'noise_0.1')
  generator = np.random.default_rng(0)
  x = generator.integers(7, 10, (1000, 8, 8, 1), np.uint8)  # Far from 0 and 16.
  y = np.arange(1000)
  assert clean.transform(x, y)[0] is x
  shown, labels = noisy.transform(x, y)
  assert shown.dtype == np.uint8
  np.testing.assert_array_equal(labels, y)
  noise = (shown.astype(float) - x) / 16
  # Rounding to whole bytes adds (1/16)^2 / 12.
  expected = np.sqrt(0.1**2 + (1 / 16) ** 2 / 12)
  assert abs(noise.mean()) < 5 * expected / 64_000**0.5
  assert abs(noise.std() - expected) < 5 * expected / 128_000**0.5


def test_noise_depends_on_content_and_seed_alone():
  def noisy(seed):
    config = options.DistributionsConfig('noise', noise_levels=(0.5,))
    return distributions.build_distributions(config, _DIGITS, seed)[0]

  x = np.random.default_rng(0).integers(0, 17, (5, 8, 8, 1), np.uint8)
  x[4] = x[0]
  shown, _ = noisy(0).transform(x, np.zeros(5))
  back, _ = noisy(0).transform(x[::-1], np.zeros(5))
  np.testing.assert_array_equal(back[::-1], shown)
  np.testing.assert_array_equal(shown[4], shown[0])
  assert np.any(noisy(1).transform(x, np.zeros(5))[0] != shown)
  assert shown.min() == 0
  assert shown.max() == 16  # The white of the digits.
  assert noisy(0).transform(x[:0], np.zeros(0))[0].shape == (0, 8, 8, 1)


def test_noise_of_real_features_is_not_clipped():
  features = base.Features('float32', (3,), 0.5, 0.0, 'regression', 0)
  noisy = distributions.gaussian_noise(2.0, features, 0)
  x = np.zeros((2000, 3), np.float32)
  x[:, 0] = np.arange(2000)  # Rows that differ.
  shown, _ = noisy.transform(x, np.zeros(2000))
  assert shown.dtype == np.float32
  noise = (shown - x) * 0.5
  assert abs(noise.std() - 2) < 5 * 2 / 12_000**0.5
  assert noise.min() < -4


_COLORED = base.image_features((1, 2, 3), 10)
_PIXELS = np.array([[[[10, 20, 30], [255, 0, 128]]]], np.uint8)


@pytest.mark.parametrize(
  ('name', 'expected'),
  [
    ('original', [[10, 20, 30], [255, 0, 128]]),
    ('inverted', [[245, 235, 225], [0, 255, 127]]),
    ('gbr', [[20, 30, 10], [0, 128, 255]]),
    ('brg', [[30, 10, 20], [128, 255, 0]]),
    # 0.299 R + 0.587 G + 0.114 B: 18.15 and 90.837.
    ('gray', [[18, 18, 18], [91, 91, 91]]),
  ],
)
def test_colors(name, expected):
  shown, y = distributions.coloring(name, _COLORED).transform(
    _PIXELS, np.array([4])
  )
  np.testing.assert_array_equal(shown, [[expected]])
  assert shown.dtype == np.uint8
  np.testing.assert_array_equal(y, [4])


def test_colors_need_channels():
  inverted, original = _build('colors', colors=('inverted', 'original'))
  x = np.full((1, 8, 8, 1), 3, np.uint8)
  assert np.all(inverted.transform(x, None)[0] == 13)
  assert np.all(original.transform(x, None)[0] == 3)
  with pytest.raises(errors.ConfigError, match=r"\['gray'\] need three"):
    _build('colors', colors=('gray', 'original'))


def test_examples_without_a_label_get_none():
  _, permuted = distributions.label_permutations(2, 10, 0)
  _, y = permuted.transform(None, np.array([-1, 3, -1], np.int32))
  _, expected = permuted.transform(None, np.array([3]))
  np.testing.assert_array_equal(y, [-1, expected[0], -1])
  assert y.dtype == np.int32
