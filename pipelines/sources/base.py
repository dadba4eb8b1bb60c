"""What a source of raw examples is."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

# Examples a worker reads at a time. The dataset does not depend on it.
BLOCK_SIZE = 2048


class Features(NamedTuple):
  """The part of the schema that a source knows.

  Attributes:
    x_dtype: `'uint8'` or `'float32'`.
    x_shape: Shape of one example.
    x_scale: Features as read are `stored * x_scale + x_offset`.
    x_offset: See `x_scale`.
    task: `'classification'` or `'regression'`.
    num_classes: Labels are 0 to num_classes - 1; 0 for regression.
  """

  x_dtype: str
  x_shape: tuple[int, ...]
  x_scale: float
  x_offset: float
  task: str
  num_classes: int


class RawExample(NamedTuple):
  """One example as it was found; `cleaning` decides whether it is sound.

  Attributes:
    x: Features, or None if they are missing.
    y: Label, or None if it is missing.
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

  def blocks(self) -> Sequence[Block]:
    """Returns all blocks, always the same ones in the same order."""

  def read(self, block: Block) -> Iterator[RawExample]:
    """Yields the examples of one block in their order."""

  def checksums(self) -> Mapping[str, str]:
    """Returns name -> SHA-256 of everything that the examples depend on."""

  def native_source_names(self) -> tuple[str, ...] | None:
    """Returns the names of the source's own distributions, if it has any."""

  def has_test_split(self) -> bool:
    """Returns whether the source brings an official test split."""

  def recipe(self) -> Mapping[str, Any]:
    """Returns the options that decide what is read, without places of files."""

  def facts(self) -> Mapping[str, Any]:
    """Returns what else the manifest should record, JSON-ready."""


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


def cut_blocks(part: str, num_examples: int) -> list[Block]:
  """Returns the blocks of a part with `num_examples` examples."""
  return [
    Block(part, start, min(start + BLOCK_SIZE, num_examples))
    for start in range(0, num_examples, BLOCK_SIZE)
  ]


def array_sha256(*arrays: np.ndarray) -> str:
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
