"""Synthetic source of quadratic losses with known minima by distribution.

y = <x, minimum_s> without noise, x_j ~ N(0, curvature_j): half the mean
squared error is the quadratic (w - minimum_s)^T H (w - minimum_s) / 2, where H
is the mean of x x^T, near diag(curvature). So every client of one distribution
has exactly this minimum, for any subset of examples.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pipelines.sources import base
from tff_algos.core import checks, errors, seeds
from tff_algos.core.structures import Array


@dataclasses.dataclass(frozen=True)
class Options:
  """Options of the generator.

  Attributes:
    num_sources: Number of minima.
    num_features: Weights of the quadratics.
    min_curvature: Smallest eigenvalue mu of the mean Hessian, > 0.
    max_curvature: Largest one L; the others lie between, evenly.
    minimum_spread: Standard deviation of each entry of a minimum.
    num_examples_per_source: Size of the pool that clients draw from.
    num_held_out_per_source: Fresh test points of each distribution.
  """

  num_sources: int = 2
  num_features: int = 4
  min_curvature: float = 0.5
  max_curvature: float = 2.0
  minimum_spread: float = 1.0
  num_examples_per_source: int = 1_000
  num_held_out_per_source: int = 1_000

  def __post_init__(self) -> None:
    checks.check_int('num_sources', self.num_sources, minimum=1)
    checks.check_int('num_features', self.num_features, minimum=1)
    checks.check_positive('min_curvature', self.min_curvature)
    checks.check_positive('minimum_spread', self.minimum_spread)
    for name in ('num_examples_per_source', 'num_held_out_per_source'):
      checks.check_int(name, getattr(self, name), minimum=1)
    if not self.max_curvature >= self.min_curvature:
      raise errors.ConfigError(
        f'max_curvature must be at least min_curvature={self.min_curvature!r}, '
        f'got {self.max_curvature!r}'
      )


class Quadratics(base.GeneratedSource):
  """Source whose native distributions are quadratics with known minima."""

  NAME = 'quadratics'

  def features(self) -> base.Features:
    """Returns float32 vectors with real targets."""
    return base.vector_features(self._options.num_features)

  def minima(self) -> Array:
    """Returns the minima, float64 `[num_sources, num_features]`."""
    generator = seeds.numpy_generator(self._seed, 'quadratics/minima')
    shape = (self._options.num_sources, self._options.num_features)
    return self._options.minimum_spread * generator.standard_normal(shape)

  def curvatures(self) -> Array:
    """Returns the eigenvalues of the mean Hessian, `[num_features]`."""
    options = self._options
    return np.linspace(
      options.min_curvature, options.max_curvature, options.num_features
    )

  def blocks(self) -> Sequence[base.Block]:
    """Returns the blocks of parts `'train_<s>'` and `'test_<s>'`."""
    return base.cut_native_blocks(
      self._options.num_sources,
      self._options.num_examples_per_source,
      self._options.num_held_out_per_source,
    )

  def read(self, block: base.Block) -> Iterator[base.RawExample]:
    """Yields the points of a block; each depends on its position alone."""
    split, source = block.part.split('_')
    minimum = self.minima()[int(source)]
    deviations = np.sqrt(self.curvatures())
    for i in range(block.start, block.stop):
      generator = seeds.numpy_generator(
        self._seed, f'quadratics/{block.part}', i
      )
      noise = generator.standard_normal(self._options.num_features)
      x = (deviations * noise).astype(np.float32)
      yield base.RawExample(
        x=x,
        # fsum rounds once, so the result does not depend on the machine.
        y=math.fsum(x * minimum),
        is_test=split == 'test',
        native_source=int(source),
      )

  def native_source_names(self) -> tuple[str, ...] | None:
    """Returns `minimum_0`, `minimum_1` and so on."""
    return tuple(f'minimum_{s}' for s in range(self._options.num_sources))

  def has_test_split(self) -> bool:
    """Returns True: fresh points of each distribution."""
    return True

  def facts(self) -> Mapping[str, Any]:
    """Returns the minima and the curvatures."""
    return {
      'minima': self.minima().tolist(),
      'curvatures': self.curvatures().tolist(),
    }
