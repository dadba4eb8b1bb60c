"""Synthetic source of mixtures of linear regressions (FedSoft).

y = <x, theta_s> + noise with x ~ N(0, I), noise ~ N(0, 1), no intercept, and
theta_s ~ N(0, variance * I) for each source distribution s (arXiv 2112.06053,
section "Experiments").
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pipelines.sources import base
from tff_algos.core import checks, errors, seeds
from tff_algos.core.structures import Array


@dataclasses.dataclass(frozen=True)
class Options:
  """Options of the generator.

  Attributes:
    num_sources: Number of regressions S.
    num_features: Length of x.
    theta_spread: sigma_0 of the paper.
    theta_spread_is: `'variance'` or `'standard_deviation'` of an entry of
      theta. The paper prints the second; its published errors fit the first.
    separation: If given, the thetas are scaled by one factor so that
      ||theta_0 - theta_1||^2 is this number; S must be 2.
    num_examples_per_source: Size of the pool that clients draw from.
    num_held_out_per_source: Fresh test points of each distribution.
    theta_seed: Seed of the thetas; None takes the dataset's seed. Fix it to
      vary data and partition over the same regressions.
    planted_thetas: The thetas themselves, `[num_sources][num_features]`, in
      place of a draw; empty draws them.
  """

  num_sources: int = 2
  num_features: int = 10
  theta_spread: float = 10.0
  theta_spread_is: str = 'variance'
  separation: float | None = None
  num_examples_per_source: int = 10_000
  num_held_out_per_source: int = 10_000
  theta_seed: int | None = None
  planted_thetas: tuple[tuple[float, ...], ...] = ()

  def __post_init__(self) -> None:
    checks.check_int('num_sources', self.num_sources, minimum=1)
    checks.check_int('num_features', self.num_features, minimum=1)
    checks.check_positive('theta_spread', self.theta_spread)
    checks.check_one_of(
      'theta_spread_is',
      self.theta_spread_is,
      ('variance', 'standard_deviation'),
    )
    checks.check_int(
      'num_examples_per_source', self.num_examples_per_source, minimum=1
    )
    checks.check_int(
      'num_held_out_per_source', self.num_held_out_per_source, minimum=1
    )
    if self.theta_seed is not None:
      checks.check_int('theta_seed', self.theta_seed, minimum=0)
    if self.separation is not None:
      checks.check_positive('separation', self.separation)
      if self.num_sources != 2:
        raise errors.ConfigError(
          'separation is the distance of two thetas and needs num_sources=2, '
          f'got num_sources={self.num_sources}'
        )
    if self.planted_thetas:
      self._check_planted_thetas()

  def _check_planted_thetas(self) -> None:
    lengths = [len(theta) for theta in self.planted_thetas]
    if lengths != [self.num_features] * self.num_sources:
      raise errors.ConfigError(
        f'planted_thetas has {len(lengths)} rows of {lengths} numbers; it '
        f'needs num_sources={self.num_sources} rows of '
        f'num_features={self.num_features}'
      )
    if self.separation is not None:
      raise errors.ConfigError(
        'separation scales drawn thetas; leave it out with planted_thetas'
      )


class LinearRegression(base.GeneratedSource):
  """Source whose native distributions are regressions with known thetas."""

  NAME = 'linear_regression'

  def features(self) -> base.Features:
    """Returns float32 vectors with real labels."""
    return base.vector_features(self._options.num_features)

  def thetas(self) -> Array:
    """Returns the regressions' weights, float64 `[num_sources, features]`."""
    options = self._options
    if options.planted_thetas:
      return np.array(options.planted_thetas, np.float64)
    theta_seed = (
      self._seed if options.theta_seed is None else options.theta_seed
    )
    generator = seeds.numpy_generator(theta_seed, 'linear_regression/thetas')
    deviation = options.theta_spread
    if options.theta_spread_is == 'variance':
      deviation = np.sqrt(options.theta_spread)
    thetas = deviation * generator.standard_normal(
      (options.num_sources, options.num_features)
    )
    if options.separation is not None:
      distance = np.sum((thetas[0] - thetas[1]) ** 2)
      thetas *= np.sqrt(options.separation / distance)
    return thetas

  def read(self, block: base.Block) -> Iterator[base.RawExample]:
    """Yields the points of a block; each depends on its position alone."""
    split, source = block.part.split('_')
    theta = self.thetas()[int(source)]
    for i in range(block.start, block.stop):
      generator = seeds.numpy_generator(
        self._seed, f'linear_regression/{block.part}', i
      )
      values = generator.standard_normal(self._options.num_features + 1)
      x = values[:-1].astype(np.float32)
      yield base.RawExample(
        x=x,
        # fsum rounds once, so the result does not depend on the machine.
        y=math.fsum((*(x * theta), values[-1])),
        is_test=split == 'test',
        native_source=int(source),
      )

  def native_source_names(self) -> tuple[str, ...] | None:
    """Returns `theta_0`, `theta_1` and so on."""
    return tuple(f'theta_{s}' for s in range(self._options.num_sources))

  def has_test_split(self) -> bool:
    """Returns True: fresh points of each distribution."""
    return True

  def facts(self) -> Mapping[str, Any]:
    """Returns the thetas."""
    return {'thetas': self.thetas().tolist()}

  def _sizes(self) -> Mapping[str, int]:
    sizes = {
      'train': self._options.num_examples_per_source,
      'test': self._options.num_held_out_per_source,
    }
    return {
      f'{split}_{source}': size
      for split, size in sizes.items()
      for source in range(self._options.num_sources)
    }
