"""JSON values become arrays of the signature's dtype, or an error."""

import base64
import json

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import meta_graph_pb2

from tff_algos.core import errors
from tff_algos.serving import tensors


def signature(**inputs):
  """Returns a signature from name -> (dtype, shape)."""
  definition = meta_graph_pb2.SignatureDef()
  for name, (dtype, shape) in inputs.items():
    definition.inputs[name].dtype = dtype
    for size in shape:
      definition.inputs[name].tensor_shape.dim.add(size=size)
  return definition


FLOATS = signature(v=(types_pb2.DT_FLOAT, [-1]))
INTS = signature(v=(types_pb2.DT_INT32, [-1]))
STRINGS = signature(v=(types_pb2.DT_STRING, [-1]))
BOOLS = signature(v=(types_pb2.DT_BOOL, [-1]))
PAIRS = signature(v=(types_pb2.DT_FLOAT, [-1, 2]))


def convert(value, definition):
  return tensors.inputs_from_columns({'v': value}, definition)['v']


@pytest.mark.parametrize(
  ('value', 'definition', 'expected'),
  [
    ([1, 2.5, -3], FLOATS, np.float32([1, 2.5, -3])),
    ([2**31 - 1, -(2**31)], INTS, np.int32([2**31 - 1, -(2**31)])),
    ([True, False], BOOLS, np.array([True, False])),
    ([], INTS, np.zeros([0], np.int32)),
    ([[1, 2], [3, 4]], PAIRS, np.float32([[1, 2], [3, 4]])),
  ],
)
def test_numbers(value, definition, expected):
  actual = convert(value, definition)
  assert actual.dtype == expected.dtype
  np.testing.assert_array_equal(actual, expected)


@hypothesis.given(st.lists(st.binary(max_size=9)))
def test_strings_as_base64(values):
  spelled = [{'b64': base64.b64encode(value).decode()} for value in values]
  assert convert(spelled, STRINGS).tolist() == values


@pytest.mark.parametrize(
  ('value', 'definition', 'text'),
  [
    ([1, '4'], FLOATS, 'must hold numbers, got a string'),
    ([1, None], FLOATS, 'must hold numbers, got null'),
    ([1, True], FLOATS, 'must hold numbers, got true or false'),
    ([1, {}], FLOATS, 'must hold numbers, got an object'),
    ([1, 10**400], FLOATS, 'a number that does not fit in float32'),
    ([1, 1e39], FLOATS, 'must be finite'),
    ([0.5], INTS, 'must hold whole numbers, got a number with a fraction'),
    ([1.0], INTS, 'must hold whole numbers, got a number with a fraction'),
    ([2**31], INTS, 'a number that does not fit in int32'),
    ([10**100], INTS, 'a number that does not fit in int32'),
    ([1], BOOLS, 'must hold true or false, got a whole number'),
    ([1], STRINGS, 'must hold strings .* got a whole number'),
    (['\ud800'], STRINGS, 'in base64: UnicodeEncodeError'),
    ([{'b64': '*'}], STRINGS, 'in base64: Error'),
    ([{'b64': 3}], STRINGS, 'in base64: TypeError'),
    ([{'c64': ''}], STRINGS, 'in base64: KeyError'),
    ([[1, 2], [3]], PAIRS, 'its lists differ in length or depth'),
    ([[1, 2], 3], PAIRS, 'its lists differ in length or depth'),
    ([[1, 2, 3]], PAIRS, r'must have shape \[batch, 2\], got \[1, 3\]'),
    (3, FLOATS, r'must have shape \[batch\], got \[\]'),
  ],
)
def test_values_that_do_not_fit_are_refused(value, definition, text):
  with pytest.raises(errors.RequestError, match=text) as error:
    convert(value, definition)
  assert error.value.status == 400


@pytest.mark.parametrize('bad', [np.nan, np.inf, -np.inf])
def test_arrays_that_are_not_finite_are_refused(bad):
  """As gRPC brings them; JSON has none."""
  info = FLOATS.inputs['v']
  tensors.check_input('v', np.float32([1, 2]), info)
  with pytest.raises(errors.RequestError, match="input 'v' must be finite"):
    tensors.check_input('v', np.float32([1, bad]), info)


def test_null_is_a_missing_number_of_a_raw_column():
  values = tensors.inputs_from_columns({'v': [1, None]}, FLOATS, is_raw=True)
  np.testing.assert_array_equal(values['v'], np.float32([1, np.nan]))
  rows = [{'v': None}, {'v': 2.5}]
  values = tensors.inputs_from_rows(rows, FLOATS, max_rows=9, is_raw=True)
  np.testing.assert_array_equal(values['v'], np.float32([np.nan, 2.5]))
  with pytest.raises(errors.RequestError, match='whole numbers, got null'):
    tensors.inputs_from_columns({'v': [None]}, INTS, is_raw=True)


def test_rows_and_columns_agree():
  definition = signature(
    v=(types_pb2.DT_FLOAT, [-1, 2]), n=(types_pb2.DT_INT32, [-1])
  )
  rows = [{'v': [1, 2], 'n': 5}, {'v': [3, 4], 'n': 6}]
  by_row = tensors.inputs_from_rows(rows, definition, max_rows=9)
  by_column = tensors.inputs_from_columns(
    {'v': [[1, 2], [3, 4]], 'n': [5, 6]}, definition
  )
  for name in ('v', 'n'):
    np.testing.assert_array_equal(by_row[name], by_column[name])


def test_single_base64_value_is_no_named_object():
  encoded = {'b64': base64.b64encode(b'a').decode()}
  rows = tensors.inputs_from_rows([encoded, 'b'], STRINGS, max_rows=9)
  assert rows['v'].tolist() == [b'a', b'b']


def test_replies():
  outputs = {'a': np.float32([1, 2]), 'b': np.array([b'x', b'y'], object)}
  assert tensors.rows_from_outputs(outputs) == [
    {'a': 1.0, 'b': 'x'},
    {'a': 2.0, 'b': 'y'},
  ]
  assert tensors.columns_from_outputs(outputs) == {
    'a': [1.0, 2.0],
    'b': ['x', 'y'],
  }
  single = {'a': np.int32([[1], [2]])}
  assert tensors.rows_from_outputs(single) == [[1], [2]]
  assert tensors.columns_from_outputs(single) == [[1], [2]]
  assert json.dumps(tensors.columns_from_outputs({'a': np.float32(3)})) == '3.0'


def test_outputs_named_bytes_are_base64():
  outputs = {'raw_bytes': np.array([b'\xff'], object)}
  assert tensors.rows_from_outputs(outputs) == [{'b64': '/w=='}]


@pytest.mark.parametrize('other', [np.float32(0), np.zeros([3])])
def test_rows_need_a_common_batch_axis(other):
  with pytest.raises(errors.RequestError, match="ask with 'inputs' instead"):
    tensors.rows_from_outputs({'a': np.zeros([2]), 'b': other})


@pytest.mark.parametrize(
  ('dtype', 'name'),
  [(types_pb2.DT_BFLOAT16, 'bfloat16'), (types_pb2.DT_COMPLEX64, 'complex64')],
)
def test_numbers_that_json_does_not_have(dtype, name):
  with pytest.raises(errors.RequestError, match=f"'v' is of {name}, .* gRPC"):
    convert([1.0], signature(v=(dtype, [-1])))
