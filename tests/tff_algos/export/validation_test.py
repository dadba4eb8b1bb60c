"""What an export refuses, and what it lets through unchanged."""

import numpy as np
import pytest

from tests.testing import exportable
from tff_algos.core import errors
from tff_algos.export import validation


def test_sample_inputs_become_float32():
  model = exportable.linear_model()
  x = validation.check_sample_inputs(model, [[1, 2, 3, 4]])
  assert x.dtype == np.float32
  np.testing.assert_array_equal(x, [[1, 2, 3, 4]])


@pytest.mark.parametrize('shape', [[], [4], [0, 4], [1, 3], [1, 4, 1]])
def test_sample_inputs_of_another_shape_are_refused(shape):
  with pytest.raises(errors.ExportError, match='sample inputs must have shape'):
    validation.check_sample_inputs(exportable.linear_model(), np.zeros(shape))


def test_only_floats_can_be_infinite():
  validation.check_finite('counts', np.array([2**31 - 1]))
  validation.check_finite('weights', np.float32([1e38, -0.0]))
  with pytest.raises(errors.ExportError, match='weights must .* 2 of 3 values'):
    validation.check_finite('weights', np.float32([np.nan, 0, -np.inf]))


def test_leading_axis():
  validation.check_leading_axis('weights', np.zeros([3, 1]), 3)
  for shape in ([], [2], [2, 3]):
    with pytest.raises(errors.ExportError, match='weights must have 3 rows'):
      validation.check_leading_axis('weights', np.zeros(shape), 3)
