"""Summaries of metrics over clients and seeds, and the majority-class baseline.

NumPy in, Python numbers out.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import special

# Two differences that are equal by chance would have an interval of length 0.
LEAST_SEEDS = 3
# Ends of metric names of which the smallest value is the best.
_ERRORS = (
  *('loss', 'mse', 'error', 'inertia', 'moved_clients', 'num_undecided'),
  *('consensus_distance', 'transition_distance', 'variance', 'mapping_norm'),
)
# What a name of a metric ends with in the other members of a `ClientSummary`.
_MEMBERS = ('_plain_mean', '_worst_decile')
_NUM_NAN = '_num_nan'


class ClientSummary(NamedTuple):
  """One metric summarized over clients; NaN without valid clients.

  Attributes:
    weighted_mean: Mean weighted by examples: the metric over all examples.
    plain_mean: Unweighted mean over clients.
    worst_decile: Mean of the worst 10 % of the clients, see `worst_decile`: the
      lowest of an accuracy, the highest of an error.
    num_nan: Clients left out because their value is NaN despite examples.
  """

  weighted_mean: float
  plain_mean: float
  worst_decile: float
  num_nan: int


def is_error(metric: str) -> bool:
  """Returns whether the smallest value of a metric is the best, by its name."""
  return _weighted(metric.rpartition('/')[2]).endswith((*_ERRORS, _NUM_NAN))


def is_partial(metrics: Mapping[str, Any], name: str) -> bool:
  """Returns whether a mean over clients leaves some out as not finite.

  Such a mean rises as models of difficult clients break: nothing is chosen by
  it.

  Args:
    metrics: Metrics of a round, numbers or texts.
    name: Name of the mean.
  """
  return float(metrics.get(num_left_out(name)) or 0) > 0


def num_left_out(name: str) -> str:
  """Returns the name of the count of clients that a mean leaves out."""
  return f'{_weighted(name)}{_NUM_NAN}'


def whole(metrics: Mapping[str, Any], name: str) -> float:
  """Returns a metric; NaN if there is none, or if it `is_partial`."""
  value = metrics.get(name)
  if value in (None, '') or is_partial(metrics, name):
    return math.nan
  return float(value)


def _weighted(name: str) -> str:
  """Returns the name of the weighted mean of a member of its summary."""
  for member in _MEMBERS:
    name = name.removesuffix(member)
  return name


def mean_interval(values: np.ndarray) -> tuple[float, float, float]:
  """Returns the mean over seeds and the ends of its 95 % interval.

  Student's t.

  Args:
    values: A difference of two scores for each seed, float `[n]`, n >= 1.

  Returns:
    (mean, low, high); the ends are NaN below `LEAST_SEEDS` values.
  """
  mean, half = float(values.mean()), math.nan
  if len(values) >= LEAST_SEEDS:
    error = values.std(ddof=1) / math.sqrt(len(values))
    half = float(special.stdtrit(len(values) - 1, 0.975) * error)
  return mean, mean - half, mean + half


def worst_decile(values: np.ndarray, *, higher_is_better: bool) -> np.ndarray:
  """Returns the mean of the worst tenth over the last axis.

  The tenth is rounded down, and has at least one value.
  """
  count = max(1, values.shape[-1] // 10)
  ascending = np.sort(values, axis=-1)
  worst_first = ascending if higher_is_better else ascending[..., ::-1]
  return worst_first[..., :count].mean(axis=-1)


def summarize(
  values: np.ndarray, num_examples: np.ndarray, *, higher_is_better: bool
) -> ClientSummary:
  """Summarizes one metric over clients.

  Args:
    values: The metric of each client, float `[num_clients]`; NaN where it is
      not defined.
    num_examples: The examples that each value is a mean of, `[num_clients]`,
      >= 0.
    higher_is_better: True for an accuracy, False for a loss or an error.

  Raises:
    ValueError: If the shapes differ or a count is negative.
  """
  values = np.asarray(values, np.float64)
  num_examples = np.asarray(num_examples, np.int64)
  if values.ndim != 1 or values.shape != num_examples.shape:
    raise ValueError(
      'values and num_examples must be two vectors of one length, got shapes '
      f'{values.shape} and {num_examples.shape}'
    )
  if (num_examples < 0).any():
    raise ValueError(f'num_examples must be >= 0, got {num_examples.min()}')
  has_examples = num_examples > 0
  counted = has_examples & ~np.isnan(values)
  kept, weights = values[counted], num_examples[counted]
  means = (np.nan, np.nan, np.nan)
  if kept.size:
    means = (
      float(np.average(kept, weights=weights)),
      float(kept.mean()),
      float(worst_decile(kept, higher_is_better=higher_is_better)),
    )
  return ClientSummary(*means, num_nan=int((has_examples & ~counted).sum()))


def label_histograms(
  labels: Sequence[np.ndarray], num_classes: int
) -> np.ndarray:
  """Counts every client's labels.

  Args:
    labels: Integers `[num_examples]` of each client, in [0, num_classes).
    num_classes: Number of classes, >= 1.

  Returns:
    int64 `[num_clients, num_classes]`.

  Raises:
    ValueError: If a label is out of range.
  """
  for y in labels:
    if len(y) and not 0 <= y.min() <= y.max() < num_classes:
      raise ValueError(
        f'labels must be from 0 to {num_classes - 1}, '
        f'got {y.min()} to {y.max()}'
      )
  counts = [np.bincount(y, minlength=num_classes) for y in labels]
  return np.reshape(np.array(counts, np.int64), (-1, num_classes))


def majority_share(labels: np.ndarray) -> float:
  """Returns the share of the most frequent label; NaN without labels.

  Args:
    labels: Integers >= 0, `[num_examples]`.
  """
  return (
    float(np.bincount(labels).max() / len(labels)) if len(labels) else np.nan
  )


def majority_scores(train: np.ndarray, test: np.ndarray) -> dict[str, float]:
  """Returns the accuracy of always predicting one class, on test labels.

  `per_client` predicts the most frequent class of each client's own training
  labels, `global` that of all training labels. A tie takes the lowest class. A
  client without training labels predicts the class of all clients. NaN without
  test labels.

  Args:
    train: Counts of training labels, int64 `[num_clients, num_classes]`.
    test: Counts of test labels, of the same shape.
  """
  of_all = int(train.sum(axis=0).argmax())
  own = np.where(train.sum(axis=1) > 0, train.argmax(axis=1), of_all)
  rows, total = np.arange(len(test)), test.sum()
  return {
    name: float(test[rows, classes].sum() / total) if total else np.nan
    for name, classes in (('per_client', own), ('global', of_all))
  }
