"""Encoding of raw columns as a model's input, in a TensorFlow graph.

One function makes the training examples, in Beam, and the inputs of a served
model, in its SavedModel: both have the same bits. It is built from the
preprocessing layers of Keras 2.14.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tff_algos.features import spec as spec_lib

# Beside an error about an image.
BMP_RULE = 'a BMP file needs 24 or 32 bits a pixel, or a palette of 256 grays'

# Height times width of an image that is decoded: 0.5 GiB while it is resized.
MAX_PIXELS = 2**25
# A byte of PNG's Deflate stands for at most 1,032 bytes, and one of a JPEG file
# for fewer pixels: only blank images of less than a byte a pixel have more.
_MAX_PIXELS_PER_BYTE = 1032
PIXELS_RULE = (
  f'at most {MAX_PIXELS:,} pixels, {_MAX_PIXELS_PER_BYTE:,} for each byte'
)

# Id of a token that is not in a vocabulary without an id for such tokens.
NO_ID = -1

# Deviations between which Keras's Normalization, which takes smaller ones for
# the least, and float32 variances work.
_LEAST_DEVIATION, _LARGEST_DEVIATION = 1e-7, 1e19

_GRAYS = bytes(itertools.chain(*((i, i, i, 0) for i in range(256))))

_NOT_WORDS = r"[^\pL\pN\pM']+"
# What Python's `str.strip` removes.
_BLANK = r'[\pZ\x09-\x0d\x1c-\x1f\x{85}]+'
_BLANKS = rf'^{_BLANK}|{_BLANK}$'
# Keras's word for all categories that are not in a vocabulary.
_OTHER = '[UNK]'

Columns = Mapping[str, tf.Tensor]
_Encoder = Callable[..., tf.Tensor]
_Layers = list[tf.keras.layers.Layer]


class Preprocessing(tf.Module):
  """Encoding of raw columns by a fitted spec.

  Attributes:
    spec: The spec.
  """

  def __init__(self, spec: spec_lib.FeatureSpec):
    """Builds the layers of a fitted spec."""
    super().__init__()
    self.spec = spec
    # A SavedModel holds the tables of layers that are attributes.
    self._layers: _Layers = []
    self._encoders: list[tuple[tuple[spec_lib.Feature, ...], _Encoder]] = []
    for _, run in itertools.groupby(spec.features, _scaling):
      features = tuple(run)
      if _scaling(features[0]).alone:
        encoder = _ENCODERS[features[0].type](features[0], spec, self._layers)
      else:
        encoder = _numbers(features, spec)
      self._encoders.append((features, encoder))
    # Keras numbers layers by a counter of the process, and equal models are
    # equal files. A layer may make others, which take no name.
    for i, layer in enumerate(self.submodules):
      layer._name = f'layer_{i}'  # pyright: ignore[reportAttributeAccessIssue]

  def column_specs(self) -> dict[str, tf.TensorSpec]:
    """Returns the type of each raw column: `[batch, *raw_shape]`."""
    specs = {
      feature.name: tf.TensorSpec(
        [None, *feature.raw_shape], _raw_dtype(feature, self.spec)
      )
      for feature in self.spec.features
    }
    if self.spec.by_client:
      statistics = tf.TensorSpec([None, len(self.spec.by_client)], tf.float32)
      specs |= {
        spec_lib.CLIENT_MEAN: statistics,
        spec_lib.CLIENT_DEVIATION: statistics,
      }
    return specs

  def encode(self, columns: Columns) -> tf.Tensor:
    """Returns the encoded examples, as a dataset stores them.

    Args:
      columns: Tensors of `column_specs`. Missing numbers are NaN.

    Returns:
      `[batch, *spec.output().shape]` of its dtype.
    """
    inputs = dict(columns)
    for i, name in enumerate(self.spec.by_client):
      inputs[name] = _by_client(
        columns[name],
        columns[spec_lib.CLIENT_MEAN][:, i],
        columns[spec_lib.CLIENT_DEVIATION][:, i],
      )
    parts = [
      encoder(*(inputs[feature.name] for feature in features))
      for features, encoder in self._encoders
    ]
    return parts[0] if len(parts) == 1 else tf.concat(parts, axis=-1)

  def model_input(self, columns: Columns) -> tf.Tensor:
    """Returns what a model takes: `encode`, scaled and shifted.

    float32, or int32 ids of words.
    """
    encoded = self.encode(columns)
    if encoded.dtype == tf.int32:
      return encoded
    # As `data.schema.Schema.decode_x` does.
    scale, offset = np.float32(self.spec.scale), np.float32(self.spec.offset)
    return tf.cast(encoded, tf.float32) * scale + offset


def split_text(feature: spec_lib.Feature, texts: tf.Tensor) -> tf.RaggedTensor:
  """Returns the words or characters of texts, in lower case.

  Words are runs of letters, digits, marks and apostrophes.

  Args:
    feature: The column.
    texts: UTF-8 strings `[batch]`; other bytes are replaced.
  """
  return _splitter(feature)(_normalize_text(texts))


def decode_image(feature: spec_lib.Feature, content: tf.Tensor) -> tf.Tensor:
  """Returns the pixels of an encoded image, uint8 `[*feature.shape]`.

  Args:
    feature: The column; an image of another size is resized bilinearly.
    content: Content of a PNG, JPEG or BMP file, string `[]`; see `PIXELS_RULE`
      and `BMP_RULE`.
  """
  height, width, channels = feature.shape or (1, 1, 1)
  # A file of kilobytes may hold gigabytes of pixels of one color.
  num_bytes = tf.cast(tf.strings.length(content), tf.int64)
  check = tf.debugging.assert_less_equal(
    _num_pixels(content),
    tf.minimum(
      tf.constant(MAX_PIXELS, tf.int64), _MAX_PIXELS_PER_BYTE * num_bytes
    ),
  )
  with tf.control_dependencies([check] if check is not None else ()):
    image = tf.cond(
      tf.equal(tf.strings.substr(content, 0, 2), b'BM'),
      lambda: _decode_bmp(content, channels),
      lambda: tf.io.decode_image(content, channels, expand_animations=False),
    )
  image.set_shape([None, None, channels])
  resize = tf.keras.layers.Resizing(height, width, name='resize')
  rounded = tf.round(resize(tf.cast(image, tf.float32)))
  return tf.cast(tf.clip_by_value(rounded, 0.0, 255.0), tf.uint8)


def _decode_bmp(content: tf.Tensor, channels: int) -> tf.Tensor:
  """Returns the pixels of a BMP file, uint8 `[height, width, channels]`.

  TensorFlow takes indices of a palette for grays, and makes no grays of colors.
  https://learn.microsoft.com/windows/win32/api/wingdi/ns-wingdi-bitmapinfoheader
  """
  header_size = tf.io.decode_raw(tf.strings.substr(content, 14, 4), tf.int32)[0]
  bits = tf.io.decode_raw(tf.strings.substr(content, 28, 2), tf.uint16)[0]
  compression = tf.strings.substr(content, 30, 4)
  palette = tf.strings.substr(content, 14 + header_size, len(_GRAYS))
  is_gray = (
    tf.equal(bits, 8)
    & tf.equal(compression, bytes(4))
    & tf.equal(palette, _GRAYS)
  )
  check = tf.debugging.Assert((bits >= 24) | is_gray, [BMP_RULE])
  with tf.control_dependencies([check] if check is not None else ()):
    image = tf.io.decode_image(content, 3, expand_animations=False)
  return tf.image.rgb_to_grayscale(image) if channels == 1 else image


def _num_pixels(content: tf.Tensor) -> tf.Tensor:
  """Returns height times width by the header of an image, int64.

  PNG (https://www.w3.org/TR/png, 11.2.1), JPEG by its own reader, or BMP; of
  others, such as GIF, more than any limit.
  """
  # The decoder refuses a short file; `substr` would, by its bytes as a text.
  head = tf.strings.join([tf.strings.substr(content, 0, 32), b'\0' * 32])

  def starts_with(start):
    return tf.equal(tf.strings.substr(head, 0, len(start)), start)

  def sizes(position, *, little_endian):
    part = tf.strings.substr(head, position, 8)
    return tf.io.decode_raw(part, tf.int32, little_endian=little_endian)

  found = tf.case(
    [
      (starts_with(b'\x89PNG'), lambda: sizes(16, little_endian=False)),
      (
        starts_with(b'\xff\xd8\xff'),
        lambda: tf.io.extract_jpeg_shape(content)[:2],
      ),
      (starts_with(b'BM'), lambda: sizes(18, little_endian=True)),
    ],
    default=lambda: tf.constant([MAX_PIXELS, 2]),
  )
  # The height of a BMP image is negative if its first row is the top one.
  return tf.reduce_prod(tf.abs(tf.cast(found, tf.int64)))


class _Scaling(NamedTuple):
  """What one layer does to neighbouring columns of numbers.

  Attributes:
    encoding: Encoding of the columns.
    missing: What they do with missing values.
    alone: Name of a column that has a layer by itself.
  """

  encoding: str
  missing: str
  alone: str


def _scaling(feature: spec_lib.Feature) -> _Scaling:
  """Returns a key: a table of many numbers is scaled by a few layers."""
  is_alone = (
    feature.type != spec_lib.NUMBER or feature.encoding == spec_lib.BUCKETIZE
  )
  name = feature.name if is_alone else ''
  return _Scaling(feature.encoding, feature.missing, name)


def _numbers(
  features: Sequence[spec_lib.Feature], spec: spec_lib.FeatureSpec
) -> _Encoder:
  """Returns columns `[batch]` or `[batch, length]` -> `[..., width]`."""
  first = features[0]
  scale = _scaler(
    first.encoding, [spec.fitted.get(one.name, {}) for one in features]
  )

  def encode(*columns: tf.Tensor) -> tf.Tensor:
    values = tf.stack(columns, axis=-1)
    scaled = scale(values)
    if first.missing == spec_lib.REFUSE:
      return scaled
    is_missing = tf.math.is_nan(values)
    # The mean of standardized values.
    scaled = tf.where(is_missing, tf.zeros_like(scaled), scaled)
    if first.missing == spec_lib.MEAN:
      return scaled
    pairs = tf.stack([scaled, tf.cast(is_missing, tf.float32)], axis=-1)
    shape = tf.shape(values)[:-1]
    return tf.reshape(pairs, tf.concat([shape, [2 * len(features)]], axis=0))

  return encode


def _buckets(
  feature: spec_lib.Feature, spec: spec_lib.FeatureSpec, layers: _Layers
) -> _Encoder:
  """Returns numbers `[batch]` -> one-hot `[batch, width]`."""
  del layers
  return _one_hot(
    tf.keras.layers.Discretization(
      spec.fitted[feature.name]['boundaries'],
      output_mode='one_hot',
      name='buckets',
    )
  )


def _one_hot(layer: tf.keras.layers.Layer) -> _Encoder:
  """Returns a layer on `[batch]`; Keras would read `[1]` as one example."""
  return lambda values: layer(tf.expand_dims(values, -1))


def _scaler(
  encoding: str, fitted: Sequence[Mapping[str, Any]]
) -> Callable[[tf.Tensor], tf.Tensor]:
  """Returns the scaling of columns that are stacked on the last axis."""
  if encoding in (spec_lib.STANDARDIZE, spec_lib.LOG):
    mean = [one['mean'] for one in fitted]
    variance = [one['variance'] for one in fitted]
  elif encoding == spec_lib.MIN_MAX:
    mean = [one['minimum'] for one in fitted]
    variance = [(one['maximum'] - one['minimum']) ** 2 for one in fitted]
  else:
    return tf.identity  # Plain, or standardized by the client before.
  units = np.array(
    [_unit(m, math.sqrt(v)) for m, v in zip(mean, variance, strict=True)]
  )
  layer = tf.keras.layers.Normalization(
    mean=mean / units, variance=variance / units**2, name='scale'
  )

  def scale(values: tf.Tensor) -> tf.Tensor:
    if encoding == spec_lib.LOG:
      values = _log1p(values)
    is_plain = np.all(units == 1)
    return layer(values if is_plain else values * np.float32(1 / units))

  return scale


def _unit(mean: float, deviation: float) -> float:
  """Returns a power of two by which a column is divided before it is scaled.

  It is exact, so that other columns keep their bits: 1 for them, and for those
  whose deviation is below the resolution of float32 at their mean.
  """
  resolution = float(np.finfo(np.float32).eps) * abs(mean)
  if deviation <= resolution:
    return 1.0
  if _LEAST_DEVIATION <= deviation <= _LARGEST_DEVIATION:
    return 1.0
  # Its inverse is a float32, too.
  return 2.0 ** min(max(math.frexp(deviation)[1], -126), 126)


def _log1p(values: tf.Tensor) -> tf.Tensor:
  """Returns log(1 + x), float32.

  Computed in float64: in float32, TensorFlow's vector instructions and its
  code for the last rows of a batch differ in the last bit.
  """
  return tf.cast(tf.math.log1p(tf.cast(values, tf.float64)), tf.float32)


def _category(
  feature: spec_lib.Feature, spec: spec_lib.FeatureSpec, layers: _Layers
) -> _Encoder:
  """Returns strings `[batch]` -> one-hot `[batch, width]`."""
  if feature.encoding == spec_lib.HASH:
    layer = tf.keras.layers.Hashing(feature.size, output_mode='one_hot')
  else:
    layer = tf.keras.layers.StringLookup(
      # A category of that name would be taken for Keras's own first word.
      vocabulary=[_OTHER, *spec.fitted[feature.name]['vocabulary']],
      oov_token=_OTHER,
      output_mode='one_hot',
    )
  layers.append(layer)
  encode = _one_hot(layer)
  return lambda values: encode(_strip(values))


def _text(
  feature: spec_lib.Feature, spec: spec_lib.FeatureSpec, layers: _Layers
) -> _Encoder:
  """Returns strings `[batch]` -> `[batch, width]`, or ids."""
  fitted = spec.fitted[feature.name]
  is_ids = feature.encoding == spec_lib.IDS
  layer = tf.keras.layers.TextVectorization(
    standardize=_normalize_text,
    split=_splitter(feature),
    output_mode='int' if is_ids else feature.encoding,
    output_sequence_length=feature.length if is_ids else None,
    vocabulary=fitted['vocabulary'],
    idf_weights=fitted.get('idf'),
  )
  layers.append(layer)
  return lambda texts: tf.cast(layer(texts), tf.int32 if is_ids else tf.float32)


def _image(
  feature: spec_lib.Feature, spec: spec_lib.FeatureSpec, layers: _Layers
) -> _Encoder:
  """Returns file contents `[batch]` -> uint8 `[batch, *shape]`."""
  del spec, layers
  return lambda contents: tf.map_fn(
    lambda content: decode_image(feature, content),
    contents,
    parallel_iterations=1,  # Large ones would fill the memory together.
    fn_output_signature=tf.TensorSpec(feature.shape or (), tf.uint8),
  )


def _tokens(
  feature: spec_lib.Feature, spec: spec_lib.FeatureSpec, layers: _Layers
) -> _Encoder:
  """Returns words `[batch, length]` -> their ids; padding is ''."""
  special = spec.special_ids
  words = iter(spec.fitted[feature.name]['vocabulary'])
  names = {
    number: '' if name == 'padding' else f'<{name}>'
    for name, number in special.items()
  }
  num_ids = len(special) + len(spec.fitted[feature.name]['vocabulary'])
  layer = tf.keras.layers.StringLookup(
    vocabulary=[
      names[number] if number in names else next(words)
      for number in range(num_ids)
    ]
  )
  layers.append(layer)

  def encode(tokens: tf.Tensor) -> tf.Tensor:
    # Keras gives 0 to words that it does not know.
    ids = tf.cast(layer(tokens), tf.int32) - 1
    return tf.where(ids < 0, special.get('unknown', NO_ID), ids)

  return encode


def _tensor(
  feature: spec_lib.Feature, spec: spec_lib.FeatureSpec, layers: _Layers
) -> _Encoder:
  """Returns the identity."""
  del feature, spec, layers
  return tf.identity


_ENCODERS: Mapping[
  str, Callable[[spec_lib.Feature, spec_lib.FeatureSpec, _Layers], _Encoder]
] = {
  spec_lib.NUMBER: _buckets,
  spec_lib.CATEGORY: _category,
  spec_lib.TEXT: _text,
  spec_lib.IMAGE: _image,
  spec_lib.TOKENS: _tokens,
  spec_lib.TENSOR: _tensor,
}


def _raw_dtype(
  feature: spec_lib.Feature, spec: spec_lib.FeatureSpec
) -> tf.DType:
  if feature.type == spec_lib.TENSOR:
    return tf.as_dtype(spec.dtype)
  return tf.string if feature.is_text else tf.float32


def _normalize_text(texts: tf.Tensor) -> tf.Tensor:
  sound = tf.strings.unicode_transcode(texts, 'UTF-8', 'UTF-8')
  return tf.strings.lower(sound, encoding='utf-8')


def _strip(texts: tf.Tensor) -> tf.Tensor:
  """Returns texts without blanks at their ends, as pipelines read cells."""
  return tf.strings.regex_replace(texts, _BLANKS, '')


def _splitter(
  feature: spec_lib.Feature,
) -> Callable[[tf.Tensor], tf.RaggedTensor]:
  """Returns normalized texts `[batch]` -> their parts, ragged."""
  if feature.split == spec_lib.CHARACTERS:
    return lambda texts: tf.strings.unicode_split(_strip(texts), 'UTF-8')
  return lambda texts: tf.strings.split(
    tf.strings.regex_replace(texts, _NOT_WORDS, ' ')
  )


def _by_client(values: tf.Tensor, mean: tf.Tensor, deviation: tf.Tensor):
  """Returns values `[batch, ...]` standardized by `[batch]` statistics."""
  shape = [-1] + [1] * (values.shape.rank - 1)
  return (values - tf.reshape(mean, shape)) / tf.reshape(deviation, shape)
