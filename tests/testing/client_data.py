"""Examples of one client as the tensors that its work gets."""

import numpy as np
import tensorflow as tf

from tff_algos.core import algorithm


def regression(size: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
  """Returns examples of a linear model with weights 1, -2, 0.5 and noise."""
  generator = np.random.default_rng(seed)
  x = generator.normal(size=(size, 3)).astype(np.float32)
  y = x @ [1, -2, 0.5] + generator.normal(size=size)
  return x, y.astype(np.float32)


def build(
  x: np.ndarray, y: np.ndarray, capacity: int = 0, filling: float = np.nan
) -> algorithm.ClientData:
  """Builds the data of a client; numbers have 32 bits.

  Args:
    x: Its inputs.
    y: Their labels.
    capacity: How many rows there are at least; the last ones are padding.
    filling: What all numbers of the padding are; integers are 0.
  """
  mask = np.arange(max(capacity, len(y))) < len(y)
  x, y = (_padded(one, len(mask), filling) for one in (x, y))
  return algorithm.ClientData(
    *map(tf.constant, (x, y, mask.astype(np.float32)))
  )


def _padded(array, capacity, filling):
  is_integer = array.dtype.kind == 'i'
  shape = (capacity, *array.shape[1:])
  padded = np.full(
    shape,
    0 if is_integer else filling,
    np.int32 if is_integer else np.float32,
  )
  padded[: len(array)] = array
  return padded
