"""Writes EMNIST letters in two pseudo-cases, for FedSoft's letters.

  python -m docs.reproduction.pseudo_cases
    --emnist=data/emnist --out=data/emnist_pseudo_cases

EMNIST letters merges upper and lower case. Here k-means of a letter's training
images parts the letter in two groups, and the files are laid out as those of
EMNIST by class, where the two cases have labels of their own: the larger group
stands as upper case. So the source `emnist` reads them with `split='byclass'`
and `cases_are='distributions'`.
"""

import argparse
import pathlib
import sys

import numpy as np
from sklearn import cluster

from pipelines.sources import files, idx
from tff_algos.core import durable, errors
from tff_algos.core.structures import Array

_NUM_LETTERS = 26
# In EMNIST by class: labels of A and a.
_FIRST_UPPER, _FIRST_LOWER = 10, 36


def write(emnist: pathlib.Path, out: pathlib.Path) -> None:
  """Writes the four files of EMNIST by class.

  Args:
    emnist: Folder of EMNIST letters.
    out: Their folder, made if it does not exist.

  Raises:
    DataError: If a file of EMNIST is missing or damaged.
  """
  parts = {part: _read(emnist, part) for part in ('train', 'test')}
  labels = {part: np.zeros_like(old) for part, (_, old) in parts.items()}
  for letter in range(_NUM_LETTERS):
    members = {part: old == letter + 1 for part, (_, old) in parts.items()}
    groups = cluster.KMeans(2, n_init=10, random_state=0)
    groups.fit(_flat(parts['train'][0][members['train']]))
    upper, lower = np.argsort(-np.bincount(groups.labels_, minlength=2))
    first = {upper: _FIRST_UPPER, lower: _FIRST_LOWER}
    for part, (images, _) in parts.items():
      found = groups.predict(_flat(images[members[part]]))
      labels[part][members[part]] = [first[group] + letter for group in found]
  durable.make_folder(out)
  for part, (images, _) in parts.items():
    _write_idx(out / f'emnist-byclass-{part}-images-idx3-ubyte', images)
    _write_idx(out / f'emnist-byclass-{part}-labels-idx1-ubyte', labels[part])


def _read(emnist: pathlib.Path, part: str) -> tuple[Array, Array]:
  images, labels = (
    files.find(str(emnist), f'emnist-letters-{part}-{what}-ubyte')
    for what in ('images-idx3', 'labels-idx1')
  )
  return idx.read_labelled(images, labels)


def _flat(images: Array) -> Array:
  return images.reshape(len(images), -1).astype(np.float64)


def _write_idx(path: pathlib.Path, array: Array) -> None:
  header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, '>u4').tobytes()
  with durable.replacing(path, 'wb') as file:
    file.write(header + array.tobytes())


def _main() -> None:
  parser = argparse.ArgumentParser(description='Parts letters in two cases.')
  parser.add_argument('--emnist', type=pathlib.Path, required=True)
  parser.add_argument('--out', type=pathlib.Path, required=True)
  options = parser.parse_args()
  try:
    write(options.emnist, options.out)
  except errors.UserError as error:
    sys.exit(f'error: {error}')


if __name__ == '__main__':
  _main()
