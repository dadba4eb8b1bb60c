import numpy as np
import pytest

from tff_algos.core import errors
from tff_algos.data import batching, schema


def _examples(n, dtype=np.int32):
  return schema.Examples(
    x=np.arange(n * 6, dtype=np.float32).reshape(n, 2, 3) + 1,
    y=np.arange(n, dtype=dtype) + 1,
    source=np.zeros(n, np.int32),
  )


def test_stack_with_an_empty_client():
  data = batching.stack([_examples(2), _examples(0), _examples(3)], 3)
  assert data.x.shape == (3, 3, 2, 3)
  np.testing.assert_array_equal(data.x[0, :2], _examples(2).x)
  assert not data.x[0, 2:].any()
  np.testing.assert_array_equal(data.x[2], _examples(3).x)
  np.testing.assert_array_equal(data.y, [[1, 2, 0], [0, 0, 0], [1, 2, 3]])
  np.testing.assert_array_equal(data.mask, [[1, 1, 0], [0, 0, 0], [1, 1, 1]])
  assert data.x.dtype == data.mask.dtype == np.float32


@pytest.mark.parametrize('dtype', [np.int32, np.float32])
def test_stack_keeps_the_label_dtype(dtype):
  assert batching.stack([_examples(2, dtype)], 4).y.dtype == dtype


def test_stack_refuses_to_cut_off():
  with pytest.raises(errors.DataError, match='5 examples.*capacity is 4'):
    batching.stack([_examples(5)], 4)


def test_tokens_stay_integers():
  tokens = np.array([[2**24 + 1, 2]], np.int32)
  one = _examples(1)._replace(x=tokens)
  data = batching.stack([one], 8)
  assert data.x.dtype == np.int32
  np.testing.assert_array_equal(data.x[0, :1], tokens)
