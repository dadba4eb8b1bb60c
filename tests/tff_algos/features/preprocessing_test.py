import io
import math
import struct

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st
from PIL import Image

from tff_algos.features import preprocessing
from tff_algos.features import spec as spec_lib

_NAN = math.nan
_ALL = spec_lib.FeatureSpec(
  (
    spec_lib.Feature('plain', encoding='plain'),
    spec_lib.Feature('age', missing='indicator'),
    spec_lib.Feature('height', missing='mean'),
    spec_lib.Feature('income', encoding='log'),
    spec_lib.Feature('share', encoding='min_max'),
    spec_lib.Feature('hour', encoding='bucketize'),
    spec_lib.Feature('pulse', encoding='by_client'),
    spec_lib.Feature('color', 'category'),
    spec_lib.Feature('city', 'category', 'hash', size=4),
    spec_lib.Feature('note', 'text', 'tf_idf'),
    spec_lib.Feature('tags', 'text', 'multi_hot', split='characters'),
  ),
  fitted={
    'age': {'mean': 3.3, 'variance': 2.7},
    'height': {'mean': 170.0, 'variance': 64.0},
    'income': {'mean': 1.1, 'variance': 0.3},
    'share': {'minimum': -1.0, 'maximum': 7.0},
    'hour': {'boundaries': [6.0, 12.0]},
    'pulse': {'mean': 70.0, 'variance': 25.0},
    'color': {'vocabulary': ['red', '', 'grün']},
    'note': {'vocabulary': ["it's", 'größe'], 'idf': [0.5, 0.75]},
    'tags': {'vocabulary': ['a', 'ß']},
  },
)


def _columns(*rows):
  specs = preprocessing.Preprocessing(_ALL).column_specs()
  return {
    name: tf.constant([row[name] for row in rows], spec.dtype)
    for name, spec in specs.items()
  }


def _row(**more):
  return {
    **{name: 0.0 for name in ('plain', 'age', 'height', 'income', 'share')},
    **{'hour': 0.0, 'pulse': 70.0, 'color': '', 'city': '', 'note': ''},
    **{'tags': '', 'client_mean': [70.0], 'client_deviation': [5.0]},
    **more,
  }


def _encode(**more):
  """Returns the encoded parts of one row, by column."""
  encoded = preprocessing.Preprocessing(_ALL).encode(_columns(_row(**more)))
  widths = [1, 2, 1, 1, 1, 3, 1, 4, 4, 3, 3]
  assert encoded.shape == (1, sum(widths)) == (1, *_ALL.output().shape)
  parts = np.split(encoded.numpy()[0], np.cumsum(widths)[:-1])
  return dict(zip((one.name for one in _ALL.features), parts, strict=True))


@pytest.mark.parametrize(
  ('name', 'value', 'expected'),
  [
    ('plain', 2.5, [2.5]),
    ('age', 5.3, [2.0 / math.sqrt(2.7), 0]),
    ('age', _NAN, [0, 1]),
    ('height', 186.0, [2.0]),
    ('height', _NAN, [0.0]),
    ('income', math.e - 1, [(1 - 1.1) / math.sqrt(0.3)]),
    ('share', 1.0, [0.25]),
    ('hour', 5.9, [1, 0, 0]),
    ('hour', 6.0, [0, 1, 0]),
    ('hour', 99.0, [0, 0, 1]),
    ('pulse', 80.0, [2.0]),
    ('color', 'grün', [0, 0, 0, 1]),
    ('color', '', [0, 0, 1, 0]),
    ('color', 'blue', [1, 0, 0, 0]),
    ('note', "IT'S, it's GRÖSSE!", [0.625, 1.0, 0]),
    ('note', 'Größe-größe?', [0, 0, 1.5]),
    ('note', '', [0, 0, 0]),
    ('tags', 'ßab', [1, 1, 1]),
  ],
)
def test_encodings(name, value, expected):
  np.testing.assert_allclose(_encode(**{name: value})[name], expected, 1e-6)


def test_each_client_by_its_own_statistics():
  found = _encode(pulse=80.0, client_mean=[75.0], client_deviation=[2.5])
  np.testing.assert_array_equal(found['pulse'], [2.0])


def test_hash_is_one_of_its_bins_and_always_the_same():
  bins = {_encode(city=city)['city'].argmax() for city in 'abcdefgh'}
  assert bins <= {0, 1, 2, 3} and len(bins) > 1
  np.testing.assert_array_equal(_encode(city='Rom')['city'], [0, 0, 0, 1])


@pytest.fixture(scope='module')
def loaded(tmp_path_factory):
  """Returns the encoder of a SavedModel."""
  folder = str(tmp_path_factory.mktemp('saved') / 'model')
  module = preprocessing.Preprocessing(_ALL)
  specs = {
    name: tf.TensorSpec(spec.shape, spec.dtype, name=name)
    for name, spec in module.column_specs().items()
  }
  encode = tf.function(
    lambda columns: {'x': module.model_input(columns)},
    input_signature=[specs],
    autograph=False,
  )
  tf.saved_model.save(module, folder, signatures={'raw': encode})
  return tf.saved_model.load(folder).signatures['raw']


_NUMBER = st.floats(width=32, allow_nan=False, allow_infinity=False)
_TEXT = st.one_of(
  st.text(max_size=12), st.sampled_from(['red', "it's größe", 'ẞ\x00 \u0301'])
)


@hypothesis.settings(max_examples=30)
@hypothesis.given(
  rows=st.lists(
    st.fixed_dictionaries(
      {
        **dict.fromkeys(('plain', 'share', 'hour', 'pulse'), _NUMBER),
        **dict.fromkeys(('age', 'height'), _NUMBER | st.just(_NAN)),
        'income': _NUMBER.map(abs),
        **dict.fromkeys(('color', 'city', 'note', 'tags'), _TEXT),
        'client_mean': st.tuples(_NUMBER),
        'client_deviation': st.just((0.75,)),
      }
    ),
    min_size=1,
    max_size=5,
  )
)
def test_a_saved_model_has_the_same_bits_row_by_row(loaded, rows):
  """Huge and missing numbers, unseen categories, any Unicode, empty texts."""
  columns = _columns(*rows)
  # Vector instructions take 4, 8 or 16 rows at a time, others the rest.
  many = {name: tf.repeat(values, 17, 0) for name, values in columns.items()}
  expected = preprocessing.Preprocessing(_ALL).encode(many).numpy()
  np.testing.assert_array_equal(loaded(**many)['x'].numpy(), expected)
  np.testing.assert_array_equal(expected, np.repeat(expected[::17], 17, 0))
  expected = expected[::17]
  for i in range(len(rows)):
    row = {name: values[i : i + 1] for name, values in columns.items()}
    np.testing.assert_array_equal(loaded(**row)['x'].numpy()[0], expected[i])


def test_windows_keep_their_steps():
  features = tuple(spec_lib.Feature(name, length=2) for name in 'ab')
  spec = spec_lib.FeatureSpec(
    features,
    fitted={
      'a': {'mean': 0.0, 'variance': 1.0},
      'b': {'mean': 1.0, 'variance': 4.0},
    },
  )
  columns = {'a': tf.constant([[1.0, 2.0]]), 'b': tf.constant([[3.0, 5.0]])}
  encoded = preprocessing.Preprocessing(spec).encode(columns)
  np.testing.assert_allclose(encoded, [[[1, 1], [2, 2]]])


def test_ids_of_words():
  feature = spec_lib.Feature('note', 'text', 'ids', length=4)
  spec = spec_lib.FeatureSpec((feature,)).fit(
    {'note': {'vocabulary': ['good', 'no']}}
  )
  texts = tf.constant(['No, good day', '', 'no no no good good', b'\xff good'])
  encoded = preprocessing.Preprocessing(spec).model_input({'note': texts})
  assert encoded.dtype == tf.int32
  np.testing.assert_array_equal(
    encoded, [[3, 2, 1, 0], [0] * 4, [3, 3, 3, 2], [2, 0, 0, 0]]
  )


def test_tokens_are_numbered_as_the_source_does():
  """Special ids may be anywhere; words take the others in their order."""
  spec = spec_lib.FeatureSpec(
    (spec_lib.Feature('tokens', 'tokens', length=3),),
    fitted={'tokens': {'vocabulary': ['a', 'b']}},
    special_ids={'padding': 0, 'unknown': 3, 'begin': 4, 'end': 5},
  )
  tokens = tf.constant([['<begin>', 'a', ''], ['q', '<end>', 'b']])
  encoded = preprocessing.Preprocessing(spec).encode({'tokens': tokens})
  np.testing.assert_array_equal(encoded, [[4, 1, 0], [3, 5, 2]])


def _image(shape=(2, 2, 3), scale=1 / 255):
  feature = spec_lib.Feature('photo', 'image', shape=shape)
  return spec_lib.FeatureSpec((feature,), scale=scale, offset=0.5)


def test_images_are_decoded_scaled_and_shifted():
  pixels = np.arange(12, dtype=np.uint8).reshape(2, 2, 3) * 20
  files = tf.stack([tf.io.encode_png(pixels), tf.io.encode_png(255 - pixels)])
  module = preprocessing.Preprocessing(_image())
  encoded = module.encode({'photo': files}).numpy()
  assert encoded.dtype == np.uint8
  np.testing.assert_array_equal(encoded, [pixels, 255 - pixels])
  np.testing.assert_array_equal(
    module.model_input({'photo': files}),
    encoded.astype(np.float32) * np.float32(1 / 255) + np.float32(0.5),
  )


def test_images_of_another_size_are_resized():
  pixels = np.array([[[0], [100]], [[200], [40]]], np.uint8)
  module = preprocessing.Preprocessing(_image((1, 1, 1)))
  encoded = module.encode({'photo': tf.io.encode_png(pixels)[tf.newaxis]})
  np.testing.assert_array_equal(encoded, [[[[85]]]])


def test_split_text():
  words = spec_lib.Feature('note', 'text')
  found = preprocessing.split_text(words, tf.constant(["Don't_stop 2x\u0301!"]))
  assert [word.decode() for word in found.to_list()[0]] == [
    *("don't", 'stop', '2x\u0301')
  ]


def test_a_category_of_the_name_of_all_others():
  spec = spec_lib.FeatureSpec(
    (spec_lib.Feature('color', 'category'),),
    fitted={'color': {'vocabulary': ['[UNK]', 'red']}},
  )
  columns = {'color': tf.constant(['[UNK]', 'red', 'blue'])}
  encoded = preprocessing.Preprocessing(spec).encode(columns).numpy()
  np.testing.assert_array_equal(encoded, [[0, 1, 0], [0, 0, 1], [1, 0, 0]])


@pytest.mark.parametrize('blank', [' ', '\t\n', '\u00a0\x1f', '\u3000\x85'])
def test_blanks_at_the_ends_are_stripped_as_in_pipelines(blank):
  assert not blank.strip()
  for name, value in (('color', 'grün'), ('city', 'Rom a'), ('tags', 'a ß')):
    found = _encode(**{name: f'{blank}{value}{blank}'})[name]
    np.testing.assert_array_equal(found, _encode(**{name: value})[name])


@pytest.mark.parametrize(
  'deviation', [1e-30, 1e-12, 9e-8, 1e-7, 1.0, 1e19, 1e20, 3e37]
)
def test_columns_of_any_scale_are_standardized(deviation):
  spec = spec_lib.FeatureSpec(
    (
      spec_lib.Feature('far'),
      spec_lib.Feature('near'),
      spec_lib.Feature('range', encoding='min_max'),
    ),
    fitted={
      'far': {'mean': 3 * deviation, 'variance': deviation**2},
      'near': {'mean': 0.1, 'variance': 0.7},
      'range': {'minimum': deviation, 'maximum': 2 * deviation},
    },
  )
  near = np.float32([0.3, 7.7, -0.4])
  encoded = preprocessing.Preprocessing(spec).encode(
    {
      'far': tf.constant(np.float32([2, 3, 5.5]) * np.float32(deviation)),
      'near': tf.constant(near),
      'range': tf.constant(np.float32([1, 1.5, 2]) * np.float32(deviation)),
    }
  )
  expected = [[-1.0, 0.0], [0.0, 0.5], [2.5, 1.0]]
  np.testing.assert_allclose(encoded.numpy()[:, ::2], expected, atol=1e-5)
  # The scale of a neighbour changes no bit.
  layer = tf.keras.layers.Normalization(mean=[0.1], variance=[0.7])
  np.testing.assert_array_equal(encoded[:, 1], layer(near[:, None])[:, 0])


def test_a_deviation_below_the_resolution_magnifies_no_rounding():
  spec = spec_lib.FeatureSpec(
    (spec_lib.Feature('flat'),),
    fitted={'flat': {'mean': 5.0, 'variance': 1e-16}},
  )
  next_one = np.nextafter(np.float32(5), np.float32(6))
  encoded = preprocessing.Preprocessing(spec).encode(
    {'flat': tf.constant([np.float32(5), next_one])}
  )
  step = (float(next_one) - 5) / 1e-7  # Keras divides by no less.
  np.testing.assert_allclose(encoded.numpy()[:, 0], [0, step], rtol=1e-5)


_COLORS = Image.fromarray(
  np.uint8([[[255, 0, 0], [0, 255, 0]], [[0, 0, 255], [255, 255, 255]]])
)
_GRAYS = Image.fromarray(np.arange(256, dtype=np.uint8).reshape(16, 16))


def _decode(image, kind, channels):
  content = io.BytesIO()
  image.save(content, kind)
  shape = (*image.size, channels)
  feature = spec_lib.Feature('i', 'image', shape=shape)
  return preprocessing.decode_image(feature, tf.constant(content.getvalue()))


@pytest.mark.parametrize('channels', [1, 3])
@pytest.mark.parametrize(
  'image',
  [_COLORS, _COLORS.convert('RGBA'), _GRAYS],
  ids=['rgb', 'rgba', 'gray'],
)
def test_a_bmp_has_the_pixels_of_a_png(image, channels):
  pixels = _decode(image, 'BMP', channels).numpy().astype(int)
  assert np.abs(pixels - _decode(image, 'PNG', channels)).max() <= (
    image is not _GRAYS and channels == 1
  )


@pytest.mark.parametrize('mode', ['P', '1'])
def test_a_bmp_with_a_palette_of_colors_is_refused(mode):
  with pytest.raises(
    tf.errors.InvalidArgumentError, match='needs 24 or 32 bits a pixel'
  ):
    _decode(_COLORS.convert(mode), 'BMP', 3)


@pytest.mark.parametrize('is_graph', [False, True])
def test_images_of_too_many_pixels_are_refused_by_their_headers(
  monkeypatch, is_graph
):
  """A file of kilobytes may hold gigabytes; of which no byte is decoded."""
  monkeypatch.setattr(preprocessing, 'MAX_PIXELS', 12)
  feature = spec_lib.Feature('i', 'image', shape=(2, 3, 3))

  def decode(content):
    return preprocessing.decode_image(feature, content)

  if is_graph:
    decode = tf.function(decode, input_signature=[tf.TensorSpec([], tf.string)])

  def bmp(width, height):
    content = io.BytesIO()
    Image.new('RGB', (width, abs(height))).save(content, 'BMP')
    rows_from_the_top = struct.pack('<i', height)
    return content.getvalue()[:22] + rows_from_the_top + content.getvalue()[26:]

  for encode in (
    lambda width, height: tf.io.encode_png(
      np.full([height, width, 1], 7, np.uint8)
    ),
    lambda width, height: tf.io.encode_jpeg(
      np.full([height, width, 1], 7, np.uint8)
    ),
    bmp,
    lambda width, height: bmp(width, -height),
  ):
    for width, height in ((4, 3), (3, 4), (1, 12)):
      assert decode(tf.constant(encode(width, height))).shape == (2, 3, 3)
    for width, height in ((13, 1), (1, 13), (4, 4)):
      with pytest.raises(tf.errors.InvalidArgumentError, match='x <= y'):
        decode(tf.constant(encode(width, height)))
  monkeypatch.setattr(preprocessing, 'MAX_PIXELS', 2**25)
  blank = Image.new('1', (1000, 1000))
  with pytest.raises(tf.errors.InvalidArgumentError, match='x <= y'):
    _decode(blank, 'PNG', 1)
  assert _decode(blank.convert('L'), 'PNG', 1).shape == (1000, 1000, 1)
  gif = io.BytesIO()
  Image.new('L', (1, 1)).save(gif, 'GIF')
  for content in (
    gif.getvalue(),
    b'',
    b'text',
    b'\x89PNG',
    b'BM',
    b'\xff\xd8\xff',
  ):
    with pytest.raises(tf.errors.InvalidArgumentError):
      decode(tf.constant(content))
