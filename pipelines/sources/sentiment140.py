"""Source of Sentiment140: tweets by account with binary sentiment.

The original CSV files: sentiment (0 negative, 2 neutral, 4 positive), id, date,
query, account, text; no header, ISO-8859-1. Go, Bhayani and Huang, "Twitter
sentiment classification using distant supervision", 2009. A client is an
account, as in CMFL's second experiment (Che et al., TPDS).
"""

import csv
import dataclasses
import datetime
import io
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.sources import base, files, text
from tff_algos.core import checks

_CLASSES = {'0': 0, '4': 1}
_NUM_COLUMNS = 6
_DATE = re.compile(r'(\w+ \w+ \d+ [\d:]+) (\w+) (\d+)')
# Hours ahead of UTC; the original files have PDT and UTC.
_TIME_ZONES = {'PDT': -7, 'PST': -8, 'UTC': 0}


@dataclasses.dataclass(frozen=True)
class Options:
  """Options of Sentiment140.

  Attributes:
    folder: Folder of the files, plain, .gz or .xz.
    train_file: File name, without the suffix of a compression.
    test_file: File of the official test split; '' for none. The original one
      has neutral tweets, which are malformed here: there are two classes.
    encoding: Encoding of the files; the originals are not UTF-8.
    length: Words per tweet, truncated or padded.
    vocabulary_size: Number of words with an own id; the others share one.
    vocabulary_file: File in the folder with one word a line; '' for the most
      frequent words of the training file.
  """

  folder: str
  train_file: str = 'training.1600000.processed.noemoticon.csv'
  test_file: str = ''
  encoding: str = 'latin-1'
  length: int = 25
  vocabulary_size: int = 10_000
  vocabulary_file: str = ''

  def __post_init__(self) -> None:
    checks.check_one_of('encoding', self.encoding, ('latin-1', 'utf-8'))
    checks.check_int('length', self.length, minimum=1)
    checks.check_int('vocabulary_size', self.vocabulary_size, minimum=1)


class Sentiment140(base.FolderSource):
  """Source of tweets as word ids; class 0 is negative, class 1 positive."""

  def features(self) -> base.Features:
    """Returns ids of words with two classes."""
    return base.token_features(self._options.length, len(_CLASSES))

  def read(self, block: base.Block) -> Iterator[base.RawExample]:
    """Yields the tweets of a block."""
    vocabulary = self._vocabulary()
    for row in self._rows(block.part)[block.start : block.stop]:
      if len(row) != _NUM_COLUMNS:
        yield base.malformed(f'the row has {len(row)} columns, not 6')
      elif row[0] not in _CLASSES:
        yield base.malformed('the mood is neither 0 nor 4', value=row[0])
      else:
        ids = vocabulary.encode(text.split_words(row[5]))
        yield base.RawExample(
          x=text.pad_right(ids, self._options.length),
          y=_CLASSES[row[0]],
          is_test=block.part == 'test',
          client=row[4],
          group=row[4],
          time=_parse_date(row[2]),
        )

  def has_test_split(self) -> bool:
    """Returns whether a test file is named."""
    return bool(self._options.test_file)

  def locate(self, part: str, position: int) -> base.Location:
    """Returns the file and the row of a tweet."""
    path = self._path(getattr(self._options, f'{part}_file'))
    return base.Location(path.name, row=self._rows(part)[position])

  def facts(self) -> Mapping[str, Any]:
    """Returns the vocabulary."""
    return self._vocabulary().facts()

  def _sizes(self) -> Mapping[str, int]:
    return {part: len(self._rows(part)) for part in self._parts()}

  def _path(self, name: str) -> pathlib.Path:
    return files.find(self._options.folder, name)

  def _rows(self, part: str) -> list[list[str]]:
    path = self._path(getattr(self._options, f'{part}_file'))
    return _read(path, self._options.encoding)

  def _vocabulary(self) -> text.Vocabulary:
    options = self._options
    if options.vocabulary_file:
      path = self._path(options.vocabulary_file)
      return text.read_vocabulary(path, options.vocabulary_size)
    path = self._path(options.train_file)
    return _count(path, options.encoding, options.vocabulary_size)

  def _files(self) -> list[pathlib.Path]:
    options = self._options
    names = (options.train_file, options.test_file, options.vocabulary_file)
    return [self._path(name) for name in names if name]


def _parse_date(date: str) -> float | None:
  """Returns the seconds since 1970 of such as 'Mon Apr 06 22:19:45 PDT 2009'.

  None if it is of another form or time zone.
  """
  match = _DATE.fullmatch(date)
  if match is None or match[2] not in _TIME_ZONES:
    return None
  try:
    time = datetime.datetime.strptime(
      f'{match[1]} {match[3]}', '%a %b %d %H:%M:%S %Y'
    )
  except ValueError:
    return None
  ahead = datetime.timedelta(hours=_TIME_ZONES[match[2]])
  return time.replace(tzinfo=datetime.timezone(ahead)).timestamp()


@files.cached(2)
def _read(path: pathlib.Path, encoding: str) -> list[list[str]]:
  """Returns the rows of a file."""
  lines = io.StringIO(files.read_text(path, encoding), newline='')
  # Strict, else a stray quotation mark hides all rows after it.
  reader = csv.reader(lines, strict=True)
  rows, start = [], 1
  try:
    for row in reader:
      rows.append(row)
      start = reader.line_num + 1
    return rows
  except csv.Error as error:
    raise files.csv_error(path, start, error) from None


@files.cached(1)
def _count(
  path: pathlib.Path, encoding: str, vocabulary_size: int
) -> text.Vocabulary:
  """Returns the most frequent words of a file's tweets."""
  rows = _read(path, encoding)
  return text.count_words(
    (text.split_words(row[5]) for row in rows if len(row) == _NUM_COLUMNS),
    vocabulary_size,
  )
