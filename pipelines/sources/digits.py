"""Source of scikit-learn's 1,797 handwritten digits, 8x8 pixels."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pipelines.sources import base
from tff_algos.core.structures import Array


@dataclasses.dataclass(frozen=True)
class Options:
  """No options."""


@functools.lru_cache(maxsize=1)
def _load() -> tuple[Array, Array]:
  # Imported here, since it takes half a second.
  from sklearn import datasets

  digits: Any = datasets.load_digits()
  return digits.images.astype(np.uint8), digits.target.astype(np.int32)


class Digits(base.Source):
  """UCI's optical digits, the test part: pixels 0 to 16, no official split."""

  def features(self) -> base.Features:
    """Returns 8x8 images with one channel, read as values from 0 to 1."""
    return base.image_features((8, 8, 1), 10)._replace(x_scale=1 / 16)

  def read(self, block: base.Block) -> Iterator[base.RawExample]:
    """Yields the digits of a block."""
    images, labels = _load()
    for i in range(block.start, block.stop):
      yield base.RawExample(x=images[i, :, :, None], y=int(labels[i]))

  def checksums(self) -> Mapping[str, str]:
    """Returns the checksum of the arrays as loaded."""
    return {'sklearn.datasets.load_digits': base.array_sha256(*_load())}

  def recipe(self) -> Mapping[str, Any]:
    """Returns an empty recipe: there are no options."""
    return {}

  def _sizes(self) -> Mapping[str, int]:
    return {'all': len(_load()[1])}
