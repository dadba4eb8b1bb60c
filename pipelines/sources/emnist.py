"""Source of EMNIST in its original IDX files, with images upright.

The files hold every image transposed; here rows are rows. Cohen et al.,
"EMNIST: an extension of MNIST to handwritten letters" (arXiv 1702.05373).
"""

import dataclasses
import pathlib
from collections.abc import Iterator, Mapping

import numpy as np

from pipelines.sources import base, files, idx
from tff_algos.core import checks, errors
from tff_algos.core.structures import Array

BY_CLASS = 'byclass'
LABELS = 'labels'
DISTRIBUTIONS = 'distributions'

# Split -> (number of classes, label of the first class).
_SPLITS = {
  'balanced': (47, 0),
  BY_CLASS: (62, 0),
  'bymerge': (47, 0),
  'digits': (10, 0),
  'letters': (26, 1),
  'mnist': (10, 0),
}
# Labels of by-class: 10 digits, 26 upper case, 26 lower case letters.
_FIRST_UPPER, _FIRST_LOWER, _NUM_LETTERS = 10, 36, 26


@dataclasses.dataclass(frozen=True)
class Options:
  """Options of EMNIST.

  Attributes:
    folder: Folder of the four files, plain, .gz or .xz, such as
      `emnist-letters-train-images-idx3-ubyte.gz`.
    split: `'byclass'`, `'bymerge'`, `'balanced'`, `'letters'`, `'digits'` or
      `'mnist'`, as in the files' names.
    cases_are: `'labels'`: every image, labelled as in the files. Or
      `'distributions'`, for by-class: letters alone, `lower` and `upper` being
      two source distributions that share 26 labels, as in FedSoft (arXiv
      2112.06053, section "Experiments").
  """

  folder: str
  split: str = 'letters'
  cases_are: str = LABELS

  def __post_init__(self) -> None:
    checks.check_one_of('split', self.split, tuple(_SPLITS))
    checks.check_one_of('cases_are', self.cases_are, (LABELS, DISTRIBUTIONS))
    if self.cases_are == DISTRIBUTIONS and self.split != BY_CLASS:
      raise errors.ConfigError(
        f"cases_are='distributions' needs split='byclass', got {self.split!r}, "
        'which does not tell upper from lower case'
      )


class Emnist(base.FolderSource):
  """28x28 grey images of digits and letters, upright."""

  def features(self) -> base.Features:
    """Returns images with one channel, read as values from 0 to 1."""
    if self._has_distributions():
      return base.image_features((28, 28, 1), _NUM_LETTERS)
    return base.image_features((28, 28, 1), _SPLITS[self._options.split][0])

  def read(self, block: base.Block) -> Iterator[base.RawExample]:
    """Yields the images of a block."""
    images, labels = idx.read_labelled(*self._paths(block.part))
    for row in self._rows(block.part)[block.start : block.stop]:
      example = base.RawExample(
        x=images[row].T[:, :, None],
        y=int(labels[row]) - _SPLITS[self._options.split][1],
        is_test=block.part == 'test',
      )
      yield self._as_letter(example) if self._has_distributions() else example

  def native_source_names(self) -> tuple[str, ...] | None:
    """Returns `lower` and `upper` if the cases are distributions."""
    return ('lower', 'upper') if self._has_distributions() else None

  def has_test_split(self) -> bool:
    """Returns True."""
    return True

  def _sizes(self) -> Mapping[str, int]:
    return {part: len(self._rows(part)) for part in self._parts()}

  def _has_distributions(self) -> bool:
    return self._options.cases_are == DISTRIBUTIONS

  def _as_letter(self, example: base.RawExample) -> base.RawExample:
    is_upper = example.y < _FIRST_LOWER
    first = _FIRST_UPPER if is_upper else _FIRST_LOWER
    return example._replace(y=example.y - first, native_source=int(is_upper))

  def _rows(self, part: str) -> Array:
    """Returns the positions of the selected images."""
    _, labels = idx.read_labelled(*self._paths(part))
    first = _FIRST_UPPER if self._has_distributions() else 0
    return np.flatnonzero(labels >= first)

  def _paths(self, part: str) -> tuple[pathlib.Path, pathlib.Path]:
    images, labels = (
      files.find(
        self._options.folder,
        f'emnist-{self._options.split}-{part}-{what}-ubyte',
      )
      for what in ('images-idx3', 'labels-idx1')
    )
    return images, labels

  def _files(self) -> list[pathlib.Path]:
    return [path for part in ('train', 'test') for path in self._paths(part)]
