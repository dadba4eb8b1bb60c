"""Source of Tiny-ImageNet in its original folders of JPEG files.

`wnids.txt` names the 200 classes, `train/<class>/images/*.JPEG` holds 500
images of each, and `val/val_annotations.txt` has the class of each image in
`val/images`, which serve as the test split (the original one has no labels).
"""

import dataclasses
import functools
import hashlib
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipelines.sources import base, files
from tff_algos.core import errors

TRAIN = 'train'
VALIDATION = 'val'
_SIDE = 64


@dataclasses.dataclass(frozen=True)
class Options:
  """Options of Tiny-ImageNet.

  Attributes:
    folder: The folder `tiny-imagenet-200`, unpacked.
  """

  folder: str


class TinyImagenet(base.FolderSource):
  """Source of 64x64 colour images; grey ones get three equal channels."""

  def features(self) -> base.Features:
    """Returns images of three channels, read as values from 0 to 1."""
    return base.image_features((_SIDE, _SIDE, 3), len(self._classes()))

  def read(self, block: base.Block) -> Iterator[base.RawExample]:
    """Yields the images of a block."""
    classes = self._classes()
    for name, class_name in self._list(block.part)[block.start : block.stop]:
      if class_name not in classes:
        yield base.malformed('the class is unknown', value=class_name)
        continue
      example = _decode(self._folder / name)
      yield example._replace(
        y=classes[class_name], is_test=block.part == VALIDATION
      )

  def locate(self, part: str, position: int) -> base.Location:
    """Returns the file of an image."""
    return base.Location(self._list(part)[position][0])

  def checksums(self) -> Mapping[str, str]:
    """Returns checksums: of the lists, and of the images of each part."""
    lists = {path.name: base.file_sha256(path) for path in self._lists()}
    return lists | {part: self._checksum(part) for part in (TRAIN, VALIDATION)}

  def has_test_split(self) -> bool:
    """Returns True: the labelled validation images."""
    return True

  def facts(self) -> Mapping[str, Any]:
    """Returns the names of the classes."""
    return {'class_names': list(self._classes())}

  def _sizes(self) -> Mapping[str, int]:
    return {part: len(self._list(part)) for part in (TRAIN, VALIDATION)}

  def _classes(self) -> dict[str, int]:
    """Returns class name -> class index, in the original order."""
    path, _ = self._lists()
    names = files.read_text(path).split()
    if len(set(names)) < max(2, len(names)):
      raise errors.DataError(
        f'{path} should name different classes, at least two; it has '
        f'{len(names)} lines with {len(set(names))} names'
      )
    return {name: i for i, name in enumerate(names)}

  def _lists(self) -> tuple[pathlib.Path, pathlib.Path]:
    """Returns the files with the classes and the validation labels."""
    return (
      files.find(str(self._folder), 'wnids.txt'),
      files.find(str(self._folder / VALIDATION), 'val_annotations.txt'),
    )

  def _list(self, part: str) -> Sequence[tuple[str, str]]:
    """Returns (path in the folder, class) of all images of a part."""
    _, annotations = self._lists()
    if part == VALIDATION:
      return _list_validation(annotations)
    names = tuple(self._classes())
    folders = (self._folder / TRAIN / name / 'images' for name in names)
    written = tuple(
      one.stat().st_mtime_ns if one.exists() else 0 for one in folders
    )
    return _list_training(self._folder, names, written)

  def _checksum(self, part: str) -> str:
    digest = hashlib.sha256()
    for name, class_name in self._list(part):
      content = base.file_sha256(self._folder / name)
      digest.update(f'{name}\n{class_name}\n{content}\n'.encode())
    return digest.hexdigest()


@functools.lru_cache(maxsize=1)
def _list_training(
  folder: pathlib.Path, class_names: tuple[str, ...], mtimes_ns: tuple[int, ...]
) -> tuple[tuple[str, str], ...]:
  """Lists the training images, cached by `mtimes_ns` of their folders."""
  del mtimes_ns
  images = []
  for class_name in class_names:
    paths = sorted((folder / TRAIN / class_name / 'images').glob('*.JPEG'))
    if not paths:
      raise errors.DataError(
        f'{folder} has no training image of class {class_name!r}; unpack it '
        'again.'
      )
    images += ((str(path.relative_to(folder)), class_name) for path in paths)
  return tuple(images)


@files.cached(1)
def _list_validation(path: pathlib.Path) -> tuple[tuple[str, str], ...]:
  """Reads the validation labels."""
  images = []
  present = {image.name for image in (path.parent / 'images').glob('*')}
  for number, line in enumerate(files.read_text(path).splitlines(), start=1):
    name, *more = line.split('\t')
    if not more or name not in present:
      raise errors.DataError(
        f'line {number} of {path} should name an image in {VALIDATION}/images '
        f'and its class, parted by tabs: {line[:60]!r}'
      )
    images.append((f'{VALIDATION}/images/{name}', more[0]))
  return tuple(images)


def _decode(path: pathlib.Path) -> base.RawExample:
  """Returns the image in a file, without its label."""
  # Imported here, since it is slow.
  import tensorflow as tf

  try:
    image = tf.io.decode_jpeg(files.read_bytes(path), channels=3).numpy()
  except tf.errors.InvalidArgumentError:
    return base.malformed('the file is no whole JPEG image')
  return base.RawExample(x=image, y=None)
