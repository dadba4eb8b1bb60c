"""Base of tabular sources: a label column and feature columns."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pipelines.sources import base
from tff_algos.core import checks, errors

TRAIN = 'train'
TEST = 'test'


@dataclasses.dataclass(frozen=True)
class Options:
  """Options of tables.

  Attributes:
    folder: Folder of the files.
    train_file: File name.
    label_column: Name of the column of labels.
    feature_columns: Names of the feature columns, all numeric.
    test_file: File of the official test split; '' if there is none.
    classes: Spellings of the labels, class 0 first; None for regression.
    client_column: Column with the client of a row (for partition law
      `'natural'`); '' if there is none.
  """

  folder: str
  train_file: str
  label_column: str
  feature_columns: tuple[str, ...]
  test_file: str = ''
  classes: tuple[str, ...] | None = None
  client_column: str = ''

  def __post_init__(self) -> None:
    if not self.train_file:
      raise errors.ConfigError('train_file must name a file')
    if not self.feature_columns:
      raise errors.ConfigError('feature_columns must name at least one column')
    if self.classes is not None:
      checks.check_int('the number of classes', len(self.classes), minimum=2)

  def columns(self) -> tuple[str, ...]:
    """Returns the names of all columns that are read."""
    named = (self.label_column, *self.feature_columns, self.client_column)
    return tuple(dict.fromkeys(name for name in named if name))


class Table(base.FolderSource):
  """Source of numeric rows; a row with an invalid value is malformed.

  Subclasses read the files.
  """

  def __init__(self, options: Any, seed: int) -> None:
    del seed
    self._options = options

  def features(self) -> base.Features:
    """Returns float32 vectors, not normalised."""
    return base.vector_features(
      len(self._options.feature_columns), len(self._options.classes or ())
    )

  def blocks(self) -> Sequence[base.Block]:
    """Returns the blocks of parts `'train'` and `'test'`."""
    return [
      block
      for part in self._parts()
      for block in base.cut_blocks(part, self._num_rows(part))
    ]

  def read(self, block: base.Block) -> Iterator[base.RawExample]:
    """Yields the rows of a block."""
    for row in self._rows(block):
      yield self._parse(row)._replace(is_test=block.part == TEST)

  def has_test_split(self) -> bool:
    """Returns whether a test file is named."""
    return bool(self._options.test_file)

  def _num_rows(self, part: str) -> int:
    raise NotImplementedError

  def _rows(self, block: base.Block) -> Iterator[Mapping[str, Any]]:
    """Yields column -> value of the rows of a block."""
    raise NotImplementedError

  def _file_name(self, part: str) -> str:
    return getattr(self._options, f'{part}_file')

  def _parts(self) -> tuple[str, ...]:
    return (TRAIN, TEST) if self.has_test_split() else (TRAIN,)

  def _parse(self, row: Mapping[str, Any]) -> base.RawExample:
    values = []
    for column in self._options.feature_columns:
      value = _number(row[column])
      if value is None:
        return base.malformed(f'{column!r} is {row[column]!r}, not a number')
      values.append(value)
    label = row[self._options.label_column]
    label = '' if label is None else str(label).strip()
    client = self._options.client_column and row[self._options.client_column]
    example = base.RawExample(
      x=np.array(values),
      y=None,
      client=None if client in ('', None) else str(client),
    )
    classes = self._options.classes
    if classes is None:
      value = _number(label)
      if value is None:
        return base.malformed(f'the label {label!r} is not a number')
      return example._replace(y=value)
    if label not in classes:
      return base.malformed(f'the label {label!r} is none of the classes')
    return example._replace(y=classes.index(label))


def _number(value: Any) -> float | None:
  """Returns a cell as a number, None if it is not numeric."""
  try:
    return float(value)
  except (TypeError, ValueError, OverflowError):
    return None
