import math

import numpy as np
import pytest

from pipelines.examples import column_statistics
from tff_algos.core import errors
from tff_algos.features import spec as spec_lib

_BLOCKS = np.split(
  np.random.default_rng(0).normal(3, 2, 4000).astype(np.float32), 8
)


def _merged(feature, blocks):
  """Returns the fitted values of blocks that are measured apart."""
  spec = spec_lib.FeatureSpec((feature,))
  merged = column_statistics.create(spec)
  for block in blocks:
    statistics = column_statistics.create(spec)
    column_statistics.add(statistics, spec, {feature.name: block})
    merged[feature.name].merge(statistics[feature.name].state())
  return column_statistics.finish(merged, spec)[feature.name]


def _objects(*values):
  return np.array([*values, None], object)[:-1]


def test_moments():
  whole = np.concatenate(_BLOCKS).astype(np.float64)
  found = _merged(spec_lib.Feature('a'), [*_BLOCKS, np.array([np.nan])])
  assert found['mean'] == pytest.approx(whole.mean(), rel=1e-14)
  assert found['variance'] == pytest.approx(whole.var(), rel=1e-13)


def test_moments_of_logarithms():
  blocks = [np.abs(block) for block in _BLOCKS]
  whole = np.log1p(np.concatenate(blocks).astype(np.float64))
  found = _merged(spec_lib.Feature('a', encoding='log'), blocks)
  assert found['mean'] == pytest.approx(whole.mean(), rel=1e-14)
  assert found['variance'] == pytest.approx(whole.var(), rel=1e-13)


def test_a_constant_column_is_divided_by_nothing():
  constant = [np.full(5, 7, np.float32)]
  found = _merged(spec_lib.Feature('a'), constant)
  assert found == {'mean': 7.0, 'variance': 1.0}
  found = _merged(spec_lib.Feature('a', encoding='min_max'), constant)
  assert found == {'minimum': 7.0, 'maximum': 8.0}


def test_a_constant_client_has_the_deviation_of_all():
  of_all = {'mean': 3.0, 'variance': 4.0}
  moments = column_statistics.Moments()
  assert moments.fitted_or(of_all) == of_all
  moments.add(np.full(2, 7, np.float32))
  assert moments.fitted_or(of_all) == {'mean': 7.0, 'variance': 4.0}
  moments.add(np.full(2, 9, np.float32))
  assert moments.fitted_or(of_all) == {'mean': 8.0, 'variance': 1.0}


def test_rounding_is_no_variance():
  """Means of equal logarithms differ in the last bit."""
  for value in np.float32([0, 1e-20, 1e30, *np.linspace(0.1, 9, 40)]):
    blocks = [np.full(size, value) for size in (3, 5, 7, 49)]
    found = _merged(spec_lib.Feature('a', encoding='log'), blocks)
    mean = np.log1p(np.float64(value))
    assert found == {'mean': pytest.approx(mean, rel=1e-14), 'variance': 1.0}


def test_small_numbers_have_their_variance():
  whole = np.array([1e-15, 3e-15], np.float32)
  found = _merged(spec_lib.Feature('a'), [whole])
  assert found['variance'] == pytest.approx(1e-30, rel=1e-6)


def test_extent():
  found = _merged(spec_lib.Feature('a', encoding='min_max'), _BLOCKS)
  whole = np.concatenate(_BLOCKS)
  assert found == {'minimum': whole.min(), 'maximum': whole.max()}


def test_quantiles():
  """The share of values below each boundary; it moves by 0.2 % at most."""
  feature = spec_lib.Feature('a', encoding='bucketize', size=4)
  boundaries = _merged(feature, _BLOCKS)['boundaries']
  whole = np.concatenate(_BLOCKS)
  shares = [(whole < boundary).mean() for boundary in boundaries]
  np.testing.assert_allclose(shares, [0.25, 0.5, 0.75], atol=0.002)


def test_most_frequent_categories():
  feature = spec_lib.Feature('c', 'category', size=2)
  blocks = [_objects('b', 'a', ''), _objects('b', '', 'c'), _objects()]
  assert _merged(feature, blocks) == {'vocabulary': ['', 'b']}


def test_words_by_the_number_of_examples_that_have_them():
  feature = spec_lib.Feature('t', 'text', size=2)
  blocks = [_objects('no no no', 'Größe!'), _objects('größe, yes', '')]
  found = _merged(feature, blocks)
  assert found['vocabulary'] == ['größe', 'no']
  np.testing.assert_allclose(
    found['idf'], [math.log(1 + 4 / 3), math.log(1 + 4 / 2)]
  )


def test_many_words_in_bounded_memory():
  """Frequent words survive 150,000 different ones in one sketch."""
  frequencies = column_statistics.Frequencies()
  frequencies.add([f'w{i}', f'often{i % 3}'] for i in range(150_000))
  assert len(frequencies.state()[1]) < 4_000_000
  fitted = frequencies.finish(spec_lib.Feature('t', 'category', size=3))
  assert sorted(fitted['vocabulary']) == ['often0', 'often1', 'often2']


@pytest.mark.parametrize(
  'feature',
  [
    spec_lib.Feature('a'),
    spec_lib.Feature('a', encoding='min_max'),
    spec_lib.Feature('a', encoding='bucketize'),
    spec_lib.Feature('a', 'category'),
  ],
)
def test_nothing_to_fit_from(feature):
  nothing = np.array([], object if feature.is_text else np.float32)
  with pytest.raises(errors.DataError, match="column 'a' has no value"):
    _merged(feature, [nothing, nothing])


def test_texts_without_a_word():
  with pytest.raises(errors.DataError, match='have no word'):
    _merged(spec_lib.Feature('t', 'text'), [_objects('?!', '')])


@pytest.mark.parametrize(
  ('value', 'maximum'), [(3.0, 4.0), (-(2.0**24), 1 - 2.0**24), (1e17, None)]
)
def test_a_constant_column_has_a_width(value, maximum):
  feature = spec_lib.Feature('x', encoding='min_max')
  found = _merged(feature, [np.full(2, value, np.float32)])
  assert found['maximum'] > found['minimum'] == np.float32(value)
  assert maximum is None or found['maximum'] == maximum
