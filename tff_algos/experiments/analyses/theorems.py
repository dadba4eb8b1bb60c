"""Linear regressions as matrices and vectors, the intercept last."""

from typing import Any

import numpy as np

from tff_algos.data import schema


def rows_of(
  examples: schema.Examples, use_bias: bool
) -> tuple[np.ndarray, np.ndarray]:
  """Returns x `[n, d]`, with a last column of ones for an intercept, and y."""
  x = examples.x.reshape(examples.num_examples, -1)
  ones = np.ones([len(x), int(use_bias)])
  return np.concatenate([x, ones], axis=1), examples.y


def vectors(weights: Any) -> np.ndarray:
  """Returns stacked weights as vectors, float64 `[..., d]`."""
  leaves = [np.asarray(weights['kernel'], np.float64)[..., 0]]
  if 'bias' in weights:
    leaves.append(np.asarray(weights['bias'], np.float64))
  return np.concatenate(leaves, axis=-1)
