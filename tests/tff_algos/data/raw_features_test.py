import pytest

from tff_algos.data import raw_features
from tff_algos.features import spec as spec_lib

_SCHEMA = {
  'x_dtype': 'uint8',
  'x_shape': [8, 8, 1],
  'x_scale': 0.0625,
  'x_offset': 0.5,
  'y_shape': [],
  'task': 'classification',
  'num_classes': 2,
  'source_names': ['all'],
}


def _spec(options=None, facts=None, **schema):
  return raw_features.of_manifest(
    {
      'schema': {**_SCHEMA, **schema},
      'recipe': {'source': {'options': options or {}}},
      'source_facts': facts or {},
    }
  )


def test_images():
  spec = _spec(facts={'class_names': ['cat', 'dog']})
  (feature,) = spec.features
  assert (feature.name, feature.type) == ('image', 'image')
  assert spec.output() == ('uint8', (8, 8, 1), 0.0625, 0.5)
  assert spec.classes == ('cat', 'dog')


@pytest.mark.parametrize(
  'schema',
  [
    {'x_dtype': 'float32'},
    {'x_shape': [8, 8, 4]},
    {'x_shape': [3]},
    {'x_dtype': 'int32', 'x_shape': [3], 'x_scale': 1.0, 'x_offset': 0.0},
  ],
)
def test_other_arrays_are_taken_as_they_are_stored(schema):
  (feature,) = _spec(**schema).features
  assert (feature.name, feature.type) == ('x', 'tensor')
  found = {**_SCHEMA, **schema}
  assert _spec(**schema).output() == (
    *(found['x_dtype'], tuple(found['x_shape'])),
    *(found['x_scale'], found['x_offset']),
  )


@pytest.mark.parametrize(
  ('options', 'facts', 'special'),
  [
    ({}, {'vocabulary': ['a', 'b'], 'special_ids': {'padding': 0}}, 1),
    ({'alphabet': 'ab'}, {}, 0),
  ],
)
def test_tokens(options, facts, special):
  spec = _spec(options, facts, x_dtype='int32', x_shape=[5])
  assert spec.features[0].raw_shape == (5,)
  assert spec.words() == ('a', 'b')
  assert len(spec.special_ids) == special


def test_columns_of_a_table_of_plain_numbers():
  options = {
    'feature_columns': ['a', 'b'],
    'classes': ['no', 'yes'],
    'label_column': 'y',
  }
  spec = _spec(options, x_dtype='float32', x_shape=[2], x_scale=1.0, x_offset=0)
  assert [one.name for one in spec.features] == ['a', 'b']
  assert {one.encoding for one in spec.features} == {'plain'}
  assert (spec.classes, spec.label) == (('no', 'yes'), 'y')
  assert spec.output() == ('float32', (2,), 1, 0)


def test_fitted_spec_of_the_manifest():
  spec = spec_lib.FeatureSpec((spec_lib.Feature('a', encoding='plain'),))
  assert raw_features.of_manifest({'features': spec.to_dict()}) == spec
