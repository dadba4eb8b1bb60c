"""Raw columns as inputs of a signature: names, checks, and encoding.

Everything but the names is traced into a SavedModel.
"""

import keyword
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from tff_algos.export import bundle as bundle_lib
from tff_algos.export import prediction
from tff_algos.features import preprocessing
from tff_algos.features import spec as spec_lib

_NO_LETTER_OR_DIGIT = re.compile(r'[^A-Za-z0-9_]')
# Other inputs of signatures, and a name that TensorFlow takes itself.
_TAKEN = (*spec_lib.RESERVED, 'self')

Columns = Mapping[str, tf.Tensor]


class RawInputs(tf.Module):
  """Raw columns of a fitted spec as inputs of a signature.

  Attributes:
    spec: The spec.
    column_specs: Type of each column, `[batch, ...]`.
    arguments: Column -> name of the signature's input.
  """

  def __init__(self, spec: spec_lib.FeatureSpec):
    super().__init__()
    self.spec = spec
    self._preprocessing = preprocessing.Preprocessing(spec)
    self.column_specs = self._preprocessing.column_specs()
    names = argument_names(feature.name for feature in spec.features)
    # Statistics of clients have names that no column takes.
    self.arguments = {name: names.get(name, name) for name in self.column_specs}
    # Traced once for all signatures that call it.
    self._encode = bundle_lib.concrete_function(
      lambda **inputs: self._checked_input(
        {column: inputs[name] for column, name in self.arguments.items()}
      ),
      {name: self.column_specs[key] for key, name in self.arguments.items()},
    )

  def model_input(self, columns: Columns) -> tf.Tensor:
    """Returns what the model takes.

    Args:
      columns: Column -> raw values, of `column_specs`.

    Raises:
      InvalidArgumentError: (When the graph runs) if a value is invalid; the
        text names its column and row.
    """
    return self._encode(
      **{self.arguments[name]: value for name, value in columns.items()}
    )

  def _checked_input(self, columns: Columns) -> tf.Tensor:
    columns = _after([_check_rows(columns)], columns)
    checks = [
      _check_images(feature, columns[feature.name])
      for feature in self.spec.features
      if feature.type == spec_lib.IMAGE
    ]
    numbers = [
      feature
      for feature in self.spec.features
      if columns[feature.name].dtype.is_floating
    ]
    if numbers:
      checks.append(_check_numbers(numbers, columns))
    if self.spec.by_client:
      checks += _check_statistics(columns)
    columns = _after(checks, columns)
    x = self._preprocessing.model_input(columns)
    feature = self.spec.features[0]
    if feature.type != spec_lib.TOKENS or 'unknown' in self.spec.special_ids:
      return x
    is_known = tf.not_equal(x, preprocessing.NO_ID)
    rule = f'column {feature.name} must hold words of the vocabulary'
    check = prediction.require_values(is_known, columns[feature.name], rule)
    with tf.control_dependencies([check]):
      return tf.identity(x)


def argument_names(
  columns: Iterable[str], prefix: str = 'column_'
) -> dict[str, str]:
  """Returns column -> name of the signature's input, distinct.

  A name in ASCII letters, digits and underscores stays; other characters become
  underscores, and a number is appended where two would be the same, or differ
  only in case, as TensorFlow takes them for the same.

  Args:
    columns: Names of columns, or of other values.
    prefix: Put before a name that starts with no letter.
  """
  columns = list(columns)
  kept: dict[str, str] = {}
  for column in filter(_is_valid, columns):
    kept.setdefault(column.lower(), column)
  names = {column: column for column in kept.values()}
  taken = {*kept, *_TAKEN}
  for column in columns:
    if column in names:
      continue
    stem = _NO_LETTER_OR_DIGIT.sub('_', column)
    if not stem[:1].isalpha():
      stem = f'{prefix}{stem}'
    name, number = stem, 2
    while name.lower() in taken or not _is_valid(name):
      name, number = f'{stem}_{number}', number + 1
    names[column] = name
    taken.add(name.lower())
  return {column: names[column] for column in columns}


def example_columns(spec: spec_lib.FeatureSpec) -> dict[str, np.ndarray]:
  """Returns one made-up row of valid raw values, `[1, ...]`, by column.

  It has nothing of what features were fitted to.
  """
  columns = {
    feature.name: _example(feature, spec)[np.newaxis]
    for feature in spec.features
  }
  if spec.by_client:
    shape = (1, len(spec.by_client))
    columns[spec_lib.CLIENT_MEAN] = np.zeros(shape, np.float32)
    columns[spec_lib.CLIENT_DEVIATION] = np.ones(shape, np.float32)
  return columns


def _is_valid(name: str) -> bool:
  return (
    not _NO_LETTER_OR_DIGIT.search(name)
    and name[:1].isalpha()
    and not keyword.iskeyword(name)
    and name.lower() not in _TAKEN
  )


def _after(
  checks: Sequence[prediction.Check], columns: Columns
) -> dict[str, tf.Tensor]:
  """Returns the columns, to be used when the checks have passed."""
  with tf.control_dependencies(checks):
    return dict(zip(columns, tf.identity_n([*columns.values()]), strict=True))


def _check_rows(columns: Columns) -> prediction.Check:
  """Returns the check that all columns have the same number of rows."""
  names = list(columns)
  # One slice for all columns: a table may have hundreds.
  shapes = [tf.shape(value) for value in columns.values()]
  ranks = [value.shape.rank or 0 for value in columns.values()]
  starts = np.cumsum([0, *ranks[:-1]])
  counts = tf.gather(tf.concat(shapes, 0), starts)

  def message(i: tf.Tensor) -> tf.Tensor:
    return tf.strings.join(
      [
        'column ',
        tf.constant(names)[i],
        f' must have one row for each row of column {names[0]}: it has ',
        tf.strings.as_string(counts[i]),
        f' and column {names[0]} has ',
        tf.strings.as_string(counts[0]),
      ]
    )

  return prediction.require_rows(tf.equal(counts, counts[0]), message)


def _check_images(
  feature: spec_lib.Feature, contents: tf.Tensor
) -> prediction.Check:
  return prediction.require_rows(
    _can_be_decoded(feature, contents),
    lambda row: tf.strings.join(
      [
        f'column {feature.name} must hold PNG, JPEG or BMP files of '
        f'{preprocessing.PIXELS_RULE}: the image in row ',
        tf.strings.as_string(row),
        f' cannot be decoded; {preprocessing.BMP_RULE}',
      ]
    ),
  )


def _check_numbers(
  features: Sequence[spec_lib.Feature], columns: Columns
) -> prediction.Check:
  """Returns one check of all numbers: a table may have hundreds."""
  values = tf.stack([columns[feature.name] for feature in features], axis=-1)
  may_miss = [feature.missing != spec_lib.REFUSE for feature in features]
  is_log = [feature.encoding == spec_lib.LOG for feature in features]
  # TensorFlow rewrites "not <" as ">=", which is not the same of NaN.
  is_allowed = (
    tf.math.is_finite(values) & (tf.logical_not(is_log) | (values >= 0))
  ) | (tf.math.is_nan(values) & may_miss)
  rules = [
    f'column {feature.name} must be finite'
    + ' and >= 0, because its logarithm is taken' * log
    + ', or missing (NaN)' * missing
    for feature, log, missing in zip(features, is_log, may_miss, strict=True)
  ]
  return prediction.require_values(is_allowed, values, rules)


def _check_statistics(columns: Columns) -> list[prediction.Check]:
  """Returns the checks of the statistics of the rows' clients."""
  mean = columns[spec_lib.CLIENT_MEAN]
  deviation = columns[spec_lib.CLIENT_DEVIATION]
  return [
    prediction.require_values(
      tf.math.is_finite(mean),
      mean,
      f'{spec_lib.CLIENT_MEAN} must be finite',
    ),
    prediction.require_values(
      (deviation > 0) & tf.math.is_finite(deviation),
      deviation,
      f'{spec_lib.CLIENT_DEVIATION} must be > 0 and finite',
    ),
  ]


def _can_be_decoded(
  feature: spec_lib.Feature, contents: tf.Tensor
) -> tf.Tensor:
  """Returns whether each content is an image, bool `[batch]`.

  A decoder's own error would not say which row it is.
  """

  def decode(row: tf.Tensor, content: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    # TensorFlow would not decode an image whose pixels are not used.
    image = preprocessing.decode_image(feature, content)
    return row, tf.reduce_max(image) >= 0

  num_rows = tf.shape(contents)[0]
  decoded = (
    tf.data.Dataset.from_tensor_slices((tf.range(num_rows), contents))
    .map(decode)
    .ignore_errors()
  )
  return decoded.reduce(
    tf.zeros(tf.expand_dims(num_rows, 0), tf.bool),
    lambda found, one: tf.tensor_scatter_nd_update(
      found, [[one[0]]], one[1][tf.newaxis]
    ),
  )


def _example_word(feature: spec_lib.Feature, spec: spec_lib.FeatureSpec) -> str:
  """Returns nothing, or a word where only those of the vocabulary have ids."""
  is_open = {'padding', 'unknown'} & spec.special_ids.keys()
  if feature.type != spec_lib.TOKENS or is_open:
    return ''
  return spec.fitted[feature.name]['vocabulary'][0]


def _example(
  feature: spec_lib.Feature, spec: spec_lib.FeatureSpec
) -> np.ndarray:
  """Returns a made-up raw value, `[*feature.raw_shape]`."""
  if feature.type == spec_lib.IMAGE:
    shape = feature.shape or ()
    pixels = np.arange(np.prod(shape)) % 256
    image = tf.constant(pixels.reshape(shape), tf.uint8)
    return np.array(tf.io.encode_png(image).numpy(), object)
  if feature.type == spec_lib.TENSOR:
    return np.zeros(feature.raw_shape, spec.dtype)
  if feature.is_text:
    return np.full(feature.raw_shape, _example_word(feature, spec), object)
  return np.zeros(feature.raw_shape, np.float32)
