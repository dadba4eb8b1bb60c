import dataclasses

import numpy as np
import pytest

from tff_algos.core import errors
from tff_algos.data import schema as schema_lib

_IMAGES = schema_lib.Schema(
  x_dtype='uint8',
  x_shape=(2, 3, 1),
  x_scale=0.5,
  x_offset=-1.0,
  task='classification',
  num_classes=4,
  source_names=('upright', 'rotated'),
)
_VECTORS = schema_lib.Schema(
  x_dtype='float32',
  x_shape=(3,),
  x_scale=1.0,
  x_offset=0.0,
  task='regression',
  num_classes=0,
  source_names=('all',),
)
_TOKENS = dataclasses.replace(
  _VECTORS, x_dtype='int32', task='classification', num_classes=4
)
_SEQUENCES = dataclasses.replace(_TOKENS, y_shape=(3,))


def _stored(schema, n):
  generator = np.random.default_rng(0)
  return schema_lib.StoredExamples(
    x=generator.integers(0, 255, (n, *schema.x_shape)).astype(schema.x_dtype),
    y=generator.integers(0, 4, (n, *schema.y_shape)).astype(schema.y_dtype),
    source=generator.integers(0, 2, n).astype(np.int32),
    example_id=generator.integers(0, 255, (n, 16)).astype(np.uint8),
  )


@pytest.mark.parametrize('schema', [_IMAGES, _VECTORS, _TOKENS, _SEQUENCES])
@pytest.mark.parametrize('n', [0, 1, 5])
def test_record_reads_back(schema, n):
  stored = _stored(schema, n)
  decoded = schema_lib.decode_record(
    schema_lib.encode_record(stored, schema), schema
  )
  for before, after in zip(stored, decoded, strict=True):
    assert before.shape == after.shape
    assert before.dtype == after.dtype
    np.testing.assert_array_equal(before, after)


def test_schemas_come_back_from_manifests():
  assert _SEQUENCES.to_dict()['y_shape'] == [3]
  for schema in (_IMAGES, _TOKENS, _SEQUENCES):
    assert schema_lib.Schema.from_dict(schema.to_dict()) == schema


def test_record_of_another_dtype_is_refused():
  stored = _stored(_IMAGES, 2)
  with pytest.raises(TypeError):
    schema_lib.encode_record(
      stored._replace(x=stored.x.astype(np.float64)), _IMAGES
    )


@pytest.mark.parametrize('record', [b'', b'garbage', b'\x0a\x05hello'])
def test_record_that_is_none_is_a_data_error(record):
  with pytest.raises(errors.DataError, match='does not hold what the schema'):
    schema_lib.decode_record(record, _IMAGES)


def test_record_of_another_schema_is_a_data_error():
  record = schema_lib.encode_record(_stored(_VECTORS, 5), _VECTORS)
  with pytest.raises(errors.DataError, match='does not hold what the schema'):
    schema_lib.decode_record(record, _IMAGES)


def test_decode_x_scales_and_shifts():
  decoded = _IMAGES.decode_x(np.array([0, 2, 255], np.uint8))
  assert decoded.dtype == np.float32
  np.testing.assert_array_equal(decoded, [-1.0, 0.0, 126.5])


def test_schema_with_other_fields_is_a_data_error():
  values = _IMAGES.to_dict()
  del values['task']
  with pytest.raises(errors.DataError, match="'task'"):
    schema_lib.Schema.from_dict(values)


@pytest.mark.parametrize(
  ('x_shape', 'is_image'),
  [((8, 8, 1), True), ((8, 8, 3), True), ((8, 8, 2), False), ((8, 8), False)],
)
def test_images_have_one_or_three_channels(x_shape, is_image):
  schema = dataclasses.replace(_IMAGES, x_shape=x_shape)
  assert schema.is_image == is_image


def test_label_dtype_follows_the_task():
  assert _IMAGES.y_dtype == np.int32
  assert _VECTORS.y_dtype == np.float32


def test_tokens_are_read_as_they_are_stored():
  tokens = np.array([0, 2**24 + 1, -7], '<i4')  # No float32 for the second.
  decoded = _TOKENS.decode_x(tokens)
  assert decoded.dtype == np.int32
  np.testing.assert_array_equal(decoded, tokens)
