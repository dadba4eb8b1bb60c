"""Source of images in files: `client/class/file`, or listed in a table."""

import dataclasses
import functools
import hashlib
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pipelines.examples import raw_columns
from pipelines.sources import base, csv, files
from tff_algos.core import errors
from tff_algos.features import spec as spec_lib

# The raw column of an image's file.
IMAGE = 'image'

_ALL = 'all'


@dataclasses.dataclass(frozen=True)
class Options:
  """Options of images in files.

  Attributes:
    folder: Folder of the images.
    shape: `(height, width, channels)` of the examples, with 1 or 3 channels;
      an image of another size is resized.
    table: CSV file in the folder that lists the images, a row each; '' if they
      lie in folders `client/class`.
    path_column: Column of the table with the path in the folder.
    label_column: Column of the table with the class.
    client_column: Column of the table with the client; '' if there is none.
    classes: Names of the classes, class 0 first; None for those that are found,
      sorted.
  """

  folder: str
  shape: tuple[int, ...] = (32, 32, 3)
  table: str = ''
  path_column: str = 'path'
  label_column: str = 'label'
  client_column: str = 'client'
  classes: tuple[str, ...] | None = None

  def __post_init__(self) -> None:
    self.feature()
    base.check_classes(self.classes)

  def feature(self) -> spec_lib.Feature:
    """Returns the raw column."""
    return spec_lib.Feature(IMAGE, spec_lib.IMAGE, shape=self.shape)


class Listed(NamedTuple):
  """An image that is listed.

  Attributes:
    path: Path in the folder.
    label: Name of its class; None if it is unknown.
    client: Its client; None if it is unknown.
    location: Where it is listed.
    problem: Error of the listing, if any.
  """

  path: str
  label: str | None
  client: str | None
  location: base.Location
  problem: base.Problem | None = None


class Images(base.FolderSource):
  """PNG, JPEG or BMP files of any size, with a class and a client."""

  def features(self) -> base.Features:
    """Returns resized images, read as values from 0 to 1."""
    return base.image_features(self._options.shape, len(self._classes))

  def feature_spec(self) -> spec_lib.FeatureSpec:
    """Returns the one raw column, and the names of the classes."""
    return spec_lib.FeatureSpec(
      (self._options.feature(),), classes=self._classes, scale=1 / 255
    )

  def read(self, block: base.Block) -> Iterator[base.RawExample]:
    """Yields the contents of the files of a block."""
    numbers = {name: number for number, name in enumerate(self._classes)}
    for image in self.listed[block.start : block.stop]:
      content, problem = None, image.problem
      if problem is None:
        content, problem = self._read(image.path)
      if problem is None and image.label and image.label not in numbers:
        problem = base.Problem('the class is unknown', value=repr(image.label))
      yield base.RawExample(
        x=None if content is None else {IMAGE: content},
        y=numbers.get(image.label or ''),
        client=image.client,
        problem=problem,
      )

  def checksums(self) -> Mapping[str, str]:
    """Returns one checksum of all files: their list and their contents."""
    digest = hashlib.sha256()
    for image in self.listed:
      content, _ = self._read(image.path)
      if content is not None:
        content = hashlib.sha256(content).hexdigest()
      digest.update(f'{image[:3]} {content}\n'.encode())
      if image.problem is not None:
        digest.update(f'{image.problem}\n'.encode())
    return {'images': digest.hexdigest()}

  def facts(self) -> Mapping[str, Any]:
    """Returns the names of the classes."""
    return {'class_names': list(self._classes)}

  def locate(self, part: str, position: int) -> base.Location:
    """Returns the file of an image, or its line in the table."""
    del part
    return self.listed[position].location

  @functools.cached_property
  def listed(self) -> tuple[Listed, ...]:
    """Returns all files, in the order of their paths or of the table."""
    if not self._folder.is_dir():
      raise errors.DataError(
        f'no raw data: there is no folder {str(self._folder)!r}. Put the '
        "images there, or mend the source's folder."
      )
    if self._options.table:
      return tuple(_list_table(self._folder, self._options))
    return tuple(_list_folders(self._folder))

  def _sizes(self) -> Mapping[str, int]:
    return {_ALL: len(self.listed)}

  @functools.cached_property
  def _classes(self) -> tuple[str, ...]:
    """Returns the names of the classes, class 0 first."""
    if self._options.classes is not None:
      return self._options.classes
    found = sorted(
      {one.label for one in self.listed if one.label and not one.problem}
    )
    if len(found) < 2:
      raise errors.DataError(
        f'the images of {str(self._folder)!r} have one class alone, '
        f'{", ".join(found) or "none"}; a model needs two or more to tell '
        'apart'
      )
    return tuple(found)

  def _read(self, path: str) -> tuple[bytes | None, base.Problem | None]:
    """Returns the content of a file, or its error."""
    try:
      return (self._folder / path).read_bytes(), None
    except (OSError, ValueError) as error:  # Of a path with a zero byte.
      if errors.is_of_disk(error):
        raise
      return None, base.Problem('the file cannot be read', value=repr(path))


def _list_folders(folder: pathlib.Path) -> Iterator[Listed]:
  """Yields the files in folders `client/class`, and those elsewhere."""
  paths = sorted(path.relative_to(folder) for path in _find_files(folder))
  if not paths:
    raise errors.DataError(
      f'no raw data: {str(folder)!r} has no files. Put images there as '
      'client/class/file.'
    )
  if all(len(path.parts) < 3 for path in paths):
    raise errors.DataError(
      f'{str(folder)!r} has no folders client/class: its files are like '
      f'{str(paths[0])!r}. Move them to client/class/file, or list them in a '
      'CSV file with the columns path, label and client and set table.'
    )
  for path in paths:
    location = base.Location(str(path))
    if len(path.parts) == 3:
      client, label, _ = path.parts
      problem = None
      if not raw_columns.is_unicode(label):
        problem = base.Problem(
          'the class is not Unicode text', value=repr(label)
        )
      yield Listed(str(path), label, client, location, problem)
    else:
      problem = base.Problem(
        'the file does not lie at client/class/file', value=repr(str(path))
      )
      yield Listed(str(path), None, None, location, problem)


def _find_files(folder: pathlib.Path) -> Iterator[pathlib.Path]:
  """Yields all files under a folder that are not hidden or in a hidden one.

  Raises:
    DataError: If there is a link to a folder.
    OSError: If the disk fails: `rglob` would leave out what it may not read.
  """
  for name in files.match_names(str(folder), '*'):
    path = folder / name
    if path.is_file():
      yield path
    elif path.is_symlink() and path.is_dir():
      raise errors.DataError(
        f'{str(path)!r} is a link to a folder, which is not followed. Put the '
        'folder itself there, or list the images in a CSV file and set table.'
      )
    elif path.is_dir():
      yield from _find_files(path)


def _list_table(folder: pathlib.Path, options: Options) -> Iterator[Listed]:
  """Yields the files that a table lists, which need not exist."""
  path = files.find(str(folder), options.table)
  columns = (options.path_column, options.label_column, options.client_column)
  read = csv.read_rows(path, csv.Format(tuple(filter(None, columns))))
  for index, row in enumerate(read.rows):
    name, label, client = (
      row[column].strip() or None if column and row[column] else None
      for column in columns
    )
    problem = csv.find_problem(row)
    if problem is None and (name is None or '\0' in name):
      problem = base.Problem(
        'the path is missing', options.path_column, repr(name)
      )
    yield Listed(
      name or '', label, client, csv.locate(path, read, index), problem
    )
