import pytest

from tff_algos.core import errors
from tff_algos.features import spec as spec_lib

_AGE = spec_lib.Feature('age')
_COLOR = spec_lib.Feature('color', 'category', size=3)
_NOTE = spec_lib.Feature('note', 'text', 'ids', length=4)
_IMAGE = spec_lib.Feature('photo', 'image', shape=(4, 5, 3))


def _fitted(**more):
  return spec_lib.FeatureSpec(
    (_AGE, _COLOR),
    fitted={
      'age': {'mean': 1.5, 'variance': 2.0},
      'color': {'vocabulary': ['red', '']},
    },
    classes=('no', 'yes'),
    **more,
  )


def test_defaults_by_type():
  assert (_AGE.encoding, _AGE.size) == ('standardize', None)
  assert spec_lib.Feature('c', 'category').size == 100
  assert spec_lib.Feature('t', 'text').encoding == 'tf_idf'
  assert spec_lib.Feature('w', length=5).raw_shape == (5,)
  assert _NOTE.raw_shape == () and _NOTE.size == 10_000


@pytest.mark.parametrize(
  ('values', 'text'),
  [
    ({'name': 'label'}, 'Rename the column'),
    ({'name': 'client_mean'}, 'Rename the column'),
    ({'name': ''}, 'must not be empty'),
    ({'type': 'date'}, 'number'),
    ({'encoding': 'one_hot'}, 'standardize'),
    ({'encoding': 'plain', 'missing': 'mean'}, 'needs a number that is'),
    ({'missing': 'drop'}, 'indicator'),
    ({'type': 'image'}, r'needs shape=\(height'),
    ({'type': 'image', 'shape': (0, 8, 1)}, 'shape of .* must be .*1, got 0'),
    ({'type': 'image', 'shape': (4, 4, 2)}, '1 or 3'),
    ({'shape': (2,)}, 'takes no shape'),
    ({'type': 'text', 'encoding': 'ids'}, 'needs a length'),
    ({'encoding': 'bucketize', 'length': 3}, 'cannot be bucketized'),
    ({'type': 'category', 'size': 0}, 'size'),
    ({'encoding': 'bucketize', 'size': 1}, 'size of .* must be .*2, got 1'),
  ],
)
def test_bad_feature(values, text):
  with pytest.raises(errors.ConfigError, match=text):
    spec_lib.Feature(**{'name': 'age', **values})


@pytest.mark.parametrize(
  ('features', 'text'),
  [
    ((), 'at least one'),
    ((_AGE, _AGE), 'a name of its own'),
    ((_AGE, _NOTE), "'note' is an input by itself"),
    ((_IMAGE, _AGE), "'photo' is an input by itself"),
    ((spec_lib.Feature('w', length=5), _AGE), 'same length'),
  ],
)
def test_bad_spec(features, text):
  with pytest.raises(errors.ConfigError, match=text):
    spec_lib.FeatureSpec(features)


def test_output():
  assert _fitted().output() == ('float32', (4,), 1.0, 0.0)
  assert _fitted().unfitted().output() is None
  image = spec_lib.FeatureSpec((_IMAGE,), scale=1 / 255)
  assert image.output() == ('uint8', (4, 5, 3), 1 / 255, 0.0)
  assert spec_lib.FeatureSpec((_NOTE,)).output() == ('int32', (4,), 1.0, 0.0)
  windows = tuple(
    spec_lib.Feature(name, 'number', 'plain', length=6) for name in 'ab'
  )
  assert spec_lib.FeatureSpec(windows).output() == ('float32', (6, 2), 1, 0)


def test_fit_of_ids_has_special_ids():
  spec = spec_lib.FeatureSpec((_NOTE,))
  fitted = spec.fit({'note': {'vocabulary': ['b', 'a']}})
  assert fitted.special_ids == {'padding': 0, 'unknown': 1}
  assert fitted.words() == ('b', 'a')
  assert fitted.unfitted() == spec
  assert _fitted().words() == ()


def test_round_trip_and_digest():
  spec = _fitted(unit='kg')
  again = spec_lib.FeatureSpec.from_dict(spec.to_dict())
  assert again == spec
  assert again.digest() == spec.digest() != _fitted().digest()


def test_damaged_spec_is_a_data_error():
  with pytest.raises(errors.DataError, match='build the dataset again'):
    spec_lib.FeatureSpec.from_dict({'colour': 1})


def test_difference_names_the_column():
  spec = _fitted()
  assert spec.difference(_fitted()) is None
  other = spec.fit({**spec.fitted, 'age': {'mean': 3.0, 'variance': 2.0}})
  assert spec.difference(other) == ('fitted.age.mean: 3.0 there, 1.5 here')
  assert spec.difference(_fitted(label='y')) is None
  wider = other.fit({**other.fitted, 'color': {'vocabulary': ['x', 'y']}})
  assert str(spec.difference(wider)).startswith('fitted.color.vocabulary: ')
  assert 'fitted.age.mean: absent there' in str(
    spec.difference(spec.fit({'color': spec.fitted['color']}))
  )
  turned = spec_lib.FeatureSpec((_COLOR, _AGE), fitted=spec.fitted)
  assert 'classes' in str(spec.difference(turned))
  short = spec.fit({**spec.fitted, 'color': {'vocabulary': ['x'] * 1000}})
  assert len(str(spec.difference(short))) < 510


@pytest.mark.parametrize(
  ('name', 'here', 'there'),
  [
    ('range', {'minimum': 0.0, 'maximum': 1.0}, {'minimum': 0, 'maximum': 255}),
    ('hour', {'boundaries': [6.0, 12.0]}, {'boundaries': [360.0, 720.0]}),
    ('hour', {'boundaries': [6.0]}, {'boundaries': [360.0]}),
    (
      'size',
      {'mean': 0.001, 'variance': 1.0},
      {'mean': 0.1, 'variance': 10_000.0},
    ),
    ('word', {'vocabulary': ['a']}, {'vocabulary': ['b', 'c']}),
  ],
)
def test_difference_names_the_column_of_another_scale(name, here, there):
  """The others differ as samples do."""
  names = ('age', name, 'zip')
  features = tuple(spec_lib.Feature(one) for one in names)
  spec = spec_lib.FeatureSpec(features)
  ours = {'mean': -0.01, 'variance': 2.0}
  theirs = {'mean': 0.01, 'variance': 2.5}
  first = spec.fit({'age': ours, 'zip': ours, name: here})
  second = spec.fit({'age': theirs, 'zip': theirs, name: there})
  assert str(first.difference(second)).startswith(f'fitted.{name}.')
  assert str(second.difference(first)).startswith(f'fitted.{name}.')


@pytest.mark.parametrize(
  'options',
  [
    {'type': 'text', 'length': 50},
    {'size': 5},
    {'type': 'category', 'split': 'characters'},
    {'type': 'category', 'length': 2},
  ],
)
def test_options_without_effect_are_refused(options):
  with pytest.raises(errors.ConfigError, match='has no effect on feature .a'):
    spec_lib.Feature('a', **options)
