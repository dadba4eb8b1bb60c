"""Source of images or texts from TensorFlow Datasets (TFDS)."""

import contextlib
import dataclasses
import functools
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pipelines.sources import base, text
from tff_algos.core import checks, errors, extras

_PLACES = ('data_dir', 'download', 'download_dir', 'manual_dir')


@dataclasses.dataclass(frozen=True)
class Options:
  """Options of a set of TensorFlow Datasets.

  Attributes:
    name: Name as in `tfds.load`, such as `'mnist'` or `'emnist/letters'`.
    data_dir: Folder of prepared sets, where this one is prepared if missing; ''
      for TFDS's default.
    image: Name of the feature that holds the image.
    text: Name of the feature that holds the text, for sets of texts; `image`
      is not used then.
    label: Name of the feature that holds the class: a class label, or any
      whole number if `classes` are given.
    classes: Values of the label, class 0 first; None for those of the class
      label. An example with another one is malformed.
    client: Name of the feature with the client of an example; '' for none.
    transpose: Whether rows and columns of images must be swapped (True for
      EMNIST, which TFDS keeps as the original files do).
    image_shape: Shape of the images, for sets that do not declare one; an
      image of another shape is malformed.
    length: Words per text, truncated or padded.
    vocabulary_size: Number of words with an own id: the most frequent ones of
      the training split.
    train_split: Split that clients draw from.
    test_split: Official test split; '' if there is none.
    download: Whether TFDS may download a set that is not prepared.
    download_dir: Download folder of TFDS; '' for its default.
    manual_dir: Folder with the original files, used instead of a download; ''
      for none. Some sets read it only from here.
  """

  name: str
  data_dir: str = ''
  image: str = 'image'
  text: str = ''
  label: str = 'label'
  classes: tuple[int, ...] | None = None
  client: str = ''
  transpose: bool = False
  image_shape: tuple[int, ...] | None = None
  length: int = 100
  vocabulary_size: int = 10_000
  train_split: str = 'train'
  test_split: str = 'test'
  download: bool = False
  download_dir: str = ''
  manual_dir: str = ''

  def __post_init__(self) -> None:
    checks.check_int('length', self.length, minimum=1)
    checks.check_int('vocabulary_size', self.vocabulary_size, minimum=1)
    base.check_classes(self.classes)


class Tfds(base.Source):
  """Source of images or texts with a class."""

  def features(self) -> base.Features:
    """Returns 8-bit images, read as values from 0 to 1, or ids of words."""
    num_classes = self._num_classes()
    if self._options.text:
      _feature(self._options, self._options.text, 'Text')
      return base.token_features(self._options.length, num_classes)
    image = _feature(self._options, self._options.image, 'Image')
    shape = self._options.image_shape or image.shape
    if None in shape or image.np_dtype is not np.uint8:
      raise errors.DataError(
        f'{self._options.name!r} has images of shape {image.shape} and type '
        f'{image.np_dtype.__name__}; they must all have one shape and be '
        'uint8. If they do, say it by image_shape.'
      )
    if self._options.transpose:
      shape = (shape[1], shape[0], *shape[2:])
    return base.image_features(tuple(shape), num_classes)

  def read(self, block: base.Block) -> Iterator[base.RawExample]:
    """Yields the examples of a block."""
    split = f'{block.part}[{block.start}:{block.stop}]'
    for example in _examples(self._options, split):
      yield self._parse(example)._replace(
        is_test=block.part == self._options.test_split
      )

  def recipe(self) -> Mapping[str, Any]:
    """Returns the options that determine the examples, without paths."""
    recipe = dataclasses.asdict(self._options)
    for place in _PLACES:
      del recipe[place]
    return recipe | {'tfds_name': _builder(self._options).info.full_name}

  def has_test_split(self) -> bool:
    """Returns whether a test split is named."""
    return bool(self._options.test_split)

  def facts(self) -> Mapping[str, Any]:
    """Returns the vocabulary of texts, and the names of the classes if any."""
    options = self._options
    facts = _vocabulary(options).facts() if options.text else {}
    names = getattr(_feature(options, options.label), 'names', None) or []
    if names == [str(i) for i in range(len(names))]:  # TFDS has no others.
      return facts
    classes = options.classes or range(len(names))
    return facts | {'class_names': [names[label] for label in classes]}

  def _files(self) -> list[pathlib.Path]:
    """Returns the prepared files."""
    return [
      pathlib.Path(path)
      for split in self._splits()
      for path in self._info(split).filepaths
    ]

  def _sizes(self) -> Mapping[str, int]:
    return {split: self._info(split).num_examples for split in self._splits()}

  def _parse(self, example: Mapping[str, Any]) -> base.RawExample:
    options = self._options
    label = int(example[options.label])
    if options.classes is not None:
      if label not in options.classes:
        return base.malformed('the label is none of the classes', value=label)
      label = options.classes.index(label)
    try:
      client = _decode(example[options.client]) if options.client else None
      if options.text:
        words = text.split_words(_decode(example[options.text]))
        ids = _vocabulary(options).encode(words)
        x = text.pad_right(ids, options.length)
      else:
        x = example[options.image]
        x = np.swapaxes(x, 0, 1) if options.transpose else x
    except UnicodeDecodeError:
      return base.malformed('the text is not UTF-8')
    return base.RawExample(x=x, y=label, client=client, group=client)

  def _num_classes(self) -> int:
    options = self._options
    if options.client:
      _feature(options, options.client)
    if options.classes is None:
      return _feature(options, options.label, 'ClassLabel').num_classes
    label = _feature(options, options.label)
    if label.shape or not np.issubdtype(label.np_dtype, np.integer):
      raise errors.DataError(
        f'the feature {options.label!r} of {options.name!r} is no whole number'
      )
    count = getattr(label, 'num_classes', None)
    if count and not set(options.classes) <= set(range(count)):
      raise errors.DataError(
        f'classes must be from 0 to {count - 1}, the labels {options.label!r} '
        f'of {options.name!r}, got {options.classes!r}'
      )
    return len(options.classes)

  def _splits(self) -> tuple[str, ...]:
    names = (self._options.train_split, self._options.test_split)
    return tuple(name for name in names if name)

  def _info(self, split: str) -> Any:
    splits = _builder(self._options).info.splits
    if split not in splits:
      raise errors.DataError(
        f'{self._options.name!r} has no split {split!r}; it has '
        f'{", ".join(splits)}'
      )
    return splits[split]


def _decode(value: Any) -> str:
  """Returns a label or client as text."""
  return value.decode() if isinstance(value, bytes) else str(value)


def _feature(options: Options, name: str, kind: str = '') -> Any:
  """Returns a feature of a set by its name; checks its kind."""
  tfds = _package()
  features = _builder(options).info.features
  if name not in features or (
    kind and not isinstance(features[name], getattr(tfds.features, kind))
  ):
    raise errors.DataError(
      f'{options.name!r} has no feature {name!r}'
      + (f' of type {kind}' if kind else '')
      + f'; its features are: {", ".join(features)}'
    )
  return features[name]


def _examples(options: Options, split: str) -> Iterator[Mapping[str, Any]]:
  """Yields the examples of a split in a deterministic order."""
  import tensorflow as tf

  tfds = _package()
  try:
    examples = _builder(options).as_dataset(split=split, shuffle_files=False)
    yield from tfds.as_numpy(examples)
  except tf.errors.OpError as error:
    raise _unreadable(options, error) from None


def _unreadable(options: Options, error: Exception) -> errors.DataError:
  """Returns the DataError for an error of TFDS, of any class."""
  reason = (str(error).splitlines() or [''])[0] or type(error).__name__
  return errors.DataError(
    f'{options.name!r} cannot be read or prepared: {reason}. Are its files '
    'whole, and the right ones?'
  )


@functools.lru_cache(maxsize=2)
def _vocabulary(options: Options) -> text.Vocabulary:
  """Returns the most frequent words of the training split."""

  def texts() -> Iterator[list[str]]:
    for example in _examples(options, options.train_split):
      # Texts that are not UTF-8 are malformed, and counted when they are read.
      with contextlib.suppress(UnicodeDecodeError):
        yield text.split_words(_decode(example[options.text]))

  return text.count_words(texts(), options.vocabulary_size)


def _package() -> Any:
  # Imported here, since it is slow.
  with extras.importing('tfds', "the source 'tfds'"):
    import tensorflow_datasets
  return tensorflow_datasets


@functools.lru_cache(maxsize=2)
def _builder(options: Options) -> Any:
  """Returns the builder of a set, prepared."""
  tfds = _package()
  try:
    builder = tfds.builder(options.name, data_dir=options.data_dir or None)
  except tfds.core.DatasetNotFoundError as error:
    raise errors.DataError(
      f'TensorFlow Datasets has no data set {options.name!r}: '
      f'{str(error).splitlines()[0]}'
    ) from None
  except Exception as error:
    raise _unreadable(options, error) from error
  if builder.info.splits:
    return builder
  if not (options.download or options.manual_dir):
    raise errors.DataError(
      f'{options.name!r} is not prepared in {builder.data_dir}. Set '
      'source.options.manual_dir to a folder with its original files, or '
      'download=True, or correct data_dir.'
    )
  try:
    builder.download_and_prepare(
      download_dir=options.download_dir or None,
      download_config=tfds.download.DownloadConfig(
        manual_dir=options.manual_dir or None
      ),
    )
  except Exception as error:
    raise _unreadable(options, error) from error
  return builder
