"""Statistics of raw columns that a feature spec is fitted from.

They are mergeable and bounded in memory: moments, extents, and the sketches of
Apache DataSketches for quantiles and frequent words. Merged in the order of the
blocks, they do not depend on the runner.
"""

# DataSketches has no types.
# pyright: reportAttributeAccessIssue=false
import abc
import base64
import math
from collections.abc import Iterable, Mapping
from typing import Any

import datasketches
import numpy as np

from tff_algos.core import errors
from tff_algos.core.structures import Array
from tff_algos.features import spec as spec_lib

# t-digest: at most some 2,000 centroids a column; the rank of a quantile was
# within 0.2 % in `column_statistics_test.py`.
_COMPRESSION = 1000
# Deviation of a column that counts as constant, relative to its mean.
_ROUNDING = 1e-12
# Counts are exact up to 0.75 * 2^17 different words. The sketch of more keeps
# those of a share of about 3e-5 of all.
_LOG_MAX_WORDS = 17


class Statistic(abc.ABC):
  """Mergeable statistic of a column."""

  @abc.abstractmethod
  def add(self, values: Array) -> None:
    """Adds the values of some examples, missing ones left out."""

  @abc.abstractmethod
  def merge(self, state: Any) -> None:
    """Adds another statistic's `state()`."""

  @abc.abstractmethod
  def state(self) -> Any:
    """Returns the content, JSON-ready."""

  @abc.abstractmethod
  def finish(self, feature: spec_lib.Feature) -> dict[str, Any]:
    """Returns the fitted values of `spec.FITTED`."""


class Moments(Statistic):
  """Mean and variance, in float64."""

  def __init__(self) -> None:
    self._count, self._mean, self._squares = 0, 0.0, 0.0

  def add(self, values: Array) -> None:
    """See base class."""
    if values.size:
      values = values.astype(np.float64).ravel()
      mean = math.fsum(values) / values.size
      self.merge([values.size, mean, math.fsum((values - mean) ** 2)])

  def merge(self, state: Any) -> None:
    """See base class."""
    count, mean, squares = state
    total = self._count + count
    if count:
      # Chan, Golub and LeVeque (1983).
      difference = mean - self._mean
      self._mean += difference * count / total
      self._squares += squares + difference**2 * self._count * count / total
      self._count = total

  def state(self) -> Any:
    """See base class."""
    return [self._count, self._mean, self._squares]

  def finish(self, feature: spec_lib.Feature) -> dict[str, Any]:
    """See base class; a constant column has variance 1."""
    _check_any(self._count, feature)
    return dict(self.fitted_or({}))

  def fitted_or(self, otherwise: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the fitted values, or others if there were no values.

    The variance of a constant column is the other one, or 1 if there is none.
    """
    if not self._count:
      return otherwise
    variance = self._squares / self._count
    # What rounding leaves of a constant column, such as a logarithm.
    is_constant = variance <= (_ROUNDING * self._mean) ** 2
    if is_constant:
      variance = otherwise.get('variance', 1.0)
    return {'mean': self._mean, 'variance': variance}


class LogMoments(Moments):
  """Moments of log(1 + x)."""

  def add(self, values: Array) -> None:
    """See base class."""
    super().add(np.log1p(values.astype(np.float64)))


class Extent(Statistic):
  """Least and greatest value."""

  def __init__(self) -> None:
    self._minimum, self._maximum = math.inf, -math.inf

  def add(self, values: Array) -> None:
    """See base class."""
    if values.size:
      self.merge([float(values.min()), float(values.max())])

  def merge(self, state: Any) -> None:
    """See base class."""
    self._minimum = min(self._minimum, state[0])
    self._maximum = max(self._maximum, state[1])

  def state(self) -> Any:
    """See base class."""
    return [self._minimum, self._maximum]

  def finish(self, feature: spec_lib.Feature) -> dict[str, Any]:
    """See base class; a constant column has a width of 1, or more to be > 0."""
    _check_any(self._maximum >= self._minimum, feature)
    maximum = self._maximum
    if maximum == self._minimum:
      maximum += max(1.0, math.ulp(maximum))
    return {'minimum': self._minimum, 'maximum': maximum}


class Quantiles(Statistic):
  """Quantiles, by a t-digest."""

  def __init__(self) -> None:
    self._digest = datasketches.tdigest_double(_COMPRESSION)

  def add(self, values: Array) -> None:
    """See base class."""
    self._digest.update(values.astype(np.float64).ravel())

  def merge(self, state: Any) -> None:
    """See base class."""
    content = base64.b64decode(state)
    self._digest.merge(datasketches.tdigest_double.deserialize(content))

  def state(self) -> Any:
    """See base class."""
    return base64.b64encode(self._digest.serialize()).decode()

  def finish(self, feature: spec_lib.Feature) -> dict[str, Any]:
    """See base class."""
    _check_any(not self._digest.is_empty(), feature)
    size = feature.size or 1
    quantiles = {
      float(np.float32(self._digest.get_quantile(share)))
      for share in np.arange(1, size) / size
    }
    return {'boundaries': sorted(quantiles)}


class Frequencies(Statistic):
  """Most frequent categories, or words by the number of examples with them."""

  def __init__(self) -> None:
    self._sketch = datasketches.frequent_strings_sketch(_LOG_MAX_WORDS)
    self._count = 0

  def add(self, values: Iterable[Iterable[str]]) -> None:
    """Adds the words of each of some examples."""
    for words in values:
      self._count += 1
      for word in sorted(set(words)):
        self._sketch.update(word)

  def merge(self, state: Any) -> None:
    """See base class."""
    count, content = state
    self._count += count
    self._sketch.merge(
      datasketches.frequent_strings_sketch.deserialize(
        base64.b64decode(content)
      )
    )

  def state(self) -> Any:
    """See base class."""
    return [self._count, base64.b64encode(self._sketch.serialize()).decode()]

  def finish(self, feature: spec_lib.Feature) -> dict[str, Any]:
    """See base class."""
    _check_any(self._count, feature)
    found = self._sketch.get_frequent_items(
      datasketches.frequent_items_error_type.NO_FALSE_NEGATIVES
    )
    ranked = sorted((-count, word) for word, count, *_ in found)
    ranked = ranked[: feature.size]
    if not ranked:
      raise errors.DataError(
        f'the texts of column {feature.name!r} have no word in any training '
        'example of a participating client; leave the column out'
      )
    fitted: dict[str, Any] = {'vocabulary': [word for _, word in ranked]}
    if feature.encoding == spec_lib.TF_IDF:
      # As `tf.keras.layers.TextVectorization.adapt`.
      fitted['idf'] = [
        math.log(1 + self._count / (1 - negative)) for negative, _ in ranked
      ]
    return fitted


_STATISTICS: Mapping[str, type[Statistic]] = {
  spec_lib.STANDARDIZE: Moments,
  spec_lib.BY_CLIENT: Moments,
  spec_lib.LOG: LogMoments,
  spec_lib.MIN_MAX: Extent,
  spec_lib.BUCKETIZE: Quantiles,
  spec_lib.ONE_HOT: Frequencies,
  spec_lib.COUNT: Frequencies,
  spec_lib.MULTI_HOT: Frequencies,
  spec_lib.TF_IDF: Frequencies,
  spec_lib.IDS: Frequencies,
}


def create(spec: spec_lib.FeatureSpec) -> dict[str, Statistic]:
  """Returns an empty statistic for each column that is to be fitted."""
  return {
    feature.name: _STATISTICS[feature.encoding]()
    for feature in spec.features
    if feature.encoding in _STATISTICS
  }


def add(
  statistics: Mapping[str, Statistic],
  spec: spec_lib.FeatureSpec,
  columns: Mapping[str, Array],
) -> None:
  """Adds some examples to the statistics of all columns."""
  for feature in spec.features:
    if feature.name in statistics:
      values = columns[feature.name]
      statistics[feature.name].add(_to_measure(feature, values))


def finish(
  statistics: Mapping[str, Statistic], spec: spec_lib.FeatureSpec
) -> dict[str, dict[str, Any]]:
  """Returns the fitted values by column.

  Raises:
    DataError: If a column has no value at all.
  """
  return {
    feature.name: statistics[feature.name].finish(feature)
    for feature in spec.features
    if feature.name in statistics
  }


def _to_measure(feature: spec_lib.Feature, values: Array) -> Any:
  """Returns what a statistic takes: numbers that are there, or words."""
  if feature.type == spec_lib.NUMBER:
    return values[~np.isnan(values)]
  if feature.type == spec_lib.CATEGORY:
    return [[value] for value in values]
  # Tables without texts are measured without TensorFlow.
  import tensorflow as tf  # noqa: PLC0415

  from tff_algos.features import preprocessing  # noqa: PLC0415

  texts = preprocessing.split_text(feature, tf.constant(values, tf.string))
  return [[word.decode() for word in words] for words in texts.numpy().tolist()]


def _check_any(count: object, feature: spec_lib.Feature) -> None:
  """Raises DataError if a column has no value to be fitted from."""
  if not count:
    raise errors.DataError(
      f'column {feature.name!r} has no value in any training example of a '
      'participating client, so that its encoding cannot be fitted; leave the '
      'column out, or take another partition'
    )
