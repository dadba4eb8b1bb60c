"""Variance of the possible models of a round, measured and in theory.

Chen and Qiu (2025), arXiv:2503.08652, section 7.1 and Proposition 5.1.
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


class FactorLaw(NamedTuple):
  """A scalar coefficient and atom of a client: independent, and of all clients.

  Attributes:
    coefficient_mean: a.
    atom_mean: d.
    coefficient_variance: s^2, >= 0.
    atom_variance: t^2, >= 0.
  """

  coefficient_mean: float
  atom_mean: float
  coefficient_variance: float
  atom_variance: float


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


def sum_squared_shares(shares: np.ndarray) -> float:
  """Returns sum p_k^2 of the clients' shares p in a mean, which sum to 1."""
  return float(np.sum(np.square(shares)))


def gap_of_independent_kernels(shares: np.ndarray, variance: float) -> float:
  """Returns Var(product of means) - Var(mean of kernels) of Proposition 5.1.

  It takes all m^2 kernels as independent, -(1 - S) S V <= 0 with S = sum p^2.
  They share factors, so `variance_of_product` is what really is.

  Args:
    shares: p, `[num_clients]`.
    variance: V, of each kernel.
  """
  squares = sum_squared_shares(shares)
  return -(1 - squares) * squares * variance


def variance_of_mean(shares: np.ndarray, law: FactorLaw) -> float:
  """Returns Var(sum_k p_k alpha_k D_k)."""
  first, second = _orders(law)
  return sum_squared_shares(shares) * (first + second)


def variance_of_product(shares: np.ndarray, law: FactorLaw) -> float:
  """Returns Var(sum_k p_k alpha_k * sum_k p_k D_k).

  Only its part of second order, s^2 t^2, is smaller than in the mean.
  """
  squares = sum_squared_shares(shares)
  first, second = _orders(law)
  return squares * first + squares**2 * second


def _orders(law):
  """Returns a^2 t^2 + d^2 s^2, and s^2 t^2."""
  a, d, s, t = law
  return a**2 * t + d**2 * s, s * t
