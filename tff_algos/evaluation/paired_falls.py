"""Fall of scores from one model to another, with paired bootstrap intervals.

Both models are scored on the same units (clients, or examples); a resample
draws units with both scores, so that what makes a unit difficult for both
cancels out.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import special

# Largest number of scores of all resamples in memory at once.
_MAX_CHUNK = 1 << 22

# Least expected number of resamples beyond a quantile of theirs.
_MIN_BEYOND = 10

# An error that rises from 0 rises from this.
_MIN_ERROR = 1e-12

# Scores `[..., num_units]` -> `[...]`.
Statistic = Callable[[np.ndarray], np.ndarray]


class Fall(NamedTuple):
  """Fall of a statistic of scores, with its confidence bounds.

  Of an accuracy the fall is a difference, 0.01 for a point of percentage; of
  an error it is its rise relative to the first model's, 0.01 for a percent.

  Attributes:
    before: Statistic of the first model's scores.
    after: Of the second model's.
    fall: How much worse the second one is; negative if it is better.
    low: One-sided lower confidence bound of the fall; of one unit, which has
      none, the fall.
    high: One-sided upper confidence bound of the fall; likewise.
  """

  before: float
  after: float
  fall: float
  low: float
  high: float


def mean(scores: np.ndarray) -> np.ndarray:
  """Returns the unweighted mean over the last axis."""
  return scores.mean(axis=-1)


def estimate(
  before: np.ndarray,
  after: np.ndarray,
  rng: np.random.Generator,
  *,
  higher_is_better: bool,
  tail: float,
  num_resamples: int,
  statistic: Statistic = mean,
) -> Fall:
  """Returns the fall between paired scores, with expanded percentile bounds.

  The plain percentile interval is too narrow for few units; its tails are
  expanded as those of a t interval are against a normal one with the variance
  of the resamples (Hesterberg, "What Teachers Should Know About the Bootstrap",
  The American Statistician 2015). Bounds beyond the last ten resamples are as
  many times as far out as in a normal distribution.

  Args:
    before: Scores of the first model by unit, `[num_units]`, num_units >= 1.
    after: Scores of the second model, in the same order.
    rng: Draws the resamples.
    higher_is_better: True for an accuracy, False for an error.
    tail: Probability of a fall below `low`, and of one above `high`, in
      (0, 1).
    num_resamples: Number of resamples.
    statistic: Statistic whose fall is estimated.

  Raises:
    ValueError: If the shapes differ, or there is no unit.
  """
  before, after = (np.asarray(one, np.float64) for one in (before, after))
  if before.shape != after.shape or before.ndim != 1 or not before.size:
    raise ValueError(
      'before and after must be two vectors of one length >= 1, got shapes '
      f'{before.shape} and {after.shape}'
    )
  num_units = before.size
  chunk = max(1, _MAX_CHUNK // num_units)
  falls = []
  for start in range(0, num_resamples, chunk):
    size = min(chunk, num_resamples - start)
    rows = rng.integers(num_units, size=(size, num_units))
    falls.append(
      _fall(statistic(before[rows]), statistic(after[rows]), higher_is_better)
    )
  first, second = statistic(before), statistic(after)
  fall = _fall(first, second, higher_is_better)
  resampled = np.concatenate(falls)
  # In normal deviations: the tail itself may be too small for a float.
  deviations = _deviations(tail, num_units)
  expanded = special.ndtr(deviations)
  known = max(expanded, _MIN_BEYOND / num_resamples)
  low, high = np.quantile(resampled, (known, 1 - known))
  if expanded < known:
    stretch = deviations / special.ndtri(known)
    low, high = (fall + stretch * (one - fall) for one in (low, high))
  return Fall(
    before=float(first),
    after=float(second),
    fall=float(fall),
    low=float(low),
    high=float(high),
  )


def _deviations(tail: float, num_units: int) -> float:
  """Returns the tail of an estimate as a number of normal deviations."""
  if num_units == 1:
    return -1.0  # Every resample is the unit.
  deviations = special.stdtrit(num_units - 1, tail)
  return float(deviations * np.sqrt(num_units / (num_units - 1)))


def _fall(
  before: np.ndarray, after: np.ndarray, higher_is_better: bool
) -> np.ndarray:
  if higher_is_better:
    return before - after
  return (after - before) / np.maximum(before, _MIN_ERROR)
