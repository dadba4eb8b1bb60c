"""Counts, sums and ranges of examples, which add up."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tff_algos.core.structures import Array
from tff_algos.data import schema as schema_lib


class Totals(NamedTuple):
  """Counts and sums over examples; D is the number of features.

  Attributes:
    num_examples: Number of examples n.
    label_counts: Labels of each class, int64 `[num_classes]`.
    source_counts: Examples of each source distribution, int64 `[num_sources]`.
    sums: Sums of the columns: D features, then the label of a regression,
      float64 `[D]` or `[D + 1]`.
    squares: Sums of their squares.
    products: Sums of feature times label, of a regression, `[D]`; else `[0]`.
    minimum: Smallest value of each column, float64; +inf without examples.
    maximum: Largest value; -inf without examples.
  """

  num_examples: int
  label_counts: Array
  source_counts: Array
  sums: Array
  squares: Array
  products: Array
  minimum: Array
  maximum: Array

  def to_lists(self) -> list[Any]:
    """Returns the fields as `json` writes them, without a loss."""
    num_examples, *arrays = self
    return [num_examples, *(array.tolist() for array in arrays)]

  @classmethod
  def from_lists(cls, lists: Sequence[Any]) -> 'Totals':
    """Returns the totals of such fields."""
    num_examples, *arrays = lists
    return cls(num_examples, *map(np.array, arrays))


def measure(examples: schema_lib.Examples, schema: schema_lib.Schema) -> Totals:
  """Returns the totals of zero or more examples, in float64."""
  num_examples = len(examples.y)
  num_features = int(np.prod(schema.x_shape))
  columns = examples.x.reshape(num_examples, num_features).astype(np.float64)
  products = np.zeros(0)
  label_counts = np.zeros(0, np.int64)
  if schema.num_classes:
    label_counts = np.bincount(examples.y.ravel(), minlength=schema.num_classes)
  else:
    y = examples.y.astype(np.float64)
    # Not a matrix product, whose summation order depends on the machine.
    products = (columns * y[:, None]).sum(axis=0)
    columns = np.concatenate([columns, y[:, None]], axis=1)
  return Totals(
    num_examples=num_examples,
    label_counts=label_counts,
    source_counts=np.bincount(examples.source, minlength=schema.num_sources),
    sums=columns.sum(axis=0),
    squares=(columns**2).sum(axis=0),
    products=products,
    minimum=columns.min(axis=0, initial=np.inf),
    maximum=columns.max(axis=0, initial=-np.inf),
  )


def add(first: Totals, second: Totals) -> Totals:
  """Returns the totals of two sets of examples together."""
  return Totals(
    num_examples=first.num_examples + second.num_examples,
    label_counts=first.label_counts + second.label_counts,
    source_counts=first.source_counts + second.source_counts,
    sums=first.sums + second.sums,
    squares=first.squares + second.squares,
    products=first.products + second.products,
    minimum=np.minimum(first.minimum, second.minimum),
    maximum=np.maximum(first.maximum, second.maximum),
  )


def describe(
  totals: Totals, *, num_features: int, by_feature: bool
) -> dict[str, Any]:
  """Returns means and standard deviations, JSON-ready.

  Variances are those of the population (divided by n).

  Args:
    totals: The totals.
    num_features: D.
    by_feature: Whether to include every single feature.

  Returns:
    `num_examples`, `label_counts`, `source_counts`; `x`, over all features of
    all examples, and for regression `y`, each with `mean`, `std`, `min` and
    `max`, or None without examples; with `by_feature` also `features`: the
    same four, lists `[D]`, and for regression `covariance_with_y`, too.
  """
  n, features = totals.num_examples, slice(0, num_features)
  described: dict[str, Any] = {
    'num_examples': n,
    'label_counts': totals.label_counts.tolist(),
    'source_counts': totals.source_counts.tolist(),
  }
  columns = {'x': features}
  has_y = len(totals.sums) > num_features
  if has_y:
    columns['y'] = slice(num_features, num_features + 1)
  for name, part in columns.items():
    described[name] = _describe_columns(totals, part) if n else None
  if by_feature and n:
    each = [
      _describe_columns(totals, slice(i, i + 1)) for i in range(num_features)
    ]
    described['features'] = {
      name: [column[name] for column in each] for name in each[0]
    }
    if has_y:
      covariances = totals.products / n - (
        (totals.sums[features] / n) * (totals.sums[-1] / n)
      )
      described['features']['covariance_with_y'] = covariances.tolist()
  return described


def _describe_columns(totals: Totals, part: slice) -> dict[str, float]:
  """Returns mean, standard deviation and range of pooled columns."""
  sums = totals.sums[part]
  count = totals.num_examples * len(sums)
  mean = float(sums.sum()) / count
  variance = float(totals.squares[part].sum()) / count - mean**2
  return {
    'mean': mean,
    'std': max(variance, 0.0) ** 0.5,
    'min': float(totals.minimum[part].min()),
    'max': float(totals.maximum[part].max()),
  }
