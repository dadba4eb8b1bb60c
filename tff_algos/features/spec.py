"""Feature spec: raw columns, and how each becomes a model's input.

A spec is part of a dataset's manifest and of an exported bundle, so that both
know how raw data was encoded. `preprocessing.py` computes the encoding.
"""

import dataclasses
import math
import statistics
from collections.abc import Mapping
from typing import Any, NamedTuple

from tff_algos.core import checks, errors
from tff_algos.core import config as config_lib

NUMBER = 'number'
CATEGORY = 'category'
TEXT = 'text'
IMAGE = 'image'
TOKENS = 'tokens'
TENSOR = 'tensor'

PLAIN = 'plain'
STANDARDIZE = 'standardize'
BY_CLIENT = 'by_client'
MIN_MAX = 'min_max'
LOG = 'log'
BUCKETIZE = 'bucketize'
ONE_HOT = 'one_hot'
HASH = 'hash'
COUNT = 'count'
MULTI_HOT = 'multi_hot'
TF_IDF = 'tf_idf'
IDS = 'ids'
PIXELS = 'pixels'

# type -> its encodings, the default first.
ENCODINGS = {
  NUMBER: (STANDARDIZE, PLAIN, BY_CLIENT, MIN_MAX, LOG, BUCKETIZE),
  CATEGORY: (ONE_HOT, HASH),
  TEXT: (TF_IDF, COUNT, MULTI_HOT, IDS),
  IMAGE: (PIXELS,),
  # Of sources whose examples are arrays already.
  TOKENS: (IDS,),
  TENSOR: (PLAIN,),
}
# Encoding -> the default of `Feature.size`.
_SIZES = {
  BUCKETIZE: 10,
  ONE_HOT: 100,
  HASH: 100,
  COUNT: 1000,
  MULTI_HOT: 1000,
  TF_IDF: 1000,
  IDS: 10_000,
}
# What is learned from data, by encoding.
FITTED = {
  STANDARDIZE: ('mean', 'variance'),
  BY_CLIENT: ('mean', 'variance'),
  LOG: ('mean', 'variance'),
  MIN_MAX: ('minimum', 'maximum'),
  BUCKETIZE: ('boundaries',),
  ONE_HOT: ('vocabulary',),
  COUNT: ('vocabulary',),
  MULTI_HOT: ('vocabulary',),
  TF_IDF: ('vocabulary', 'idf'),
  IDS: ('vocabulary',),
}

REFUSE = 'refuse'
MEAN = 'mean'
INDICATOR = 'indicator'

WORDS = 'words'
CHARACTERS = 'characters'

# Ids of a fitted text; its words follow.
PADDING_ID = 0
UNKNOWN_ID = 1

# Statistics of each row's client, for columns encoded `by_client`.
CLIENT_MEAN = 'client_mean'
CLIENT_DEVIATION = 'client_deviation'
# Names that bundles give to other inputs.
RESERVED = (
  *('client_id', 'cluster_id', 'mixture', 'label'),
  *(CLIENT_MEAN, CLIENT_DEVIATION),
)


@dataclasses.dataclass(frozen=True)
class Feature:
  """One raw column, and how it becomes a part of a model's input.

  Attributes:
    name: Name of the column.
    type: `'number'`, `'category'`, `'text'` or `'image'` (an encoded PNG, JPEG
      or BMP); `'tokens'` and `'tensor'` are for sources of arrays.
    encoding: Of a number: `'standardize'` (zero mean, unit variance),
      `'by_client'` (the same by the statistics of each client), `'min_max'` (to
      0 to 1), `'log'` (log(1 + x), standardized; x >= 0), `'bucketize'` (one of
      `size` quantiles, one-hot) or `'plain'`. Of a category: `'one_hot'` (the
      `size` most frequent, and one place for all others) or `'hash'` (one of
      `size` bins). Of a text: `'tf_idf'`, `'count'` or `'multi_hot'` of the
      `size` words that most examples have, or `'ids'` of the first `length`
      words. '' is the first named.
    missing: Of a number: `'refuse'`, `'mean'` (what is missing takes the mean)
      or `'indicator'` (also, with another input that is 1 where it is
      missing). An empty category is a category, an empty text has no words.
    size: See `encoding`; None for a default.
    length: Steps of a number that is a window, or words of a text as ids.
    split: Of a text: into `'words'` or `'characters'`.
    shape: `(height, width, channels)` of an image; another size is resized.
      Also the shape of a tensor.
  """

  name: str
  type: str = NUMBER
  encoding: str = ''
  missing: str = REFUSE
  size: int | None = None
  length: int | None = None
  split: str = WORDS
  shape: tuple[int, ...] | None = None

  def __post_init__(self) -> None:
    what = f'feature {self.name!r}'
    if not self.name or self.name in RESERVED:
      raise errors.ConfigError(
        f'the name of a feature must not be empty or one of '
        f'{", ".join(RESERVED)}, got {self.name!r}. Rename the column.'
      )
    checks.check_one_of(f'the type of {what}', self.type, tuple(ENCODINGS))
    encodings = ENCODINGS[self.type]
    object.__setattr__(self, 'encoding', self.encoding or encodings[0])
    checks.check_one_of(f'the encoding of {what}', self.encoding, encodings)
    checks.check_one_of(
      f'missing of {what}', self.missing, (REFUSE, MEAN, INDICATOR)
    )
    checks.check_one_of(f'split of {what}', self.split, (WORDS, CHARACTERS))
    if self.missing != REFUSE and 'mean' not in FITTED.get(self.encoding, ()):
      raise errors.ConfigError(
        f'missing={self.missing!r} needs a number that is standardized, got '
        f'{what} with the encoding {self.encoding!r}'
      )
    if self.encoding in _SIZES and self.size is None:
      object.__setattr__(self, 'size', _SIZES[self.encoding])
    if self.size is not None:
      minimum = 2 if self.encoding == BUCKETIZE else 1
      checks.check_int(f'size of {what}', self.size, minimum=minimum)
    if self.length is not None:
      checks.check_int(f'length of {what}', self.length, minimum=1)
    self._check_given()
    self._check_shape()

  def _check_given(self) -> None:
    """Raises ConfigError if an option is given that has no effect."""
    for option, is_given, is_used in (
      ('size', self.size is not None, self.encoding in _SIZES),
      (
        'length',
        self.length is not None,
        self.type in (NUMBER, TOKENS) or self.encoding == IDS,
      ),
      ('split', self.split != WORDS, self.type == TEXT),
    ):
      if is_given and not is_used:
        raise errors.ConfigError(
          f'{option}={getattr(self, option)!r} has no effect on feature '
          f'{self.name!r} of type {self.type!r} with the encoding '
          f'{self.encoding!r}: leave it out, or choose another encoding'
        )

  def _check_shape(self) -> None:
    """Raises ConfigError unless shape and length go with the type."""
    what = f'feature {self.name!r} of type {self.type!r}'
    if self.type == IMAGE and (
      self.shape is None or len(self.shape) != 3 or self.shape[2] not in (1, 3)
    ):
      raise errors.ConfigError(
        f'{what} needs shape=(height, width, 1 or 3), got {self.shape!r}'
      )
    if self.type == IMAGE:
      for side in self.shape or ():
        checks.check_int(f'shape of {what}', side, minimum=1)
    if self.type in (NUMBER, CATEGORY, TEXT) and self.shape is not None:
      raise errors.ConfigError(f'{what} takes no shape, got {self.shape!r}')
    if self.encoding == IDS and self.length is None:
      raise errors.ConfigError(f'{what} as ids needs a length')
    if self.is_window and self.encoding == BUCKETIZE:
      raise errors.ConfigError(f'{what} with a length cannot be bucketized')

  @property
  def is_window(self) -> bool:
    """Returns whether it is a number at each of `length` steps."""
    return self.type == NUMBER and self.length is not None

  @property
  def is_text(self) -> bool:
    """Returns whether a raw value is text or bytes, not a number."""
    return self.type in (CATEGORY, TEXT, IMAGE, TOKENS)

  @property
  def raw_shape(self) -> tuple[int, ...]:
    """Returns the shape of a raw value."""
    if self.type == TENSOR:
      return self.shape or ()
    is_row = self.is_window or self.type == TOKENS
    return (self.length or 0,) if is_row else ()


class Output(NamedTuple):
  """The encoded form of an example, as a dataset stores it.

  Attributes:
    dtype: `'uint8'`, `'float32'` or `'int32'`.
    shape: Shape of one example.
    scale: A model's input is `stored * scale + offset`; ids are unscaled.
    offset: See `scale`.
  """

  dtype: str
  shape: tuple[int, ...]
  scale: float = 1.0
  offset: float = 0.0


@dataclasses.dataclass(frozen=True)
class FeatureSpec:
  """Raw columns, their encoding, and the meaning of the label.

  Attributes:
    features: The columns, in the order of the model's input.
    fitted: What was learned from training examples, by column: the names of
      `FITTED` -> values. Empty before.
    classes: Names of the classes, class 0 first; () if they have none, or for a
      regression.
    label: Name of the label's column; '' if it has none.
    unit: Unit of a regression's label; '' if it has none.
    scale: The model's input is `encoded * scale + offset`, for images and
      tensors.
    offset: See `scale`.
    dtype: Of a tensor, as stored: `'uint8'`, `'float32'` or `'int32'`.
    special_ids: Of tokens: name -> id of those that are not words.
  """

  features: tuple[Feature, ...]
  fitted: Mapping[str, Mapping[str, Any]] = dataclasses.field(
    default_factory=dict
  )
  classes: tuple[str, ...] = ()
  label: str = ''
  unit: str = ''
  scale: float = 1.0
  offset: float = 0.0
  dtype: str = 'float32'
  special_ids: Mapping[str, int] = dataclasses.field(default_factory=dict)

  def __post_init__(self) -> None:
    names = [feature.name for feature in self.features]
    if not names:
      raise errors.ConfigError('a feature spec needs at least one feature')
    if len(set(names)) < len(names):
      raise errors.ConfigError(
        f'each feature must have a name of its own, got {", ".join(names)}'
      )
    alone = [
      feature.name
      for feature in self.features
      if feature.encoding in (IDS, PIXELS) or feature.type == TENSOR
    ]
    if alone and len(names) > 1:
      raise errors.ConfigError(
        f'feature {alone[0]!r} is an input by itself (an image, a tensor or '
        f'ids of words), got {len(names)} features: {", ".join(names)}'
      )
    lengths = {
      feature.length if feature.is_window else None for feature in self.features
    }
    if len(lengths) > 1:
      raise errors.ConfigError(
        'windows must all have the same length and no other features beside '
        f'them, got the lengths {sorted(map(str, lengths))}'
      )

  def fit(self, fitted: Mapping[str, Mapping[str, Any]]) -> 'FeatureSpec':
    """Returns the spec with fitted values."""
    is_ids = self.features[0].encoding == IDS
    special = {'padding': PADDING_ID, 'unknown': UNKNOWN_ID} if is_ids else {}
    return dataclasses.replace(self, fitted=fitted, special_ids=special)

  def unfitted(self) -> 'FeatureSpec':
    """Returns the spec without fitted values."""
    return dataclasses.replace(self, fitted={}, special_ids={})

  @property
  def by_client(self) -> tuple[str, ...]:
    """Returns the columns that are encoded by each client's statistics."""
    return tuple(
      feature.name for feature in self.features if feature.encoding == BY_CLIENT
    )

  def words(self) -> tuple[str, ...]:
    """Returns the words of an input of ids, in the order of their ids.

    They are all ids but `special_ids`; () for other inputs.
    """
    first = self.features[0]
    if first.encoding != IDS:
      return ()
    return tuple(self.fitted[first.name]['vocabulary'])

  def output(self) -> Output | None:
    """Returns the encoded form; None if it is not known before the fit."""
    first = self.features[0]
    if first.type == IMAGE:
      return Output('uint8', first.shape or (), self.scale, self.offset)
    if first.encoding == IDS:
      return Output('int32', (first.length or 0,))
    if first.type == TENSOR:
      return Output(self.dtype, first.shape or (), self.scale, self.offset)
    widths = [self._width(feature) for feature in self.features]
    if None in widths:
      return None
    total = sum(width or 0 for width in widths)
    window = (first.length,) if first.is_window and first.length else ()
    return Output('float32', (*window, total))

  def _width(self, feature: Feature) -> int | None:
    """Returns the number of inputs of a column; None before the fit."""
    if feature.type == NUMBER and feature.encoding != BUCKETIZE:
      return 1 + (feature.missing == INDICATOR)
    if feature.encoding == HASH:
      return feature.size
    fitted = self.fitted.get(feature.name, {})
    if feature.encoding == BUCKETIZE:
      return len(fitted['boundaries']) + 1 if fitted else None
    return len(fitted['vocabulary']) + 1 if fitted else None

  def to_dict(self) -> dict[str, Any]:
    """Returns the spec as JSON-ready values."""
    return config_lib.to_dict(self)

  @classmethod
  def from_dict(cls, values: Mapping[str, Any]) -> 'FeatureSpec':
    """Returns the spec from the values of `to_dict`.

    Raises:
      DataError: If a field is unknown or invalid.
    """
    try:
      return config_lib.from_dict(cls, values, 'the feature spec')
    except errors.ConfigError as error:
      raise errors.DataError(
        f'{error}. It was written by other code; build the dataset again.'
      ) from None

  def digest(self) -> str:
    """Returns the hash of the spec, 16 hex digits."""
    return config_lib.config_hash(self.to_dict())

  def difference(self, other: 'FeatureSpec') -> str | None:
    """Returns the first difference from another spec, or None.

    Fitted values come last, with the column where they are furthest apart: all
    of them differ a little between any two sets of rows. The name of the
    label's column is left out: unlabelled data has none. The text calls this
    spec's values `here`, and the other's `there`.
    """
    ours, theirs = _by_column(self.to_dict()), _by_column(other.to_dict())
    here, there = ours.pop('fitted'), theirs.pop('fitted')
    found = config_lib.differences(ours, theirs, 'here')
    if not found and here != there:
      columns = sorted({*here, *there})
      furthest = max(
        [name for name in columns if here.get(name) != there.get(name)],
        key=lambda name: _distance(here.get(name, {}), there.get(name, {})),
      )
      found = config_lib.differences(
        {'fitted': {furthest: here.get(furthest, {})}},
        {'fitted': {furthest: there.get(furthest, {})}},
        'here',
      )
    return errors.shorten(found[0]) if found else None


def _by_column(values: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the values of a spec with its features by name."""
  features = {one['name']: one for one in values['features']}
  return {**values, 'features': features, 'order': list(features), 'label': ''}


def _distance(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> float:
  """Returns how far the fitted values of a column are apart, >= 0.

  Of numbers: the squared difference of the means in units of the variances, and
  the logarithm of their ratio. Of words: the share that one alone has.
  """
  if ours.keys() != theirs.keys():
    return math.inf
  if 'vocabulary' in ours:
    words = [{*one['vocabulary']} for one in (ours, theirs)]
    return len(words[0] ^ words[1]) / len(words[0] | words[1])
  mean, variance = _moments(ours)
  mean_there, variance_there = _moments(theirs)
  shift = (mean - mean_there) ** 2 / (variance + variance_there)
  return shift + abs(math.log(variance / variance_there))


def _moments(fitted: Mapping[str, Any]) -> tuple[float, float]:
  """Returns a mean and a variance, > 0, of what was fitted of numbers."""
  if 'variance' in fitted:
    return fitted['mean'], fitted['variance']
  points = fitted.get('boundaries') or (fitted['minimum'], fitted['maximum'])
  return statistics.fmean(points), statistics.pvariance(points) or 1.0
