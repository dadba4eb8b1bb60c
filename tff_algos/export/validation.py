"""Input checks of an export, before any file is written."""

import numpy as np

from tff_algos.core import errors
from tff_algos.core import model as model_lib


def check_sample_inputs(
  model: model_lib.Model, sample_inputs: np.ndarray
) -> np.ndarray:
  """Returns the sample inputs in the input dtype of the model.

  Raises:
    ExportError: Unless they are `[n, *input_shape]`, n >= 1, and finite.
  """
  x = np.asarray(sample_inputs, model.input_dtype.as_numpy_dtype)
  if x.ndim == 0 or len(x) < 1 or x.shape[1:] != tuple(model.input_shape):
    raise errors.ExportError(
      f'sample inputs must have shape [n, *{list(model.input_shape)}] with '
      f'n >= 1, got {list(x.shape)}'
    )
  check_finite('sample inputs', x)
  return x


def check_finite(name: str, values: np.ndarray) -> None:
  """Raises NonFiniteError if floating-point values are NaN or infinite."""
  if np.issubdtype(values.dtype, np.floating):
    num_bad = values.size - np.count_nonzero(np.isfinite(values))
    if num_bad:
      raise errors.NonFiniteError(
        f'{name} must be finite, but {num_bad} of {values.size} values are '
        f'NaN or infinite. Export an earlier round.'
      )


def check_leading_axis(name: str, values: np.ndarray, size: int) -> None:
  """Raises ExportError unless axis 0 of an array has this size."""
  if values.ndim == 0 or values.shape[0] != size:
    raise errors.ExportError(
      f'{name} must have {size} rows, got shape {list(values.shape)}'
    )
