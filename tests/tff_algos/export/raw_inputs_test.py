"""Names of inputs, checks of raw values, and made-up rows."""

import numpy as np
import pytest
import tensorflow as tf

from tff_algos.export import raw_inputs
from tff_algos.features import spec as spec_lib

_F = spec_lib.Feature


def test_names_are_valid_and_distinct():
  columns = [
    'age',
    'a b',
    'a_b',
    'a(b',
    'class',
    'self',
    'client id',
    '1st',
    '_x',
    'ğ',
    'ş',
  ]
  names = raw_inputs.argument_names(columns)
  assert list(names) == columns and len(set(names.values())) == 11
  assert names['age'] == 'age' and names['a_b'] == 'a_b'
  assert {names['a b'], names['a(b']} == {'a_b_2', 'a_b_3'}
  assert names['class'] == 'class_2' and names['self'] == 'self_2'
  assert names['client id'] == 'client_id_2'
  assert names['1st'] == 'column_1st' and names['_x'] == 'column__x'
  specs = {name: tf.TensorSpec([], name=name) for name in names.values()}
  tf.function(lambda **inputs: inputs).get_concrete_function(**specs)


def test_unknown_words_of_a_vocabulary_without_an_id_for_them():
  spec = spec_lib.FeatureSpec(
    (_F('tokens', 'tokens', length=2),),
    fitted={'tokens': {'vocabulary': ['a', 'b']}},
    dtype='int32',
  )
  inputs = raw_inputs.RawInputs(spec)
  ids = inputs.model_input({'tokens': tf.constant([['b', 'a'], ['a', 'a']])})
  assert ids.numpy().tolist() == [[1, 0], [0, 0]]
  text = 'column tokens must hold words of the vocabulary, got é in row 1'
  with pytest.raises(tf.errors.InvalidArgumentError, match=text):
    inputs.model_input({'tokens': tf.constant([['b', 'a'], ['a', 'é']])})
  assert raw_inputs.example_columns(spec)['tokens'].tolist() == [['a', 'a']]


def test_a_made_up_row_is_valid():
  spec = spec_lib.FeatureSpec(
    (
      _F('u', encoding='by_client'),
      _F('v', encoding='log'),
      _F('w', encoding='min_max'),
      _F('x', encoding='bucketize'),
      _F('c', 'category'),
      _F('h', 'category', 'hash', size=3),
      _F('t', 'text', 'count'),
    ),
    fitted={
      'u': {'mean': 3.0, 'variance': 0.0},
      'v': {'mean': 2.0, 'variance': 4.0},
      'w': {'minimum': 5.0, 'maximum': 6.0},
      'x': {'boundaries': [0.5]},
      'c': {'vocabulary': ['p', 'q']},
      't': {'vocabulary': ['one', 'two', 'three', 'four']},
    },
  )
  row = raw_inputs.example_columns(spec)
  encoded = raw_inputs.RawInputs(spec).model_input(
    {name: tf.constant(value) for name, value in row.items()}
  )
  (values,) = encoded.numpy()
  assert np.isfinite(values).all()
  # No fitted value, which may be one client's, stands in a row.
  assert row.pop('client_deviation') == 1
  assert all(not value.any() for value in row.values())
