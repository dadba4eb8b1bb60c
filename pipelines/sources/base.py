"""Interface of sources of raw examples, and shared parts of sources."""

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tff_algos.core import config as config_lib
from tff_algos.core import errors, records
from tff_algos.core.structures import Array
from tff_algos.features import spec as spec_lib

# Examples per block, read by one worker. The dataset does not depend on it.
BLOCK_SIZE = 2048


class Features(NamedTuple):
  """The part of the schema that a source defines, and the range to check.

  Attributes:
    x_dtype: `'uint8'`, `'float32'`, or `'int32'` for the ids of tokens.
    x_shape: Shape of one example.
    x_scale: Features as read are `stored * x_scale + x_offset`.
    x_offset: See `x_scale`.
    task: `'classification'` or `'regression'`.
    num_classes: Labels are 0 to num_classes - 1; 0 for regression.
    y_shape: Shape of one example's label, `()` or `(places,)` of classes.
    x_range: Least and greatest value of features as stored, inclusive; None
      for any of the dtype.
  """

  x_dtype: str
  x_shape: tuple[int, ...]
  x_scale: float
  x_offset: float
  task: str
  num_classes: int
  y_shape: tuple[int, ...] = ()
  x_range: tuple[float, float] | None = None


class Problem(NamedTuple):
  """Error of one raw example.

  Attributes:
    reason: Description without values of the data.
    column: Column of a table, if the error is one column's.
    value: The invalid value, as text, if there is one.
  """

  reason: str
  column: str | None = None
  value: str | None = None

  def __str__(self) -> str:
    """Returns the column, the error and the value in one line."""
    where = '' if self.column is None else f'column {self.column!r}: '
    got = '' if self.value is None else f', got {self.value}'
    return f'{where}{self.reason}{got}'


class Location(NamedTuple):
  """Place of a raw example in the raw files, as far as it is known.

  Attributes:
    file: Name of the file.
    line: Line of a text file, or row of another table, from 1.
    row: Content: column -> cell, or a list of cells; JSON-ready.
  """

  file: str | None = None
  line: int | None = None
  row: Mapping[str, Any] | Sequence[Any] | None = None


class RawExample(NamedTuple):
  """One raw example, validated later by `cleaning`.

  Attributes:
    x: Features, or None if they are missing. Of a source with a feature spec
      column -> raw value: a number (NaN if it is missing), a list of numbers of
      a window, a text, or the bytes of an image file.
    y: Label, one number or a list of them, or None if it is missing.
    is_test: Whether it belongs to the source's official test split.
    native_source: Index of its native source distribution, for sources with
      several; else None.
    client: Name of its natural client, or None.
    problem: Error of reading it, if any.
    group: Name of the group that no split may divide, or None.
    time: Time of the example, of any unit and origin, or None.
  """

  x: Any
  y: Any
  is_test: bool = False
  native_source: int | None = None
  client: str | None = None
  problem: Problem | None = None
  group: str | None = None
  time: float | None = None


class Block(NamedTuple):
  """A block of consecutive examples of a source.

  Attributes:
    part: Part of the source, such as `'train'` or a file name.
    start: Position of the first example in the part.
    stop: Position after the last one.
  """

  part: str
  start: int
  stop: int


class Source:
  """Block-wise reader of raw examples, small enough to be sent to workers.

  By default it has arrays of one distribution, and neither a test split nor
  further facts. Subclasses have `features`, `read`, `recipe` and `_sizes`, and
  `_files` or `checksums` of their own; few of them use the dataset's seed.
  """

  def __init__(self, options: Any, seed: int) -> None:
    del seed
    self._options = options

  def features(self) -> Features:
    """Returns shape and meaning of an example.

    With a feature spec, shape and dtype of x are those of the spec.
    """
    raise NotImplementedError

  def feature_spec(self) -> spec_lib.FeatureSpec | None:
    """Returns the raw columns, not fitted; None if examples are arrays."""
    return None

  def blocks(self) -> Sequence[Block]:
    """Returns the blocks of each part, in the order of `_sizes`."""
    return [
      Block(part, start, min(start + BLOCK_SIZE, size))
      for part, size in self._sizes().items()
      for start in range(0, size, BLOCK_SIZE)
    ]

  def read(self, block: Block) -> Iterator[RawExample]:
    """Yields the examples of one block in their order."""
    raise NotImplementedError

  def checksums(self) -> Mapping[str, str]:
    """Returns name -> SHA-256 of all data that determines the examples."""
    return file_checksums(self._files())

  def native_source_names(self) -> tuple[str, ...] | None:
    """Returns the names of the native source distributions, if any."""
    return None

  def has_test_split(self) -> bool:
    """Returns whether the source has an official test split."""
    return False

  def parts_groups(self) -> bool:
    """Returns whether a group is one text, parted into examples."""
    return False

  def recipe(self) -> Mapping[str, Any]:
    """Returns the options that determine the examples, without paths."""
    raise NotImplementedError

  def facts(self) -> Mapping[str, Any]:
    """Returns further entries of the manifest, JSON-ready."""
    return {}

  def locate(self, part: str, position: int) -> Location:
    """Returns where the example at a position of a part is stored."""
    del part, position
    return Location()

  def _files(self) -> Sequence[pathlib.Path]:
    """Returns all files that are read, in a deterministic order."""
    raise NotImplementedError

  def _sizes(self) -> Mapping[str, int]:
    """Returns part -> number of its examples, in a deterministic order."""
    raise NotImplementedError

  def _parts(self) -> tuple[str, ...]:
    """Returns the parts of a source with an official test split, or none."""
    return ('train', 'test') if self.has_test_split() else ('train',)


class FolderSource(Source):
  """Base of sources of files in one folder, which is not part of the recipe.

  The options have a `folder`, and subclasses `_files`, or `checksums` and
  `locate` of their own.
  """

  def __init__(self, options: Any, seed: int) -> None:
    super().__init__(options, seed)
    self._folder = pathlib.Path(options.folder)

  def locate(self, part: str, position: int) -> Location:
    """Returns the file, if there is only one."""
    del part, position
    names = [path.name for path in self._files()]
    return Location(names[0] if len(names) == 1 else None)

  def recipe(self) -> Mapping[str, Any]:
    """Returns all options but the folder."""
    recipe = config_lib.to_recipe(self._options)
    del recipe['folder']
    return recipe


class GeneratedSource(Source):
  """Base of synthetic sources, generated from options and the dataset's seed.

  Attributes:
    NAME: Name of the generator; prefix of its random streams.
  """

  NAME: ClassVar[str]

  def __init__(self, options: Any, seed: int) -> None:
    super().__init__(options, seed)
    self._seed = seed

  def checksums(self) -> Mapping[str, str]:
    """Returns the checksum of the recipe, since no files are read."""
    recipe = json.dumps([self.recipe(), self._seed], sort_keys=True)
    return {self.NAME: hashlib.sha256(recipe.encode()).hexdigest()}

  def recipe(self) -> Mapping[str, Any]:
    """Returns all options."""
    return dataclasses.asdict(self._options)


def check_classes(classes: Sequence[Any] | None) -> None:
  """Raises ConfigError unless classes are different ones, at least two."""
  if classes is not None and len(set(classes)) < max(2, len(classes)):
    raise errors.ConfigError(
      f'classes must be different labels, at least two, got {classes!r}'
    )


class Run(NamedTuple):
  """The part of a block in one of several containers.

  Attributes:
    index: Index of the container: a file, a client, a role.
    start: Position of the first example in the container.
    stop: Position after the last one.
  """

  index: int
  start: int
  stop: int


def runs(sizes: Sequence[int], block: Block) -> Iterator[Run]:
  """Yields the runs of a block in a part with many containers.

  Args:
    sizes: Examples in each container of the part.
    block: A block of the part.
  """
  ends = np.cumsum(sizes, dtype=np.int64)
  first = int(np.searchsorted(ends, block.start, side='right'))
  for index in range(first, len(sizes)):
    begin = int(ends[index]) - int(sizes[index])
    if begin >= block.stop:
      return
    start, stop = max(block.start - begin, 0), block.stop - begin
    if start < min(stop, sizes[index]):
      yield Run(index, start, min(stop, int(sizes[index])))


def file_checksums(paths: Iterable[pathlib.Path]) -> dict[str, str]:
  """Returns the checksums of files as stored, by name without the folder.

  A file with the name of one before it, in another folder, has its number
  before its name, so that all files are part of a version's name.
  """
  found: dict[str, str] = {}
  for number, path in enumerate(dict.fromkeys(paths)):
    name = f'{number}/{path.name}' if path.name in found else path.name
    found[name] = file_sha256(path)
  return found


def file_sha256(path: pathlib.Path) -> str:
  """Returns the SHA-256 of a raw file.

  Raises:
    DataError: If it is gone.
  """
  try:
    return records.file_sha256(path)
  except FileNotFoundError:
    raise errors.DataError(
      f'the raw file {path} is gone, or a link to nothing. Put it there, or '
      'remove the link.'
    ) from None


def array_sha256(*arrays: Array) -> str:
  """Returns the SHA-256 of arrays: dtypes, shapes and values."""
  digest = hashlib.sha256()
  for array in arrays:
    digest.update(f'{array.dtype.str}{array.shape}'.encode())
    digest.update(np.ascontiguousarray(array).tobytes())
  return digest.hexdigest()


def image_features(shape: tuple[int, ...], num_classes: int) -> Features:
  """Returns the features of 8-bit images, scaled to values from 0 to 1."""
  return Features(
    x_dtype='uint8',
    x_shape=shape,
    x_scale=1 / 255,
    x_offset=0.0,
    task='classification',
    num_classes=num_classes,
  )


def vector_features(length: int, num_classes: int = 0) -> Features:
  """Returns the features of float32 vectors; 0 classes for regression."""
  return Features(
    x_dtype='float32',
    x_shape=(length,),
    x_scale=1.0,
    x_offset=0.0,
    task='classification' if num_classes else 'regression',
    num_classes=num_classes,
  )


def token_features(length: int, num_classes: int) -> Features:
  """Returns the features of `length` token ids, unscaled."""
  return vector_features(length, num_classes)._replace(x_dtype='int32')


def float_image_features(shape: tuple[int, ...], num_classes: int) -> Features:
  """Returns the features of float32 images of values from 0 to 1."""
  features = vector_features(1, num_classes)
  return features._replace(x_shape=shape, x_range=(0.0, 1.0))


def malformed(reason: str, *, value: Any = None) -> RawExample:
  """Returns an example that could not be read, with its error.

  Args:
    reason: Description without values of the data.
    value: The invalid value, if there is one.
  """
  spelled = None if value is None else repr(value)
  return RawExample(x=None, y=None, problem=Problem(reason, value=spelled))
