"""Raw columns of examples: errors, stacks and content keys."""

import functools
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pipelines.examples import hashing
from pipelines.sources import base
from tff_algos.core.structures import Array
from tff_algos.features import spec as spec_lib

LARGEST_FLOAT32 = float(np.finfo(np.float32).max)

# Column -> raw value of each example, `[n, *raw_shape]`: float32, or objects
# (str or bytes).
Columns = Mapping[str, Array]


def find_problem(
  values: Mapping[str, Any], spec: spec_lib.FeatureSpec
) -> base.Problem | None:
  """Returns the first error of an example's raw values, or None."""
  for feature in spec.features:
    value = values[feature.name]
    reason = _FINDERS[feature.type](feature, value)
    if reason is not None:
      shown = None if feature.type == spec_lib.IMAGE else repr(value)
      return base.Problem(reason, feature.name, shown)
  return None


def stack(
  values: Sequence[Mapping[str, Any]], spec: spec_lib.FeatureSpec
) -> dict[str, Array]:
  """Returns the columns of valid examples."""
  return {
    feature.name: _stack_column([one[feature.name] for one in values], feature)
    for feature in spec.features
  }


def select(columns: Columns, rows: Array) -> dict[str, Array]:
  """Returns some examples, by mask or index."""
  return {name: values[rows] for name, values in columns.items()}


def keys(columns: Columns, num_examples: int) -> Array:
  """Returns the content key of each example, uint8 `[n, KEY_BYTES]`."""
  found = bytearray()
  for row in range(num_examples):
    digest = hashlib.blake2b(digest_size=hashing.KEY_BYTES)
    for values in columns.values():
      spelled = _spell(values[row])
      digest.update(len(spelled).to_bytes(8, 'little') + spelled)
    found += digest.digest()
  return np.frombuffer(bytes(found), np.uint8).reshape(-1, hashing.KEY_BYTES)


def is_unicode(text: str) -> bool:
  """Returns whether a text can be written as UTF-8."""
  try:
    text.encode()
  except UnicodeEncodeError:
    return False
  return True


def _find_problem_of_number(
  feature: spec_lib.Feature, value: Any
) -> str | None:
  # Most are single numbers, for which NumPy takes several times as long.
  is_number = isinstance(value, float)
  shape = () if is_number else np.shape(value)
  if shape != feature.raw_shape:
    return f'the shape is {shape}, not {feature.raw_shape}'
  for number in (value,) if is_number or not shape else value:
    if math.isnan(number):
      if feature.missing == spec_lib.REFUSE:
        return "missing; allow it by missing='mean' or 'indicator'"
    elif abs(number) > LARGEST_FLOAT32:
      return 'not a finite float32 number'
    elif number < 0 and feature.encoding == spec_lib.LOG:
      return 'negative, which has no logarithm'
  return None


def _find_problem_of_text(feature: spec_lib.Feature, value: Any) -> str | None:
  del feature
  if not is_unicode(value):
    return 'not Unicode text'
  # Which tables of words drop at their end.
  return 'a text with a zero byte' if '\0' in value else None


def _find_problem_of_image(feature: spec_lib.Feature, value: Any) -> str | None:
  # Examples without images are checked without TensorFlow.
  import tensorflow as tf  # noqa: PLC0415

  from tff_algos.features import preprocessing  # noqa: PLC0415

  try:
    _image_decoder(feature)(tf.constant(value))
  except tf.errors.InvalidArgumentError:
    return (
      f'not a PNG, JPEG or BMP image of {preprocessing.PIXELS_RULE}; '
      f'{preprocessing.BMP_RULE}'
    )
  return None


@functools.cache
def _image_decoder(feature: spec_lib.Feature) -> Callable[[Any], Any]:
  """Returns a graph that decodes an image: operation by operation is slower."""
  import tensorflow as tf  # noqa: PLC0415

  from tff_algos.features import preprocessing  # noqa: PLC0415

  return tf.function(
    functools.partial(preprocessing.decode_image, feature),
    input_signature=[tf.TensorSpec([], tf.string)],
  )


_FINDERS = {
  spec_lib.NUMBER: _find_problem_of_number,
  spec_lib.CATEGORY: _find_problem_of_text,
  spec_lib.TEXT: _find_problem_of_text,
  spec_lib.IMAGE: _find_problem_of_image,
}


def _stack_column(values: list[Any], feature: spec_lib.Feature) -> Array:
  if not feature.is_text:
    return np.array(values, np.float32).reshape(-1, *feature.raw_shape)
  column = np.empty(len(values), object)
  column[:] = values
  return column


def _spell(value: Any) -> bytes:
  if isinstance(value, str):
    return value.encode()
  return value if isinstance(value, bytes) else np.asarray(value).tobytes()
