"""Images of TensorFlow Datasets, by name."""

import dataclasses
import functools
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pipelines.sources import base
from tff_algos.core import errors
from tff_algos.data import integrity


@dataclasses.dataclass(frozen=True)
class Options:
  """Options of a set of TensorFlow Datasets.

  Attributes:
    name: Name as in `tfds.load`, such as `'mnist'` or `'emnist/letters'`.
    data_dir: Where prepared sets lie, and this one is prepared if it does not;
      '' for TFDS's own default.
    image: Name of the feature that holds the image.
    label: Name of the feature that holds the class.
    train_split: Split that clients draw from.
    test_split: Official test split; '' if there is none.
    download: Whether TFDS may fetch a set that is not prepared.
    download_dir: Where TFDS keeps downloads; '' for its default.
    manual_dir: Folder with the original files, used instead of a download; ''
      for none. Some sets read it only from here.
  """

  name: str
  data_dir: str = ''
  image: str = 'image'
  label: str = 'label'
  train_split: str = 'train'
  test_split: str = 'test'
  download: bool = False
  download_dir: str = ''
  manual_dir: str = ''


class Tfds(base.FileSource):
  """Images with a class label; other sets need a source of their own."""

  def __init__(self, options: Options, seed: int):
    del seed
    self._options = options

  def features(self) -> base.Features:
    """Returns 8-bit images, read as values from 0 to 1."""
    import tensorflow_datasets as tfds

    features = _builder(self._options).info.features
    for name, kind in (
      (self._options.image, tfds.features.Image),
      (self._options.label, tfds.features.ClassLabel),
    ):
      if name not in features or not isinstance(features[name], kind):
        raise errors.DataError(
          f'{self._options.name!r} has no feature {name!r} of type '
          f'{kind.__name__}; its features are: {", ".join(features)}'
        )
    image = features[self._options.image]
    if None in image.shape or image.np_dtype is not np.uint8:
      raise errors.DataError(
        f'{self._options.name!r} has images of shape {image.shape} and type '
        f'{image.np_dtype.__name__}; they must all have one shape and be uint8'
      )
    return base.image_features(
      image.shape, features[self._options.label].num_classes
    )

  def blocks(self) -> Sequence[base.Block]:
    """Returns the blocks of the two splits, in the order of the files."""
    return [
      block
      for split in self._splits()
      for block in base.cut_blocks(split, self._info(split).num_examples)
    ]

  def read(self, block: base.Block) -> Iterator[base.RawExample]:
    """Yields the examples of a block."""
    import tensorflow_datasets as tfds

    examples = _builder(self._options).as_dataset(
      split=f'{block.part}[{block.start}:{block.stop}]', shuffle_files=False
    )
    for example in tfds.as_numpy(examples):
      yield base.RawExample(
        x=example[self._options.image],
        y=int(example[self._options.label]),
        is_test=block.part == self._options.test_split,
      )

  def checksums(self) -> Mapping[str, str]:
    """Returns the checksums of the prepared files."""
    paths = [
      pathlib.Path(path)
      for split in self._splits()
      for path in self._info(split).filepaths
    ]
    return {path.name: integrity.file_sha256(path) for path in paths}

  def recipe(self) -> Mapping[str, Any]:
    """Returns what is read, without where it lies and how it came there."""
    recipe = dataclasses.asdict(self._options)
    for place in ('data_dir', 'download', 'download_dir', 'manual_dir'):
      del recipe[place]
    return recipe | {'tfds_name': _builder(self._options).info.full_name}

  def has_test_split(self) -> bool:
    """Returns whether a test split is named."""
    return bool(self._options.test_split)

  def _splits(self) -> tuple[str, ...]:
    names = (self._options.train_split, self._options.test_split)
    return tuple(name for name in names if name)

  def _info(self, split: str):
    splits = _builder(self._options).info.splits
    if split not in splits:
      raise errors.DataError(
        f'{self._options.name!r} has no split {split!r}; it has '
        f'{", ".join(splits)}'
      )
    return splits[split]


@functools.lru_cache(maxsize=2)
def _builder(options: Options):
  """Returns the builder of a set, prepared."""
  # Imported here: other sources need not wait for it.
  import tensorflow_datasets as tfds

  try:
    builder = tfds.builder(options.name, data_dir=options.data_dir or None)
  except tfds.core.DatasetNotFoundError as error:
    raise errors.DataError(
      f'TensorFlow Datasets knows no set {options.name!r}: '
      f'{str(error).splitlines()[0]}'
    ) from None
  if builder.info.splits:
    return builder
  if not (options.download or options.manual_dir):
    raise errors.DataError(
      f'{options.name!r} is not prepared in {builder.data_dir}. Set '
      'source.options.manual_dir to a folder with its original files, or '
      'download=True, or mend data_dir.'
    )
  builder.download_and_prepare(
    download_dir=options.download_dir or None,
    download_config=tfds.download.DownloadConfig(
      manual_dir=options.manual_dir or None
    ),
  )
  return builder
