"""Synthetic source of two Gaussian classes in the plane, as a regression.

x ~ N(y * (m, m), variance * I). Least squares without an intercept has its
optimum at w = (m, m) / (variance + 2 m^2), with the loss
variance / (variance + 2 m^2): w = (2/9, 2/9) and 1/9 for m = 2 and variance 1
(the toy of Chen and Qiu, arXiv 2503.08652, on models averaged over clients).
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pipelines.sources import base
from tff_algos.core import checks, seeds


@dataclasses.dataclass(frozen=True)
class Options:
  """Options of the generator.

  Attributes:
    mean: m, both entries of the mean of the points with target 1.
    variance: Variance of each entry, > 0.
    num_examples: Number of training points; every second one is positive.
    num_held_out: Number of points of the official test split.
  """

  mean: float = 2.0
  variance: float = 1.0
  num_examples: int = 10_000
  num_held_out: int = 10_000

  def __post_init__(self) -> None:
    checks.check_at_least('mean', self.mean, 0)
    checks.check_positive('variance', self.variance)
    checks.check_int('num_examples', self.num_examples, minimum=1)
    checks.check_int('num_held_out', self.num_held_out, minimum=1)


class TwoGaussians(base.GeneratedSource):
  """Source of points in the plane with targets 1 and -1."""

  NAME = 'two_gaussians'

  def features(self) -> base.Features:
    """Returns float32 pairs with real targets."""
    return base.vector_features(2)

  def read(self, block: base.Block) -> Iterator[base.RawExample]:
    """Yields the points of a block; each depends on its position alone."""
    deviation = np.sqrt(self._options.variance)
    for i in range(block.start, block.stop):
      generator = seeds.numpy_generator(
        self._seed, f'two_gaussians/{block.part}', i
      )
      target = 1.0 if i % 2 else -1.0
      x = target * self._options.mean + deviation * generator.standard_normal(2)
      yield base.RawExample(
        x=x.astype(np.float32), y=target, is_test=block.part == 'test'
      )

  def has_test_split(self) -> bool:
    """Returns True: fresh points."""
    return True

  def facts(self) -> Mapping[str, Any]:
    """Returns the optimum and its loss, in closed form."""
    mean, variance = self._options.mean, self._options.variance
    scale = variance + 2 * mean**2
    return {
      'optimum': [mean / scale, mean / scale],
      'optimal_loss': variance / scale,
    }

  def _sizes(self) -> Mapping[str, int]:
    return {
      'train': self._options.num_examples,
      'test': self._options.num_held_out,
    }
