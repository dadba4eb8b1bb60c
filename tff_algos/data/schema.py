"""Schema of examples, and encoding of one client's examples as a record.

The single definition shared by the writer (`pipelines`) and the reader;
described in `docs/data_format.md`.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np
from google.protobuf import message

from tff_algos.core import errors
from tff_algos.core.structures import Array
from tff_algos.data import example_proto

# Readers refuse any other version. Raise it when a reader must change.
SCHEMA_VERSION = 1

TRAIN = 'train'
VALIDATION = 'validation'
TEST = 'test'
SPLITS = (TRAIN, VALIDATION, TEST)

PARTICIPATING = 'participating'
UNSEEN = 'unseen'
GROUPS = (PARTICIPATING, UNSEEN)
# Further clients without labels; all their examples are test examples.
UNLABELLED = 'unlabelled'

# Manifest entry `shared_test`: a client's test examples are the held-out
# examples of the classes that it trains on.
SHARED_BY_CLASS = 'held_out_by_class'

EXAMPLE_ID_BYTES = 16


def missing_label(is_classes: bool) -> float:
  """Returns the stored label of an example without one: -1, or NaN."""
  return -1 if is_classes else np.nan


def has_label(y: Array) -> Array:
  """Returns whether each example has a label, bool `[n]`.

  Args:
    y: Labels `[n, *y_shape]`, int32 or float32.
  """
  is_label = y >= 0 if y.dtype.kind == 'i' else ~np.isnan(y)
  return is_label.all(axis=tuple(range(1, y.ndim)))


class Examples(NamedTuple):
  """Examples of one client and split, or of one source distribution.

  Attributes:
    x: Features, `[n, *x_shape]`: float32, or int32 ids of tokens.
    y: Labels, int32 (classification) or float32 (regression), `[n, *y_shape]`.
    source: Index of the source distribution of each example, int32 `[n]`.
  """

  x: Array
  y: Array
  source: Array

  @property
  def num_examples(self) -> int:
    """Returns n."""
    return len(self.y)


class StoredExamples(NamedTuple):
  """Examples in the stored form of a record.

  Attributes:
    x: Features as stored, `[n, *x_shape]` of the schema's `x_dtype`.
    y: Labels, `[n, *y_shape]`.
    source: Index of the source distribution of each example, int32 `[n]`.
    example_id: Hash of the raw features, the same in every source
      distribution that shows them, uint8 `[n, 16]`.
  """

  x: Array
  y: Array
  source: Array
  example_id: Array


Rows = TypeVar('Rows', Examples, StoredExamples)


def take(examples: Rows, rows: Array | slice) -> Rows:
  """Returns some of the examples: at positions, of a slice or of a mask."""
  return examples._make(column[rows] for column in examples)


@dataclasses.dataclass(frozen=True)
class Schema:
  """The shape and meaning of every example of a dataset.

  Attributes:
    x_dtype: How features are stored: `'uint8'`, `'float32'`, or `'int32'` for
      the ids of tokens.
    x_shape: Shape of one example's features.
    x_scale: Features as read are `stored * x_scale + x_offset`, in float32.
      The ids of tokens are read as they are stored.
    x_offset: See `x_scale`.
    task: `'classification'` or `'regression'`.
    num_classes: Labels are 0 to num_classes - 1; 0 for regression.
    source_names: Names of the source distributions, at least one.
    y_shape: Shape of one example's label: `()`, or `(places,)` for a class at
      each of several places, such as the next word at each position.
  """

  x_dtype: str
  x_shape: tuple[int, ...]
  x_scale: float
  x_offset: float
  task: str
  num_classes: int
  source_names: tuple[str, ...]
  y_shape: tuple[int, ...] = ()

  @property
  def y_dtype(self) -> np.dtype[Any]:
    """Returns the dtype of labels, stored and read: int32 or float32."""
    is_classes = self.task == 'classification'
    return np.dtype('<i4' if is_classes else '<f4')

  @property
  def stored_x_dtype(self) -> np.dtype[Any]:
    """Returns the dtype of features as stored, little-endian."""
    return np.dtype(self.x_dtype).newbyteorder('<')

  @property
  def has_tokens(self) -> bool:
    """Returns whether features are ids of tokens, which have no mean."""
    return self.x_dtype == 'int32'

  @property
  def is_image(self) -> bool:
    """Returns whether features are an image: of three axes, gray or RGB."""
    return len(self.x_shape) == 3 and self.x_shape[-1] in (1, 3)

  @property
  def num_sources(self) -> int:
    """Returns the number of source distributions."""
    return len(self.source_names)

  def to_dict(self) -> dict[str, Any]:
    """Returns the schema as JSON-ready values."""
    return dataclasses.asdict(self) | {
      'x_shape': list(self.x_shape),
      'source_names': list(self.source_names),
      'y_shape': list(self.y_shape),
    }

  @classmethod
  def from_dict(cls, values: Mapping[str, Any]) -> 'Schema':
    """Returns the schema from the values of `to_dict`.

    Raises:
      DataError: If a field is missing or unknown.
    """
    try:
      return cls(
        **dict(
          values,
          x_shape=tuple(values['x_shape']),
          source_names=tuple(values['source_names']),
          y_shape=tuple(values['y_shape']),
        )
      )
    except (KeyError, TypeError) as error:
      raise errors.DataError(
        f'the schema in the manifest has missing or unknown fields '
        f'({error}). Build the dataset again with binaries.preprocess.'
      ) from None

  def decode_x(self, stored: Array) -> Array:
    """Returns features in the form that models take.

    float32, scaled and shifted; ids of tokens stay int32, as stored.
    """
    if self.has_tokens:
      return stored.astype(np.int32)
    scale, offset = np.float32(self.x_scale), np.float32(self.x_offset)
    return stored.astype(np.float32) * scale + offset


def encode_record(examples: StoredExamples, schema: Schema) -> bytes:
  """Returns examples as a serialized `tf.train.Example`.

  The same examples always give the same bytes.

  Args:
    examples: Any number of examples, also none.
    schema: Has the dtypes in which they are written.
  """
  example = example_proto.Example()
  arrays = {
    'x': examples.x.astype(schema.stored_x_dtype, casting='equiv'),
    'y': examples.y.astype(schema.y_dtype, casting='equiv'),
    'source': examples.source.astype('<i4', casting='equiv'),
    'example_id': examples.example_id.astype(np.uint8, casting='equiv'),
  }
  for name, array in arrays.items():
    example.features.feature[name].bytes_list.value.append(array.tobytes())
  return example.SerializeToString(deterministic=True)


def decode_record(record: bytes, schema: Schema) -> StoredExamples:
  """Returns the examples of a record.

  Raises:
    DataError: If the record does not hold what the schema says.
  """
  try:
    features = example_proto.Example.FromString(record).features.feature

    def array(name: str, dtype: Any, shape: tuple[int, ...]) -> Array:
      (value,) = features[name].bytes_list.value
      return np.frombuffer(value, dtype).reshape(shape)

    y = array('y', schema.y_dtype, (-1, *schema.y_shape))
    return StoredExamples(
      x=array('x', schema.stored_x_dtype, (len(y), *schema.x_shape)),
      y=y,
      source=array('source', '<i4', (len(y),)),
      example_id=array('example_id', np.uint8, (len(y), EXAMPLE_ID_BYTES)),
    )
  except (message.DecodeError, ValueError) as error:
    raise errors.DataError(
      f'a record does not hold what the schema says: {error}'
    ) from None
