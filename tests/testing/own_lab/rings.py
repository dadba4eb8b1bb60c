"""Synthetic source of points on two rings, a class each."""

import dataclasses

import numpy as np

from pipelines.sources import base


@dataclasses.dataclass(frozen=True)
class Options:
  """Options of the generator.

  Attributes:
    num_examples: Number of points.
  """

  num_examples: int = 240


class Rings(base.GeneratedSource):
  """Source of points with radius 1 (class 0) or 2 (class 1)."""

  NAME = 'rings'

  def features(self):
    """Returns float32 pairs of two classes."""
    return base.vector_features(2, 2)

  def read(self, block):
    """Yields the points of a block; each depends on its position alone."""
    for i in range(block.start, block.stop):
      angle = np.random.default_rng((self._seed, i)).uniform(0, 2 * np.pi)
      ring = i % 2
      x = (1 + ring) * np.array([np.cos(angle), np.sin(angle)], np.float32)
      yield base.RawExample(x=x, y=ring)

  def has_test_split(self):
    """Returns False."""
    return False

  def _sizes(self):
    return {'all': self._options.num_examples}
