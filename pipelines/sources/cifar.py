"""Source of CIFAR-10 and CIFAR-100 in their original binary files.

A record is the label (CIFAR-100: the coarse, then the fine one), a byte each,
and 3,072 pixels: red, green and blue planes, each of 32 rows. Krizhevsky,
"Learning multiple layers of features from tiny images", 2009.
"""

import dataclasses
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pipelines.sources import base, files
from tff_algos.core import checks, errors
from tff_algos.core.structures import Array

_PIXELS = 3 * 32 * 32
CIFAR10 = 'cifar10'
CIFAR100 = 'cifar100'

# Labelling -> (position of its byte in a record, number of classes).
_LABELS = {
  CIFAR10: {'fine': (0, 10)},
  CIFAR100: {'coarse': (0, 20), 'fine': (1, 100)},
}
_TRAIN_FILES = {
  CIFAR10: tuple(f'data_batch_{i}.bin' for i in range(1, 6)),
  CIFAR100: ('train.bin',),
}
_TEST_FILES = {CIFAR10: ('test_batch.bin',), CIFAR100: ('test.bin',)}
# One name a line. They change no example, so they are no part of a recipe.
_NAME_FILES = {
  CIFAR10: {'fine': 'batches.meta.txt'},
  CIFAR100: {
    'coarse': 'coarse_label_names.txt',
    'fine': 'fine_label_names.txt',
  },
}


@dataclasses.dataclass(frozen=True)
class Options:
  """Options of CIFAR.

  Attributes:
    folder: Folder of the files, unpacked from the "binary version" of the
      download; each plain, as .gz or as .xz.
    dataset: `'cifar10'` or `'cifar100'`.
    labels: `'fine'` (10 or 100 classes), or `'coarse'` (20, of CIFAR-100).
    train_files: File names; None for the original ones.
    test_files: File names; None for the original ones, () for no test split.
  """

  folder: str
  dataset: str = CIFAR10
  labels: str = 'fine'
  train_files: tuple[str, ...] | None = None
  test_files: tuple[str, ...] | None = None

  def __post_init__(self) -> None:
    checks.check_one_of('dataset', self.dataset, tuple(_LABELS))
    checks.check_one_of('labels', self.labels, tuple(_LABELS[self.dataset]))
    if self.train_files == ():
      raise errors.ConfigError('train_files must name at least one file')


class Cifar(base.FolderSource):
  """Source of 32x32 colour images; the part of a block is a file name."""

  def features(self) -> base.Features:
    """Returns images of three channels, read as values from 0 to 1."""
    _, num_classes = self._labelling()
    return base.image_features((32, 32, 3), num_classes)

  def read(self, block: base.Block) -> Iterator[base.RawExample]:
    """Yields the images of a block."""
    label_byte, _ = self._labelling()
    for record in self._records(block.part)[block.start : block.stop]:
      planes = record[-_PIXELS:].reshape(3, 32, 32)
      yield base.RawExample(
        x=planes.transpose(1, 2, 0),
        y=int(record[label_byte]),
        is_test=block.part in self._test_files(),
      )

  def has_test_split(self) -> bool:
    """Returns whether test files are named."""
    return bool(self._test_files())

  def facts(self) -> Mapping[str, Any]:
    """Returns the names of the classes, if their file is there."""
    name = _NAME_FILES[self._options.dataset][self._options.labels]
    path = files.find_optional(self._options.folder, name)
    if path is None:
      return {}
    names, (_, num_classes) = files.read_text(path).split(), self._labelling()
    if len(names) != num_classes:
      raise errors.DataError(
        f'{path} should name {num_classes} classes, one a line, and names '
        f'{len(names)}. Fetch it again, or remove it to have numbers instead.'
      )
    return {'class_names': names}

  def _sizes(self) -> Mapping[str, int]:
    names = (*self._train_files(), *self._test_files())
    return {name: len(self._records(name)) for name in names}

  def _labelling(self) -> tuple[int, int]:
    return _LABELS[self._options.dataset][self._options.labels]

  def _train_files(self) -> tuple[str, ...]:
    names = self._options.train_files
    return _TRAIN_FILES[self._options.dataset] if names is None else names

  def _test_files(self) -> tuple[str, ...]:
    names = self._options.test_files
    return _TEST_FILES[self._options.dataset] if names is None else names

  def _files(self) -> list[pathlib.Path]:
    return [
      files.find(self._options.folder, name)
      for name in (*self._train_files(), *self._test_files())
    ]

  def _records(self, name: str) -> Array:
    path = files.find(self._options.folder, name)
    num_labels = len(_LABELS[self._options.dataset])
    return _read(path, num_labels + _PIXELS)


@files.cached(2)
def _read(path: pathlib.Path, num_bytes: int) -> Array:
  """Returns the records of a file, of `num_bytes` each."""
  content = files.read_bytes(path)
  if len(content) % num_bytes:
    raise errors.DataError(
      f'{path} has {len(content)} bytes, which are no whole number of records '
      f'of {num_bytes}: it is cut off, damaged, or no binary CIFAR file.'
    )
  return np.frombuffer(content, np.uint8).reshape(-1, num_bytes)
