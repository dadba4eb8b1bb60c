"""Variance of the possible models of a round, measured.

Chen and Qiu (2025), arXiv:2503.08652, section 7.1.
Variances are of kernels, which can be compared; factors cannot
(`numerics.filters`).
"""

from typing import NamedTuple

import numpy as np


class Estimate(NamedTuple):
  """The variance of repeated rounds.

  Attributes:
    variance: Mean squared distance from the mean model, >= 0.
    relative: That over the squared norm of the mean model; 0 where that is 0.
      Networks with and without factors have weights of different size.
  """

  variance: float
  relative: float


def estimate(models: np.ndarray) -> Estimate:
  """Returns the variance of models, (1/N) sum |w_i - mean|^2.

  Args:
    models: One a row, `[num_repeats, ...]`.
  """
  rows = np.asarray(models, np.float64).reshape(len(models), -1)
  mean = rows.mean(axis=0)
  variance = float(np.sum((rows - mean) ** 2) / len(rows))
  size = float(np.sum(mean**2))
  return Estimate(variance, variance / size if size else 0.0)
