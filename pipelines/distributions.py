"""How raw examples become source distributions.

Each transforming distribution shows every raw example; it is told apart only
by what it does to it.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pipelines import options
from pipelines.sources import base
from tff_algos.core import errors, seeds

# (x [n, *x_shape], y [n]) -> the same examples as one distribution shows them.
Transform = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


class Distribution(NamedTuple):
  """One source distribution.

  Attributes:
    name: Its name, in the manifest and in pictures.
    transform: How it shows raw examples.
  """

  name: str
  transform: Transform


def build_distributions(
  config: options.DistributionsConfig, source: base.Source, seed: int
) -> tuple[Distribution, ...]:
  """Returns all source distributions of a dataset.

  Raises:
    ConfigError: If they do not go with the source.
  """
  native_names = source.native_source_names()
  if (native_names is not None) != (config.kind == options.NATIVE):
    has = 'has' if native_names is not None else 'has no'
    raise errors.ConfigError(
      f'the source {has} distributions of its own, so distributions.kind='
      f'{config.kind!r} cannot be; use kind={options.NATIVE!r} exactly for '
      'sources that do.'
    )
  if config.kind == options.NATIVE:
    return tuple(Distribution(name, _identity) for name in native_names)
  if config.kind == options.ROTATIONS:
    shape = source.features().x_shape
    if len(shape) < 2 or shape[0] != shape[1]:
      raise errors.ConfigError(
        f'rotations need square images, the source has shape {shape}'
      )
    return tuple(rotation(turns) for turns in config.quarter_turns)
  if config.kind == options.LABEL_PERMUTATIONS:
    num_classes = source.features().num_classes
    if not num_classes:
      raise errors.ConfigError('label permutations need classes, not numbers')
    return tuple(
      label_permutation(i, num_classes, seed)
      for i in range(config.num_permutations)
    )
  return (Distribution('all', _identity),)


def rotation(quarter_turns: int) -> Distribution:
  """Returns images turned counter-clockwise by 90 degrees, 0 to 3 times."""

  def transform(x, y):
    return np.rot90(x, k=quarter_turns, axes=(1, 2)), y

  name = f'rotated_{90 * quarter_turns}' if quarter_turns else 'upright'
  return Distribution(name, transform)


def label_permutation(index: int, num_classes: int, seed: int) -> Distribution:
  """Returns unchanged features with permuted labels; index 0 permutes none."""
  permutation = np.arange(num_classes, dtype=np.int32)
  if index:
    generator = seeds.numpy_generator(seed, f'label_permutation/{index}')
    permutation = generator.permutation(permutation)

  def transform(x, y):
    return x, permutation[y]

  return Distribution(f'permutation_{index}', transform)


def _identity(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  return x, y
