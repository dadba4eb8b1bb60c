"""Source of images and labels in IDX files: MNIST, Fashion-MNIST, EMNIST."""

import dataclasses
import math
import pathlib
from collections.abc import Iterator, Mapping

import numpy as np

from pipelines.sources import base, files
from tff_algos.core import checks, errors
from tff_algos.core.structures import Array

# File names of MNIST and Fashion-MNIST.
_MNIST_NAMES = {
  'train_images': 'train-images-idx3-ubyte',
  'train_labels': 'train-labels-idx1-ubyte',
  'test_images': 't10k-images-idx3-ubyte',
  'test_labels': 't10k-labels-idx1-ubyte',
}


@dataclasses.dataclass(frozen=True)
class Options:
  """Options of IDX files; each may be plain, .gz or .xz.

  Attributes:
    folder: Folder of the files.
    num_classes: Number of classes.
    first_label: Label of class 0 (1 for EMNIST letters).
    transpose: Whether rows and columns must be swapped (True for EMNIST).
    train_images: File name, without the suffix of a compression.
    train_labels: File name.
    test_images: File name; '' if there is no official test split.
    test_labels: File name.
  """

  folder: str
  num_classes: int = 10
  first_label: int = 0
  transpose: bool = False
  train_images: str = _MNIST_NAMES['train_images']
  train_labels: str = _MNIST_NAMES['train_labels']
  test_images: str = _MNIST_NAMES['test_images']
  test_labels: str = _MNIST_NAMES['test_labels']

  def __post_init__(self) -> None:
    checks.check_int('num_classes', self.num_classes, minimum=2)
    checks.check_int('first_label', self.first_label, minimum=0)
    if bool(self.test_images) != bool(self.test_labels):
      raise errors.ConfigError(
        'test_images and test_labels must be given both or neither, got '
        f'{self.test_images!r} and {self.test_labels!r}'
      )


class Idx(base.FolderSource):
  """8-bit grey images with whole-number labels."""

  def features(self) -> base.Features:
    """Returns square or oblong images with one channel, read as 0 to 1."""
    images, _ = read_labelled(*self._paths('train'))
    height, width = images.shape[1:]
    if self._options.transpose:
      height, width = width, height
    return base.image_features((height, width, 1), self._options.num_classes)

  def read(self, block: base.Block) -> Iterator[base.RawExample]:
    """Yields the images of a block."""
    images, labels = read_labelled(*self._paths(block.part))
    for i in range(block.start, block.stop):
      image = images[i].T if self._options.transpose else images[i]
      yield base.RawExample(
        x=image[:, :, None],
        y=int(labels[i]) - self._options.first_label,
        is_test=block.part == 'test',
      )

  def has_test_split(self) -> bool:
    """Returns whether test files are named."""
    return bool(self._options.test_images)

  def _sizes(self) -> Mapping[str, int]:
    return {part: len(read(self._paths(part)[0], 3)) for part in self._parts()}

  def _paths(self, part: str) -> tuple[pathlib.Path, pathlib.Path]:
    images, labels = (
      files.find(self._options.folder, getattr(self._options, f'{part}_{what}'))
      for what in ('images', 'labels')
    )
    return images, labels

  def _files(self) -> list[pathlib.Path]:
    return [path for part in self._parts() for path in self._paths(part)]


@files.cached(4)
def read(path: pathlib.Path, num_axes: int) -> Array:
  """Returns the array in an IDX file of bytes, read-only.

  Args:
    path: The file.
    num_axes: Required number of axes.

  Raises:
    DataError: If it is missing, damaged or of another kind.
  """
  content = files.read_bytes(path)
  # Two zero bytes, 8 for unsigned bytes, number of axes, length of each axis.
  header_bytes = 4 + 4 * num_axes
  if content[:4] != bytes([0, 0, 8, num_axes]):
    raise errors.DataError(
      f'{path} is not an IDX file of bytes with {num_axes} axes: it begins '
      f'with {content[:4].hex()!r}'
    )
  if len(content) < header_bytes:
    raise errors.DataError(
      f'{path} ends within its header: it is cut off or damaged.'
    )
  shape = [int(n) for n in np.frombuffer(content[4:header_bytes], '>u4')]
  if len(content) != header_bytes + math.prod(shape):
    raise errors.DataError(
      f'{path} should hold {shape} bytes and holds '
      f'{len(content) - header_bytes}: it is cut off or damaged.'
    )
  if 0 in shape[1:]:
    raise errors.DataError(f'{path} has images of {shape[1:]} pixels.')
  return np.frombuffer(content, np.uint8, offset=header_bytes).reshape(shape)


def read_labelled(
  images: pathlib.Path, labels: pathlib.Path
) -> tuple[Array, Array]:
  """Returns images `[n, height, width]` and labels `[n]`, uint8.

  Raises:
    DataError: If a file is damaged, or the two do not match.
  """
  pixels, classes = read(images, 3), read(labels, 1)
  if len(classes) != len(pixels):
    raise errors.DataError(
      f'{labels} has {len(classes)} labels for {len(pixels)} images'
    )
  return pixels, classes
