"""Source of FEMNIST by writer, in LEAF's JSON files.

LEAF (Caldas et al., arXiv 1812.01097) writes files with `users`, `num_samples`
and `user_data`: user -> `x`, images of 784 numbers, and `y`. CMFL's first
experiment uses it (Che et al., TPDS).
"""

import dataclasses
import json
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from pipelines.sources import base
from pipelines.sources import files as files_lib
from tff_algos.core import checks, errors
from tff_algos.core.structures import Array


@dataclasses.dataclass(frozen=True)
class Options:
  """Options of FEMNIST.

  Attributes:
    folder: LEAF's folder `data`.
    train: Folder in it whose `*.json` clients draw from, such as `'train'` or,
      before LEAF splits it, `'all_data'`.
    test: Folder with the official test split; '' for none.
    num_classes: 10 digits, 26 upper and 26 lower case letters.
  """

  folder: str
  train: str = 'all_data'
  test: str = ''
  num_classes: int = 62

  def __post_init__(self) -> None:
    checks.check_int('num_classes', self.num_classes, minimum=2)


class Writer(NamedTuple):
  """Examples of a writer in one file.

  Attributes:
    client_id: The writer's id.
    images: Arrays, or None for those that are not lists of numbers.
    labels: Raw labels.
  """

  client_id: str
  images: list[Array | None]
  labels: list[Any]


class Femnist(base.FolderSource):
  """28x28 images, upright, as values from 0 to 1; 1 is paper."""

  def features(self) -> base.Features:
    """Returns float32 images with one channel, as they are stored."""
    return base.float_image_features((28, 28, 1), self._options.num_classes)

  def read(self, block: base.Block) -> Iterator[base.RawExample]:
    """Yields the images of a block."""
    writers = _read(self._folder / block.part)
    for run in base.runs([len(writer.labels) for writer in writers], block):
      writer = writers[run.index]
      for i in range(run.start, run.stop):
        image = writer.images[i]
        if image is not None and image.size == 28 * 28:
          image = image.reshape(28, 28, 1)
        yield base.RawExample(
          x=image,
          y=writer.labels[i],
          is_test=block.part.rpartition('/')[0] == self._options.test,
          client=writer.client_id,
          group=writer.client_id,
        )

  def has_test_split(self) -> bool:
    """Returns whether a folder with test files is named."""
    return bool(self._options.test)

  def checksums(self) -> dict[str, str]:
    """Returns the checksums of the files, by folder and name."""
    return {
      f'{folder}/{path.name}': base.file_sha256(path)
      for folder in self._folders()
      for path in self._paths(folder)
    }

  def _sizes(self) -> Mapping[str, int]:
    """Returns the size of each file, such as `'train/all_data_0.json'`.

    Raises:
      DataError: If a file is damaged, or a writer is in two files of a split.
    """
    sizes = {}
    for folder in self._folders():
      seen: dict[str, pathlib.Path] = {}
      for path in self._paths(folder):
        writers = _read(path)
        for writer in writers:
          if seen.setdefault(writer.client_id, path) != path:
            raise errors.DataError(
              f'the writer {writer.client_id!r} is in {path} and in '
              f'{seen[writer.client_id]}; put the two together.'
            )
        sizes[f'{folder}/{path.name}'] = sum(
          len(writer.labels) for writer in writers
        )
    return sizes

  def _folders(self) -> tuple[str, ...]:
    return tuple(
      name for name in (self._options.train, self._options.test) if name
    )

  def _paths(self, folder: str) -> list[pathlib.Path]:
    return files_lib.match(str(self._folder / folder), '*.json')


@files_lib.cached(1)
def _read(path: pathlib.Path) -> list[Writer]:
  """Returns the writers of a file.

  Raises:
    DataError: If it is not in LEAF's format, or a writer is in it twice.
  """
  content = files_lib.read_text(path)
  try:
    tree = json.loads(content, object_pairs_hook=_without_duplicates)
    users, data = tree['users'], tree['user_data']
    if sorted(users) != sorted(data):
      raise ValueError('"users" are not those of "user_data"')
    return [_parse(user, data[user]['x'], data[user]['y']) for user in users]
  except (ValueError, KeyError, TypeError, RecursionError) as error:
    raise errors.DataError(
      f"{path} is not one of LEAF's files: {error}. Make it again."
    ) from None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  """Returns an object without duplicate keys, which JSON would accept."""
  found = dict(pairs)
  if len(found) < len(pairs):
    names = [name for name, _ in pairs]
    twice = next(name for name in names if names.count(name) > 1)
    raise ValueError(f'{twice!r} is there twice')
  # Converted at once: lists of numbers take ten times the memory.
  if isinstance(found.get('x'), list):
    found['x'] = [_as_array(image) for image in found['x']]
  return found


def _as_array(image: Any) -> Array | None:
  try:
    return np.array(image, np.float32)
  except (ValueError, TypeError, OverflowError):
    return None


def _parse(user: str, images: Any, labels: Any) -> Writer:
  if not (isinstance(images, list) and isinstance(labels, list)):
    raise TypeError(f'x and y of {user!r} are no lists')
  if len(images) != len(labels):
    raise ValueError(
      f'{user!r} has {len(images)} images and {len(labels)} labels'
    )
  return Writer(user, images, labels)
