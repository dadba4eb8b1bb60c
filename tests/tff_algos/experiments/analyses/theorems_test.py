"""Linear regressions as matrices and vectors."""

import numpy as np
import pytest

from tff_algos.data import schema
from tff_algos.experiments.analyses import theorems

_X = np.arange(6, dtype=np.float32).reshape(2, 3)
_EXAMPLES = schema.Examples(
  _X.reshape(2, 3, 1), np.array([1, 2], np.float32), np.zeros(2, np.int32)
)


@pytest.mark.parametrize('use_bias', [False, True])
def test_the_intercept_stands_last_in_rows_and_in_weights(use_bias):
  x, y = theorems.rows_of(_EXAMPLES, use_bias)
  assert x.shape == (2, 3 + use_bias)
  np.testing.assert_array_equal(x[:, :3], _X)
  np.testing.assert_array_equal(x[:, 3:], 1)
  np.testing.assert_array_equal(y, [1, 2])
  kernels, biases = np.array([[1, 2, 3], [4, 5, 6]]), np.array([[7], [8]])
  weights = {'kernel': kernels[..., np.newaxis]}
  if use_bias:
    weights['bias'] = biases
  found = theorems.vectors(weights)
  assert found.dtype == np.float64
  expected = np.concatenate([kernels, biases], axis=1)[:, : 3 + use_bias]
  np.testing.assert_array_equal(found, expected)
