"""Base of tabular sources: a label column and feature columns."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pipelines.sources import base, cells
from tff_algos.core import checks, errors
from tff_algos.core import config as config_lib
from tff_algos.features import spec as spec_lib

TRAIN = 'train'
TEST = 'test'


@dataclasses.dataclass(frozen=True)
class Options:
  """Options of tables.

  Attributes:
    folder: Folder of the files.
    train_file: File name.
    label_column: Name of the column of labels; '' if there are none, for
      clients that are scored (`dataset.keep_unlabelled`).
    feature_columns: Names of the feature columns, all numbers that are used as
      they are. Else see `features`.
    test_file: File of the official test split; '' if there is none.
    classes: Spellings of the labels, class 0 first; None for regression.
    client_column: Column with the client of a row (for partition law
      `'natural'`); '' if there is none.
    group_column: Column with the group of a row, such as a recording (for
      `splits.split_by='group'`); '' if there is none.
    time_column: Column with the time of a row (for splits by time), a number
      or of ISO 8601; '' if there is none.
    schema: Types, ranges and allowed values of columns, which need not be read
      for anything else.
    features: Columns of any type in place of `feature_columns`, and how each
      becomes a part of the model's input.
    label_unit: Unit of a regression's label, for served answers.
    na_values: Spellings of a missing number, besides the empty cell.
  """

  folder: str
  train_file: str
  label_column: str
  feature_columns: tuple[str, ...] = ()
  test_file: str = ''
  classes: tuple[str, ...] | None = None
  client_column: str = ''
  group_column: str = config_lib.added_option('')
  time_column: str = config_lib.added_option('')
  schema: tuple[cells.Column, ...] = config_lib.added_option(())
  features: tuple[spec_lib.Feature, ...] = config_lib.added_option(())
  label_unit: str = config_lib.added_option('')
  na_values: tuple[str, ...] = config_lib.added_option(
    ('NA', 'N/A', 'NaN', 'nan', 'null', '?')
  )

  def __post_init__(self) -> None:
    if not self.train_file:
      raise errors.ConfigError('train_file must name a file')
    if bool(self.feature_columns) == bool(self.features):
      raise errors.ConfigError(
        'a table needs either feature_columns (numbers as they are) or '
        'features (columns of any type), got '
        f'{len(self.feature_columns)} feature_columns and '
        f'{len(self.features)} features'
      )
    if self.classes is not None:
      checks.check_int('the number of classes', len(self.classes), minimum=2)
    names = [column.name for column in self.schema]
    if len(set(names)) < len(names):
      raise errors.ConfigError(
        f'schema must name a column once, got {", ".join(names)}'
      )

  def columns(self) -> tuple[str, ...]:
    """Returns the names of all columns that are read."""
    named = (
      *(self.label_column, *self.feature_columns, self.client_column),
      *(self.group_column, self.time_column),
      *(column.name for column in self.schema),
      *(feature.name for feature in self.features),
    )
    return tuple(dict.fromkeys(name for name in named if name))


class Table(base.FolderSource):
  """Source of rows; a row with an invalid value is malformed.

  Subclasses read the files.
  """

  def __init__(self, options: Any, seed: int) -> None:
    del seed
    self._options = options

  def features(self) -> base.Features:
    """Returns float32 vectors, not normalised, or raw columns."""
    num_classes = len(self._options.classes or ())
    if self._options.features:
      return base.column_features(num_classes)
    return base.vector_features(len(self._options.feature_columns), num_classes)

  def feature_spec(self) -> spec_lib.FeatureSpec | None:
    """Returns the columns `features`; None for plain numbers."""
    options = self._options
    if not options.features:
      return None
    return spec_lib.FeatureSpec(
      options.features,
      classes=options.classes or (),
      label=options.label_column,
      unit=options.label_unit,
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

  def locate(self, part: str, position: int) -> base.Location:
    """Returns the file, the line (or number) and the cells of a row."""
    raise NotImplementedError

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
    options = self._options
    x = [cells.parse_number(row[column]) for column in options.feature_columns]
    raw = {one.name: self._raw_value(one, row) for one in options.features}
    y = self._parse_label(row)
    column = options.time_column
    time = cells.parse_time(row[column]) if column else None
    client, group = (
      str(row[column]) if column and not cells.is_empty(row[column]) else None
      for column in (options.client_column, options.group_column)
    )
    return base.RawExample(
      x=raw or np.array(x),
      y=y,
      client=client,
      problem=self._find_problem(row, x, y, time),
      group=group,
      time=time,
    )

  def _raw_value(
    self, feature: spec_lib.Feature, row: Mapping[str, Any]
  ) -> float | str | None:
    """Returns the value of a cell; None if it is not one of the type."""
    cell = row[feature.name]
    if feature.type != spec_lib.NUMBER:
      return '' if cell is None else str(cell).strip()
    if cells.is_empty(cell) or str(cell).strip() in self._options.na_values:
      return math.nan
    return cells.parse_number(cell)

  def _parse_label(self, row: Mapping[str, Any]) -> float | None:
    """Returns the number or class of a row, None if it has none."""
    cell = row.get(self._options.label_column)
    if cells.is_empty(cell):
      return None
    classes = self._options.classes
    if classes is None:
      return cells.parse_number(cell)
    label = '' if cell is None else str(cell).strip()
    return classes.index(label) if label in classes else None

  def _find_problem(
    self,
    row: Mapping[str, Any],
    x: Sequence[float | None],
    y: float | None,
    time: float | None,
  ) -> base.Problem | None:
    """Returns the first error of a row, or None; see `_parse`."""
    options = self._options
    for column in options.schema:
      problem = column.find_problem(row[column.name])
      if problem is not None:
        return problem
    for column, value in zip(options.feature_columns, x, strict=True):
      if value is None or not math.isfinite(value):
        return _problem('not a finite number', column, row)
    for feature in options.features:
      if self._raw_value(feature, row) is None:
        return _problem('not a number', feature.name, row)
    if y is None and not cells.is_empty(row.get(options.label_column)):
      reason = 'none of the classes' if options.classes else 'not a number'
      return _problem(f'the label is {reason}', options.label_column, row)
    if time is None and options.time_column:
      return _problem('not a number, date or time', options.time_column, row)
    return None


def _problem(reason: str, column: str, row: Mapping[str, Any]) -> base.Problem:
  return base.Problem(reason, column, repr(row[column]))
