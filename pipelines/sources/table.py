"""Base of tabular sources: a label column and feature columns."""

import dataclasses
import functools
import math
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pipelines.examples import raw_columns
from pipelines.sources import base, cells, files, windows
from tff_algos.core import checks, errors
from tff_algos.core import config as config_lib
from tff_algos.features import spec as spec_lib

TRAIN = 'train'
TEST = 'test'
# Part -> the option with its path.
_OPTIONS = {TRAIN: 'path', TEST: 'test_path'}
# Rows between those of windows that are read with them, in place of another
# reading.
_ROWS_BETWEEN = 100


@dataclasses.dataclass(frozen=True)
class Options:
  """Options of tables.

  Attributes:
    path: Path of the file, or of several by a pattern such as
      `'data/2026-*.csv'`, which are read in the order of their names.
    label_column: Name of the column of labels; '' if there are none, for
      clients that are scored (`dataset.keep_unlabelled`).
    feature_columns: Names of the feature columns, all numbers that are used as
      they are. Else see `features`.
    test_path: The same of the official test split; '' if there is none.
    classes: Spellings of the labels, class 0 first; None for regression.
    client_column: Column with the client of a row (for partition scheme
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
    na_values: Spellings of a missing number, client or group, besides the empty
      cell.
    window_length: Makes examples of as many consecutive rows of a client, in
      the order of time: each feature, a number, is a window, and the label is
      that of the last row. None for an example a row.
    window_stride: Rows from the start of a window to that of the next.
    max_gap: Greatest difference of the times of two rows that follow each other
      in a window, in the unit of the times (seconds for dates); None for any.
  """

  path: str
  label_column: str
  feature_columns: tuple[str, ...] = ()
  test_path: str = ''
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
  window_length: int | None = config_lib.added_option(None)
  window_stride: int = config_lib.added_option(1)
  max_gap: float | None = config_lib.added_option(None)

  def __post_init__(self) -> None:
    if not pathlib.PurePath(self.path).name:
      raise errors.ConfigError(f'path must name a file, got {self.path!r}')
    if bool(self.feature_columns) == bool(self.features):
      raise errors.ConfigError(
        'a table needs either feature_columns (numbers as they are) or '
        'features (columns of any type), got '
        f'{len(self.feature_columns)} feature_columns and '
        f'{len(self.features)} features'
      )
    base.check_classes(self.classes)
    self._check_features()
    names = [column.name for column in self.schema]
    if len(set(names)) < len(names):
      raise errors.ConfigError(
        f'schema must name a column once, got {", ".join(names)}'
      )

    self._check_windows()

  def _check_features(self) -> None:
    """Raises ConfigError if a column cannot be a feature."""
    columns = self.features or tuple(
      spec_lib.Feature(name, encoding=spec_lib.PLAIN)
      for name in self.feature_columns
    )
    spec_lib.FeatureSpec(columns)  # Checks the names.
    for feature in columns:
      if feature.name == self.label_column:
        raise errors.ConfigError(
          f'label_column {self.label_column!r} is a feature, too; leave it out '
          'of the features'
        )
      if feature.type in (spec_lib.TOKENS, spec_lib.TENSOR):
        raise errors.ConfigError(
          f'feature {feature.name!r} has the type {feature.type!r}, which is '
          'for sources of arrays; a cell of a table is none'
        )

  def _check_windows(self) -> None:
    """Raises ConfigError if the options of windows do not fit the others."""
    if self.window_length is None:
      if self.window_stride != 1 or self.max_gap is not None:
        raise errors.ConfigError(
          'window_stride and max_gap need a window_length, got '
          f'{self.window_stride!r} and {self.max_gap!r}'
        )
      return
    checks.check_int('window_length', self.window_length, minimum=1)
    checks.check_int('window_stride', self.window_stride, minimum=1)
    if self.max_gap is not None:
      checks.check_at_least('max_gap', self.max_gap, 0)
    for name in ('client_column', 'time_column', 'features'):
      if not getattr(self, name):
        raise errors.ConfigError(
          f'windows are rows of a client in the order of time: window_length='
          f'{self.window_length} needs {name}'
        )
    for feature in self.features:
      if feature.type != spec_lib.NUMBER or (
        feature.length not in (None, self.window_length)
      ):
        raise errors.ConfigError(
          f'each feature must be a number in windows of {self.window_length} '
          f'rows, got {feature.name!r} of type {feature.type!r} and length '
          f'{feature.length!r}'
        )

  @property
  def raw_features(self) -> tuple[spec_lib.Feature, ...]:
    """Returns the features, with the length of the windows."""
    if self.window_length is None:
      return self.features
    return tuple(
      dataclasses.replace(feature, length=self.window_length)
      for feature in self.features
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


class Table(base.Source):
  """Source of rows; a row with an invalid value is malformed.

  Subclasses read the files.
  """

  def features(self) -> base.Features:
    """Returns float32 vectors, not normalised, or raw columns."""
    features = base.vector_features(
      len(self._options.feature_columns), len(self._options.classes or ())
    )
    spec = self.feature_spec()
    output = spec and spec.output()
    if output is None or output.dtype == 'float32':
      return features
    # Images and ids: known before the fit, and not numbers as they are.
    return features._replace(
      x_dtype=output.dtype,
      x_shape=output.shape,
      x_scale=output.scale,
      x_offset=output.offset,
    )

  def feature_spec(self) -> spec_lib.FeatureSpec | None:
    """Returns the columns `features`; None for plain numbers."""
    options = self._options
    if not options.features:
      return None
    is_image = options.features[0].type == spec_lib.IMAGE
    return spec_lib.FeatureSpec(
      options.raw_features,
      classes=options.classes or (),
      label=options.label_column,
      unit=options.label_unit,
      scale=1 / 255 if is_image else 1.0,
    )

  def read(self, block: base.Block) -> Iterator[base.RawExample]:
    """Yields the rows of a block, or the windows."""
    examples = map(self._parse, self._rows(block))
    if self._options.window_length is not None:
      examples = self._read_windows(block)
    for example in examples:
      yield example._replace(is_test=block.part == TEST)

  def checksums(self) -> dict[str, str]:
    """Returns the checksums by file name, or `test/<name>` of test files.

    Raises:
      DataError: If a file is of both parts: windows would train on test rows.
    """
    paths = {part: self._paths(part) for part in self._parts()}
    tested = paths.get(TEST, ())
    for path in tested:
      if path in paths[TRAIN]:
        raise errors.DataError(
          f'{path} is matched by path, {self._options.path!r}, and by '
          f'test_path, {self._options.test_path!r}; name training and test '
          'files apart'
        )
    return base.file_checksums(paths[TRAIN]) | {
      f'{TEST}/{name}': checksum
      for name, checksum in base.file_checksums(tested).items()
    }

  def has_test_split(self) -> bool:
    """Returns whether a test file is named."""
    return bool(self._options.test_path)

  def recipe(self) -> Mapping[str, Any]:
    """Returns all options, with the names of the files without their folder."""
    recipe = config_lib.to_recipe(self._options)
    for part in (TRAIN, TEST):
      path = recipe.pop(_OPTIONS[part])
      recipe[f'{part}_file'] = pathlib.PurePath(path).name
    return recipe

  def facts(self) -> Mapping[str, Any]:
    """Returns the numbers of windows and of rows in none, by part."""
    if self._options.window_length is None:
      return {}
    return {
      'num_windows': {part: len(self._windows[part]) for part in self._parts()},
      'num_rows_in_no_window': {
        part: self._windows[part].num_unused for part in self._parts()
      },
    }

  def locate(self, part: str, position: int) -> base.Location:
    """Returns the file, the line (or number) and the cells of a row.

    Of a window it is the first malformed row, or else the last one.
    """
    if self._options.window_length is None:
      return self._locate_row(part, position)
    numbers = self._rows_of(part, position)
    rows = self._gather(part, numbers)
    malformed = (n for n in numbers if self._parse(rows[n]).problem)
    return self._locate_row(part, next(malformed, numbers[-1]))

  def _sizes(self) -> Mapping[str, int]:
    return {part: self._num_examples(part) for part in self._parts()}

  def _locate_row(self, part: str, row: int) -> base.Location:
    """Returns the file, the line (or number) and the cells of a row."""
    raise NotImplementedError

  def _num_rows(self, part: str) -> int:
    raise NotImplementedError

  def _rows(self, block: base.Block) -> Iterator[Mapping[str, Any]]:
    """Yields column -> value of the rows of a block."""
    raise NotImplementedError

  def _paths(self, part: str) -> Sequence[pathlib.Path]:
    """Returns the files of a part."""
    path = self._path(part)
    return files.match(str(path.parent), path.name)

  def _path(self, part: str) -> pathlib.PurePath:
    return pathlib.PurePath(getattr(self._options, _OPTIONS[part]))

  def _num_examples(self, part: str) -> int:
    if self._options.window_length is None:
      return self._num_rows(part)
    found = self._windows[part]
    return len(found) + len(found.lost)

  @functools.cached_property
  def _windows(self) -> Mapping[str, windows.Windows]:
    """Returns the windows of each part."""
    return {part: self._find_windows(part) for part in self._parts()}

  def _find_windows(self, part: str) -> windows.Windows:
    options = self._options
    clients, times = [], []
    for row in self._rows(base.Block(part, 0, self._num_rows(part))):
      clients.append(self._name(row[options.client_column]))
      time = cells.parse_time(row[options.time_column])
      times.append(math.nan if time is None else time)
    return windows.find(
      np.array(clients, object),
      np.array(times, np.float64),
      options.window_length,
      options.window_stride,
      options.max_gap,
    )

  def _rows_of(self, part: str, position: int) -> list[int]:
    """Returns the rows of an example: a window, or a row in no window."""
    found = self._windows[part]
    if position < len(found):
      return found.rows(position).tolist()
    return [int(found.lost[position - len(found)])]

  def _read_windows(self, block: base.Block) -> Iterator[base.RawExample]:
    """Yields windows, then rows that have no client or time."""
    numbers = [
      self._rows_of(block.part, position)
      for position in range(block.start, block.stop)
    ]
    rows = self._gather(block.part, [n for window in numbers for n in window])
    parsed = {number: self._parse(row) for number, row in rows.items()}
    for window in numbers:
      yield self._join([parsed[number] for number in window])

  def _gather(self, part: str, numbers: Sequence[int]) -> dict[int, Any]:
    """Returns rows by their numbers; reads those in between if they are few."""
    found = {}
    wanted = np.unique(np.asarray(numbers, np.int64))
    cuts = np.flatnonzero(np.diff(wanted) > _ROWS_BETWEEN) + 1
    for run in np.split(wanted, cuts):
      start, stop = int(run[0]), int(run[-1]) + 1
      rows = self._rows(base.Block(part, start, stop))
      found |= zip(range(start, stop), rows, strict=True)
    return {number: found[number] for number in wanted.tolist()}

  def _join(self, examples: Sequence[base.RawExample]) -> base.RawExample:
    """Returns the window of some rows; a malformed row is its error."""
    last = examples[-1]
    problems = (example.problem for example in examples)
    problem = next(filter(None, problems), None)
    is_lost = last.time is None or len(examples) < (
      self._options.window_length or 0
    )
    if (is_lost or last.client is None) and problem is None:
      problem = base.Problem(
        'the client or the time is missing, which windows need'
      )
    values = {
      feature.name: [example.x[feature.name] for example in examples]
      for feature in self._options.features
    }
    return last._replace(x=values, problem=problem)

  def _parse(self, row: Mapping[str, Any]) -> base.RawExample:
    options = self._options
    x = [cells.parse_number(row[column]) for column in options.feature_columns]
    raw = {
      feature.name: self._raw_value(feature, row[feature.name])
      for feature in options.features
    }
    y = self._parse_label(row)
    column = options.time_column
    time = cells.parse_time(row[column]) if column else None
    problem = self._find_problem(row, x, raw, y, time)
    if problem is None and options.window_length is not None:
      # Here the row is named; later it would be its window.
      problem = raw_columns.find_problem(raw, self._row_spec)
    client, group = (
      (column and self._name(row[column])) or None
      for column in (options.client_column, options.group_column)
    )
    return base.RawExample(
      x=raw or np.array(x),
      y=y,
      client=client,
      problem=problem,
      group=group,
      time=time,
    )

  @functools.cached_property
  def _row_spec(self) -> spec_lib.FeatureSpec:
    """Returns the features of one row of a window."""
    return spec_lib.FeatureSpec(
      tuple(
        dataclasses.replace(feature, length=None)
        for feature in self._options.features
      )
    )

  def _raw_value(self, feature: spec_lib.Feature, cell: Any) -> Any:
    """Returns the value of a cell; None if it is not one of the type."""
    if feature.type == spec_lib.IMAGE:
      return cell if isinstance(cell, bytes) else None
    if feature.type != spec_lib.NUMBER:
      return cells.spell(cell)
    if feature.is_window and self._options.window_length is None:
      if not isinstance(cell, list):
        return None
      values = [self._number(number) for number in cell]
      return None if None in values else values
    return self._number(cell)

  def _number(self, cell: Any) -> float | None:
    """Returns a number, NaN if it is missing; None if it is something else."""
    return math.nan if self._is_missing(cell) else cells.parse_number(cell)

  def _name(self, cell: Any) -> str:
    """Returns the name of a client or group, '' if it is missing."""
    name = cells.spell(cell)
    return '' if name in self._options.na_values else name

  def _is_missing(self, cell: Any) -> bool:
    """Returns whether a number is missing."""
    return cells.is_empty(cell) or str(cell).strip() in self._options.na_values

  def _label_cell(self, row: Mapping[str, Any]) -> Any:
    """Returns the cell of the label; None without one, or without a number."""
    # An index that pandas writes has no name, either.
    cell = row[column] if (column := self._options.label_column) else None
    is_number = self._options.classes is None
    return None if is_number and self._is_missing(cell) else cell

  def _parse_label(self, row: Mapping[str, Any]) -> float | None:
    """Returns the number or class of a row, None if it has none."""
    cell = self._label_cell(row)
    if cells.is_empty(cell):
      return None
    classes = self._options.classes
    if classes is None:
      return cells.parse_number(cell)
    label = cells.spell(cell)
    return classes.index(label) if label in classes else None

  def _find_problem(
    self,
    row: Mapping[str, Any],
    x: Sequence[float | None],
    raw: Mapping[str, Any],
    y: float | None,
    time: float | None,
  ) -> base.Problem | None:
    """Returns the first error of a row, or None; see `_parse`."""
    options = self._options
    for column in options.schema:
      cell = row[column.name]
      is_missing = column.is_number and self._is_missing(cell)
      problem = column.find_problem(None if is_missing else cell)
      if problem is not None:
        return problem
    for column, value in zip(options.feature_columns, x, strict=True):
      if value is None or not math.isfinite(value):
        return _problem('not a finite number', column, row)
    for feature in options.features:
      if raw[feature.name] is None:
        return _problem(_wanted(feature), feature.name, row)
    if y is None and not cells.is_empty(self._label_cell(row)):
      reason = (
        'none of the classes'
        if options.classes
        else 'not a number; set classes for a classification'
      )
      return _problem(f'the label is {reason}', options.label_column, row)
    column = options.time_column
    if time is None and column and not cells.is_empty(row[column]):
      return _problem('not a number, date or time', options.time_column, row)
    return None


def check_columns(
  path: pathlib.Path, found: Sequence[str], needed: Sequence[str]
) -> None:
  """Raises DataError unless a file has each needed column once."""
  for column in needed:
    if found.count(column) != 1:
      raise errors.DataError(
        f'{path} has {found.count(column) or "no"} column {column!r}; its '
        f'columns are: {", ".join(found) or "none"}'
      )


def _wanted(feature: spec_lib.Feature) -> str:
  """Returns the error of a cell that is not of the type of its column."""
  if feature.type == spec_lib.IMAGE:
    return 'not the bytes of an image file'
  return 'not a list of numbers' if feature.is_window else 'not a number'


def _problem(reason: str, column: str, row: Mapping[str, Any]) -> base.Problem:
  return base.Problem(reason, column, repr(row[column]))
