"""Distances between distributions."""

import numpy as np


def total_variation(p: np.ndarray, q: np.ndarray) -> np.ndarray:
  """Returns half the sum of absolute differences, from 0 to 1.

  Args:
    p: Distributions over the last axis, `[..., C]`.
    q: The same, of a shape that broadcasts with p's.

  Returns:
    float64 `[...]`; 1 for distributions with disjoint supports.
  """
  return 0.5 * np.sum(np.abs(p - q), axis=-1)


def standardized_shift(
  first_mean: np.ndarray,
  first_std: np.ndarray,
  second_mean: np.ndarray,
  second_std: np.ndarray,
) -> float:
  """Returns the distance between means of features, in standard deviations.

  The square root of the mean, over features, of (difference of means)^2 /
  variance of the equal mixture of both. Each feature contributes at most 4, as
  the variance includes the difference of the means. Features that are constant
  and equal in both are ignored.

  Args:
    first_mean: `[D]`.
    first_std: `[D]`, >= 0.
    second_mean: `[D]`.
    second_std: `[D]`, >= 0.

  Returns:
    From 0, equal means, to 2, different means and no variance within either.
  """
  difference = np.square(np.subtract(first_mean, second_mean))
  within = (np.square(first_std) + np.square(second_std)) / 2
  variance = within + difference / 4
  counts = variance > 0
  if not counts.any():
    return 0.0
  return float(np.sqrt(np.mean(difference[counts] / variance[counts])))
