import numpy as np

from pipelines.examples import encoding
from tff_algos.data import schema as schema_lib
from tff_algos.features import spec as spec_lib

_SPEC = spec_lib.FeatureSpec(
  (
    spec_lib.Feature('a', encoding='by_client'),
    spec_lib.Feature('c', 'category'),
  ),
  fitted={
    'a': {'mean': 10.0, 'variance': 4.0},
    'c': {'vocabulary': ['x']},
  },
)
_FITTED = encoding.Fitted(
  _SPEC, np.array([[1.0], [2.0]], 'f4'), np.array([[1.0], [4.0]], 'f4')
)


def test_each_example_by_its_client_or_by_all():
  columns = {
    'a': np.array([6, 6, 6], np.float32),
    'c': np.array(['x', '', 'x'], object),
  }
  encoded = encoding.Encoder(_FITTED).encode(columns, np.array([0, 1, -1]))
  np.testing.assert_array_equal(encoded, [[5, 0, 1], [1, 1, 0], [-2, 0, 1]])


def test_schema():
  schema = schema_lib.Schema('uint8', (), 9.0, 9.0, 'regression', 0, ('all',))
  stored = _FITTED.stored_as(schema)
  assert (stored.x_dtype, stored.x_shape) == ('float32', (3,))
  assert (stored.x_scale, stored.x_offset) == (1.0, 0.0)
  assert (stored.task, stored.source_names) == ('regression', ('all',))
