"""What a source of raw examples is."""

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from tff_algos.core.structures import Array
from tff_algos.data import integrity

# Examples a worker reads at a time. The dataset does not depend on it.
BLOCK_SIZE = 2048


class Features(NamedTuple):
  """The part of the schema that a source knows.

  Attributes:
    x_dtype: `'uint8'`, `'float32'`, or `'int32'` for the ids of tokens.
    x_shape: Shape of one example.
    x_scale: Features as read are `stored * x_scale + x_offset`.
    x_offset: See `x_scale`.
    task: `'classification'` or `'regression'`.
    num_classes: Labels are 0 to num_classes - 1; 0 for regression.
    y_shape: Shape of one example's label, `()` or `(places,)` of classes.
  """

  x_dtype: str
  x_shape: tuple[int, ...]
  x_scale: float
  x_offset: float
  task: str
  num_classes: int
  y_shape: tuple[int, ...] = ()


class RawExample(NamedTuple):
  """One example as it was found; `cleaning` decides whether it is sound.

  Attributes:
    x: Features, or None if they are missing.
    y: Label, one number or a list of them, or None if it is missing.
    is_test: Whether it belongs to the source's official test split.
    native_source: Index of the distribution that it was drawn from, for
      sources that are mixtures by nature; else None.
    client: Name of the client that it belongs to by nature, or None.
    problem: Why it could not be read, if it could not.
  """

  x: Any
  y: Any
  is_test: bool = False
  native_source: int | None = None
  client: str | None = None
  problem: str | None = None


class Block(NamedTuple):
  """A run of a source's examples.

  Attributes:
    part: Which part of the source, such as `'train'` or a file's name.
    start: Position of the first example in the part.
    stop: Position after the last one.
  """

  part: str
  start: int
  stop: int


class Source(Protocol):
  """Reads raw examples block by block; small enough to be sent to workers."""

  def features(self) -> Features:
    """Returns shape and meaning of an example."""
    ...

  def blocks(self) -> Sequence[Block]:
    """Returns all blocks, always the same ones in the same order."""
    ...

  def read(self, block: Block) -> Iterator[RawExample]:
    """Yields the examples of one block in their order."""
    ...

  def checksums(self) -> Mapping[str, str]:
    """Returns name -> SHA-256 of everything that the examples depend on."""
    ...

  def native_source_names(self) -> tuple[str, ...] | None:
    """Returns the names of the source's own distributions, if it has any."""
    ...

  def has_test_split(self) -> bool:
    """Returns whether the source brings an official test split."""
    ...

  def recipe(self) -> Mapping[str, Any]:
    """Returns the options that decide what is read, without places of files."""
    ...

  def facts(self) -> Mapping[str, Any]:
    """Returns what else the manifest should record, JSON-ready."""
    ...


class FileSource:
  """What most sources have in common: no distributions and facts of their own.

  Subclasses add the rest of `Source`.
  """

  def native_source_names(self) -> tuple[str, ...] | None:
    """Returns None: the examples come from one distribution."""
    return None

  def facts(self) -> Mapping[str, Any]:
    """Returns nothing to add to the manifest."""
    return {}


class FolderSource(FileSource):
  """Files in one folder, which is no part of the recipe.

  Subclasses have `_options` with a `folder`, and `_files`.
  """

  _options: Any

  def _files(self) -> Sequence[pathlib.Path]:
    """Returns all files that are read, of different names."""
    raise NotImplementedError

  def checksums(self) -> Mapping[str, str]:
    """Returns the checksums of the files as they lie there."""
    return {path.name: integrity.file_sha256(path) for path in self._files()}

  def recipe(self) -> Mapping[str, Any]:
    """Returns all options but the folder."""
    recipe = dataclasses.asdict(self._options)
    del recipe['folder']
    return recipe


class GeneratedSource(FileSource):
  """Examples that are drawn here, from the options and the dataset's seed.

  Attributes:
    NAME: Of the generator; the purpose of its randomness begins with it.
  """

  NAME: ClassVar[str]

  def __init__(self, options: Any, seed: int) -> None:
    self._options = options
    self._seed = seed

  def checksums(self) -> Mapping[str, str]:
    """Returns the checksum of the recipe: nothing is read from outside."""
    recipe = json.dumps([self.recipe(), self._seed], sort_keys=True)
    return {self.NAME: hashlib.sha256(recipe.encode()).hexdigest()}

  def recipe(self) -> Mapping[str, Any]:
    """Returns all options."""
    return dataclasses.asdict(self._options)


def cut_blocks(part: str, num_examples: int) -> list[Block]:
  """Returns the blocks of a part with `num_examples` examples."""
  return [
    Block(part, start, min(start + BLOCK_SIZE, num_examples))
    for start in range(0, num_examples, BLOCK_SIZE)
  ]


def cut_native_blocks(
  num_sources: int, num_train: int, num_test: int
) -> list[Block]:
  """Returns the blocks of parts `'train_<s>'` and `'test_<s>'`.

  Args:
    num_sources: Distributions of the source's own.
    num_train: Training examples of each.
    num_test: Examples of the official test split of each.
  """
  return [
    block
    for split, size in (('train', num_train), ('test', num_test))
    for source in range(num_sources)
    for block in cut_blocks(f'{split}_{source}', size)
  ]


class Run(NamedTuple):
  """The part of a block that one of several containers holds.

  Attributes:
    index: Of the container: a file, a client, a role.
    start: Position of the first example in the container.
    stop: Position after the last one.
  """

  index: int
  start: int
  stop: int


def runs(sizes: Sequence[int], block: Block) -> Iterator[Run]:
  """Yields where the examples of a block lie, in a part of many containers.

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


def array_sha256(*arrays: Array) -> str:
  """Returns the SHA-256 of arrays: dtypes, shapes and values."""
  digest = hashlib.sha256()
  for array in arrays:
    digest.update(f'{array.dtype.str}{array.shape}'.encode())
    digest.update(np.ascontiguousarray(array).tobytes())
  return digest.hexdigest()


def image_features(shape: tuple[int, ...], num_classes: int) -> Features:
  """Returns the features of 8-bit images, read as values from 0 to 1."""
  return Features(
    x_dtype='uint8',
    x_shape=shape,
    x_scale=1 / 255,
    x_offset=0.0,
    task='classification',
    num_classes=num_classes,
  )


def token_features(length: int, num_classes: int) -> Features:
  """Returns the features of `length` ids of tokens, stored and read alike."""
  return Features(
    x_dtype='int32',
    x_shape=(length,),
    x_scale=1.0,
    x_offset=0.0,
    task='classification',
    num_classes=num_classes,
  )


def vector_features(length: int, num_classes: int = 0) -> Features:
  """Returns the features of float32 vectors; 0 classes are a regression."""
  return Features(
    x_dtype='float32',
    x_shape=(length,),
    x_scale=1.0,
    x_offset=0.0,
    task='classification' if num_classes else 'regression',
    num_classes=num_classes,
  )


def malformed(problem: str) -> RawExample:
  """Returns an example that could not be read, and why."""
  return RawExample(x=None, y=None, problem=problem)
