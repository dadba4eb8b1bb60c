"""Tables in CSV files: a label column and columns of features."""

import csv
import dataclasses
import functools
import io
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pipelines.sources import base, files
from tff_algos.core import checks, errors
from tff_algos.data import integrity


@dataclasses.dataclass(frozen=True)
class Options:
  """Options of CSV tables.

  Attributes:
    folder: Where the files lie, plain, as .gz or as .xz.
    train_file: File name, without the ending of a compression.
    label_column: Name of the column of labels.
    feature_columns: Names of the columns of features, all of them numbers.
    test_file: File of the official test split; '' if there is none.
    classes: Spellings of the labels, class 0 first; None for regression.
    client_column: Column that says whose a row is (for partition law
      `'natural'`); '' if there is none.
    column_names: Names of all columns if the files have no header line.
    delimiter: What parts the columns.
  """

  folder: str
  train_file: str
  label_column: str
  feature_columns: tuple[str, ...]
  test_file: str = ''
  classes: tuple[str, ...] | None = None
  client_column: str = ''
  column_names: tuple[str, ...] | None = None
  delimiter: str = ','

  def __post_init__(self):
    if not self.feature_columns:
      raise errors.ConfigError('feature_columns must name at least one column')
    if self.classes is not None:
      checks.check_int('the number of classes', len(self.classes), minimum=2)
    if len(self.delimiter) != 1:
      raise errors.ConfigError(
        f'delimiter must be one character, got {self.delimiter!r}'
      )


class Csv(base.FileSource):
  """Rows of numbers; a row with a missing or odd value is malformed."""

  def __init__(self, options: Options, seed: int):
    del seed
    self._options = options

  def features(self) -> base.Features:
    """Returns float32 vectors, as they are: nothing is normalised."""
    classes = self._options.classes
    return base.Features(
      x_dtype='float32',
      x_shape=(len(self._options.feature_columns),),
      x_scale=1.0,
      x_offset=0.0,
      task='regression' if classes is None else 'classification',
      num_classes=len(classes or ()),
    )

  def blocks(self) -> Sequence[base.Block]:
    """Returns the blocks of parts `'train'` and `'test'`."""
    return [
      block
      for part in self._parts()
      for block in base.cut_blocks(part, len(self._rows(part)))
    ]

  def read(self, block: base.Block) -> Iterator[base.RawExample]:
    """Yields the rows of a block."""
    for row in self._rows(block.part)[block.start : block.stop]:
      yield self._parse(row)._replace(is_test=block.part == 'test')

  def checksums(self) -> Mapping[str, str]:
    """Returns the checksums of the files as they lie there."""
    paths = [self._path(part) for part in self._parts()]
    return {path.name: integrity.file_sha256(path) for path in paths}

  def recipe(self) -> Mapping[str, Any]:
    """Returns all options but the folder."""
    recipe = dataclasses.asdict(self._options)
    del recipe['folder']
    return recipe

  def has_test_split(self) -> bool:
    """Returns whether a test file is named."""
    return bool(self._options.test_file)

  def _parts(self) -> tuple[str, ...]:
    return ('train', 'test') if self.has_test_split() else ('train',)

  def _path(self, part: str) -> pathlib.Path:
    return files.find(
      self._options.folder, getattr(self._options, f'{part}_file')
    )

  def _rows(self, part: str) -> list[dict[str, str]]:
    path = self._path(part)
    return _read_rows(path, self._options, path.stat().st_mtime_ns)

  def _parse(self, row: Mapping[str, str | None]) -> base.RawExample:
    values = []
    for column in self._options.feature_columns:
      try:
        values.append(float(row[column]))
      except (TypeError, ValueError):
        return _malformed(f'{column!r} is {row[column]!r}, not a number')
    label = (row[self._options.label_column] or '').strip()
    client = self._options.client_column
    example = base.RawExample(
      x=np.array(values, np.float32),
      y=None,
      client=row[client] if client else None,
    )
    if self._options.classes is not None:
      if label not in self._options.classes:
        return _malformed(f'the label {label!r} is none of the classes')
      return example._replace(y=self._options.classes.index(label))
    try:
      return example._replace(y=float(label))
    except ValueError:
      return _malformed(f'the label {label!r} is not a number')


def _malformed(problem: str) -> base.RawExample:
  return base.RawExample(x=None, y=None, problem=problem)


@functools.lru_cache(maxsize=2)
def _read_rows(
  path: pathlib.Path, options: Options, mtime_ns: int
) -> list[dict[str, str | None]]:
  """Returns the rows of a file; `mtime_ns` makes a changed file read again."""
  del mtime_ns
  try:
    text = files.read_bytes(path).decode()
  except UnicodeDecodeError as error:
    raise errors.DataError(f'{path} is not UTF-8 text: {error}') from None
  reader = csv.DictReader(
    io.StringIO(text, newline=''),
    fieldnames=options.column_names,
    delimiter=options.delimiter,
    skipinitialspace=True,
  )
  wanted = [options.label_column, *options.feature_columns]
  if options.client_column:
    wanted.append(options.client_column)
  columns = reader.fieldnames or []
  for column in wanted:
    if column not in columns:
      raise errors.DataError(
        f'{path} has no column {column!r}; its columns are: '
        f'{", ".join(columns) or "none"}'
      )
  return list(reader)
