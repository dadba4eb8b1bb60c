"""Source of NumPy arrays in a folder, as `tff_algos.from_arrays` writes them.

`x.npy` [n, ...] has the features, `y.npy` [n] the labels, `client.npy` [n] the
client ids (text), and `is_test.npy` [n], if it is there, what belongs to an
official test split. They are mapped into memory, not read as a whole.
"""

import dataclasses
import functools
import math
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from pipelines.sources import base, files
from tff_algos.core import checks, errors, header_lock
from tff_algos.core.structures import Array

# Array -> the kinds of its dtype, see `numpy.dtype.kind`, in words.
_KINDS = {
  'x': ('uif', 'numbers'),
  'y': ('uifU', 'numbers or text'),
  'client': ('U', 'text'),
  'is_test': ('b', 'bools'),
}
_OPTIONAL = 'is_test'


@dataclasses.dataclass(frozen=True)
class Options:
  """Options of arrays.

  The dtypes say the rest. Of `x`: bytes (uint8) are pixels, read as values from
  0 to 1; other integers are ids of tokens, from 0; floats are numbers. Of `y`:
  integers from 0 and texts are classes; floats are targets of a regression.

  Attributes:
    folder: Folder of the arrays.
    num_classes: Number of classes, if `y` does not have them all: its labels
      are integers from 0 to num_classes - 1. None to count them.
  """

  folder: str
  num_classes: int | None = None

  def __post_init__(self) -> None:
    if self.num_classes is not None:
      checks.check_int('num_classes', self.num_classes, minimum=2)


class Arrays(base.FolderSource):
  """Examples in arrays, each with its client."""

  def features(self) -> base.Features:
    """Returns the shapes and dtypes of the arrays."""
    opened = self._open()
    x, y = opened.arrays['x'], opened.arrays['y']
    is_pixels = x.dtype == np.uint8
    dtype = 'float32' if x.dtype.kind == 'f' else 'int32'
    num_classes = len(opened.classes)
    return base.Features(
      x_dtype='uint8' if is_pixels else dtype,
      x_shape=x.shape[1:],
      x_scale=1 / 255 if is_pixels else 1.0,
      x_offset=0.0,
      task='classification' if num_classes else 'regression',
      num_classes=num_classes,
      y_shape=y.shape[1:],
      # Ids of tokens are rows of an embedding.
      x_range=None if is_pixels or x.dtype.kind == 'f' else (0.0, math.inf),
    )

  def read(self, block: base.Block) -> Iterator[base.RawExample]:
    """Yields the examples of a block."""
    opened = self._open()
    arrays = {
      name: np.asarray(array[block.start : block.stop])
      for name, array in opened.arrays.items()
    }
    labels = arrays['y']
    if labels.dtype.kind == 'U':
      labels = np.searchsorted(opened.classes, labels)
    is_test = arrays.get(_OPTIONAL, np.zeros(len(labels), bool))
    for i, label in enumerate(labels.tolist()):
      yield base.RawExample(
        x=arrays['x'][i],
        y=label,
        is_test=bool(is_test[i]),
        client=str(arrays['client'][i]),
      )

  def has_test_split(self) -> bool:
    """Returns whether there is an array `is_test`, with an example."""
    is_test = self._open().arrays.get(_OPTIONAL)
    return is_test is not None and bool(is_test.any())

  def facts(self) -> Mapping[str, Any]:
    """Returns the names of the classes, if there are any."""
    classes = self._open().classes
    return {'class_names': list(classes)} if classes else {}

  def client_sizes(self) -> dict[str, int]:
    """Returns client -> number of examples."""
    client = self._open().arrays['client']
    names, sizes = np.unique(client, return_counts=True)
    return dict(zip(names.tolist(), sizes.tolist(), strict=True))

  def greatest_id(self) -> int:
    """Returns the greatest number in `x`; 0 without examples."""
    return int(self._open().arrays['x'].max(initial=0))

  def _sizes(self) -> Mapping[str, int]:
    return {'all': len(self._open().arrays['y'])}

  def _files(self) -> list[pathlib.Path]:
    folder = self._options.folder
    names = [*_KINDS]
    if files.find_optional(folder, f'{_OPTIONAL}.npy') is None:
      names.remove(_OPTIONAL)
    paths = [pathlib.Path(folder, f'{name}.npy') for name in names]
    for path in paths:
      if not path.is_file():
        raise errors.DataError(
          f'no raw data: there is no plain file {path}. Write it there, or '
          "mend the source's folder."
        )
    return paths

  def _open(self) -> 'Opened':
    paths = tuple(self._files())
    versions = tuple(files.version_of(path) for path in paths)
    return _open(paths, self._options.num_classes, versions)


class Opened(NamedTuple):
  """Arrays of a folder.

  Attributes:
    arrays: Name -> array `[n, ...]`, mapped into memory.
    classes: Names of the classes, class 0 first; () for a regression.
  """

  arrays: Mapping[str, Array]
  classes: tuple[str, ...]


@functools.lru_cache(maxsize=1)
def _open(
  paths: tuple[pathlib.Path, ...],
  num_classes: int | None,
  versions: tuple[tuple[int, ...], ...],
) -> Opened:
  """Opens and checks the arrays, cached by `versions`."""
  del versions
  arrays = {path.stem: _map(path) for path in paths}
  lengths = {name: len(array) for name, array in arrays.items()}
  if len({*lengths.values()}) > 1:
    raise errors.DataError(
      f'the arrays of {paths[0].parent} must have the same length, got '
      + ', '.join(f'{size} of {name}' for name, size in lengths.items())
    )
  return Opened(arrays, _find_classes(arrays['y'], num_classes, paths[1]))


def _map(path: pathlib.Path) -> Array:
  """Returns an array of a file, of a dtype that it may have."""
  kinds, words = _KINDS[path.stem]
  try:
    with header_lock.HEADER_LOCK:
      array = np.load(path, mmap_mode='r', allow_pickle=False)
  # A damaged header may raise almost anything.
  except Exception as error:
    raise errors.DataError(
      f'{path} is no array of {words}: {error}. Write it again.'
    ) from None
  is_array = isinstance(array, np.ndarray) and array.ndim
  if not is_array or array.dtype.kind not in kinds:
    raise errors.DataError(
      f'{path} must be an array of {words}, got '
      f'{getattr(array, "dtype", type(array))} of shape '
      f'{getattr(array, "shape", ())}'
    )
  return array


def _find_classes(
  labels: Array, num_classes: int | None, path: pathlib.Path
) -> tuple[str, ...]:
  """Returns the names of the classes; () for a regression."""
  if labels.dtype.kind == 'f':
    if num_classes or labels.ndim > 1:
      raise errors.DataError(
        f'{path} has targets of a regression (floats), which must be one an '
        f'example and no classes; got the shape {labels.shape} and '
        f'num_classes={num_classes!r}. Are they classes? Then make them '
        'integers.'
      )
    return ()
  if labels.dtype.kind == 'U':
    if num_classes:
      raise errors.DataError(
        f'{path} has labels that are texts, whose classes are counted; got '
        f'num_classes={num_classes!r}; leave it out'
      )
    names = tuple(map(str, np.unique(labels)))
    if '' in names:
      raise errors.DataError(
        f'{path} has empty texts among its labels. Leave out examples without '
        'a label.'
      )
  else:
    smallest, greatest = int(labels.min(initial=0)), int(labels.max(initial=0))
    if smallest < 0:
      raise errors.DataError(
        f'{path} has the label {smallest}. Number classes from 0, and leave '
        'out examples without a label; or write floats for a regression.'
      )
    if num_classes is None and greatest >= max(labels.size, 2):
      raise errors.DataError(
        f'{path} has classes from 0 to {greatest}, for {labels.size} labels. '
        'Number them from 0 without gaps, write texts, or floats for a '
        'regression; or set num_classes.'
      )
    names = tuple(map(str, range(num_classes or greatest + 1)))
    if num_classes is None and labels.size and (labels == greatest).all():
      names = names[-1:]
  if len(names) < 2:
    raise errors.DataError(
      f'{path} has one class alone, {", ".join(names) or "none"}; a model '
      'needs two or more to tell apart'
    )
  return names
