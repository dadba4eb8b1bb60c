"""Source distributions as transformations of raw examples.

Each distribution is a view of every raw example: distributions differ only by
their transformation.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pipelines import options
from pipelines.examples import hashing
from pipelines.sources import base
from tff_algos.core import errors, seeds
from tff_algos.core.structures import Array

# (x [n, *x_shape], y [n]) -> the examples transformed by one distribution.
Transform = Callable[[Array, Array], tuple[Array, Array]]

# Kinds that sources with native distributions support.
_KEEP_NATIVE = (
  options.NATIVE,
  options.ROTATIONS,
  options.NOISE,
  options.COLORS,
)


class Distribution(NamedTuple):
  """One source distribution.

  Attributes:
    name: Name in the manifest and in pictures.
    transform: Transformation of raw examples.
  """

  name: str
  transform: Transform


def build_distributions(
  config: options.DistributionsConfig, source: base.Source, seed: int
) -> tuple[Distribution, ...]:
  """Returns all source distributions of a dataset.

  Raises:
    ConfigError: If they are incompatible with the source.
  """
  native_names = source.native_source_names()
  if native_names is None and config.kind == options.NATIVE:
    raise errors.ConfigError(
      f'the source has no distributions of its own, so distributions.kind='
      f'{config.kind!r} cannot be; use another kind.'
    )
  if native_names is not None and config.kind not in _KEEP_NATIVE:
    raise errors.ConfigError(
      f'the source has distributions of its own, so distributions.kind='
      f'{config.kind!r} cannot be; use one of {", ".join(_KEEP_NATIVE)}.'
    )
  if config.kind == options.NATIVE:
    return tuple(Distribution(name, _identity) for name in native_names or ())
  if config.kind == options.IDENTITY:
    return (Distribution('all', _identity),)
  builder = {
    options.ROTATIONS: _rotations,
    options.LABEL_PERMUTATIONS: _label_permutations,
    options.NOISE: _noise,
    options.COLORS: _colors,
  }[config.kind]
  views = builder(config, source.features(), seed)
  return views if native_names is None else _product(native_names, views)


def _rotations(
  config: options.DistributionsConfig, features: base.Features, seed: int
) -> tuple[Distribution, ...]:
  del seed
  shape = features.x_shape
  if len(shape) < 2 or shape[0] != shape[1]:
    raise errors.ConfigError(
      f'rotations need square images, the source has shape {shape}'
    )
  return tuple(rotation(turns) for turns in config.quarter_turns or ())


def _label_permutations(
  config: options.DistributionsConfig, features: base.Features, seed: int
) -> tuple[Distribution, ...]:
  num_classes = features.num_classes
  if not num_classes:
    raise errors.ConfigError('label permutations need classes, not numbers')
  if features.y_shape:
    raise errors.ConfigError(
      'label permutations need one class for each example, the source has '
      f'labels of shape {features.y_shape}, among them padding'
    )
  count = config.num_permutations or 0
  # Of more classes there are more than anyone counts.
  num_permutations = math.factorial(min(num_classes, 12))
  if count > num_permutations:
    raise errors.ConfigError(
      f'num_permutations is {count}, but {num_classes} classes have '
      f'{num_permutations} permutations'
    )
  return label_permutations(count, num_classes, seed)


def _noise(
  config: options.DistributionsConfig, features: base.Features, seed: int
) -> tuple[Distribution, ...]:
  if features.x_dtype not in ('uint8', 'float32'):
    raise errors.ConfigError(
      f'noise needs bytes or real numbers, the source has {features.x_dtype}'
    )
  return tuple(
    gaussian_noise(level, features, seed) for level in config.noise_levels or ()
  )


def _colors(
  config: options.DistributionsConfig, features: base.Features, seed: int
) -> tuple[Distribution, ...]:
  del seed
  if features.x_dtype != 'uint8' or len(features.x_shape) != 3:
    raise errors.ConfigError(
      'colors need images of bytes with a channel axis, the source has '
      f'{features.x_dtype} of shape {features.x_shape}'
    )
  of_three = {*(config.colors or ())} - {'original', 'inverted'}
  if of_three and features.x_shape[-1] != 3:
    raise errors.ConfigError(
      f'colors {sorted(of_three)} need three channels, the source has '
      f'{features.x_shape[-1]}'
    )
  return tuple(coloring(name, features) for name in config.colors or ())


def _product(
  native_names: tuple[str, ...], views: tuple[Distribution, ...]
) -> tuple[Distribution, ...]:
  """Returns the views of the first native distribution, then of the next."""
  return tuple(
    view._replace(name=f'{native}_{view.name}')
    for native in native_names
    for view in views
  )


def rotation(quarter_turns: int) -> Distribution:
  """Returns a rotation counter-clockwise by multiples of 90 degrees, 0 to 3."""

  def transform(x: Array, y: Array) -> tuple[Array, Array]:
    return np.rot90(x, k=quarter_turns, axes=(1, 2)), y

  name = f'rotated_{90 * quarter_turns}' if quarter_turns else 'upright'
  return Distribution(name, transform)


def label_permutations(
  count: int, num_classes: int, seed: int
) -> tuple[Distribution, ...]:
  """Returns different permutations of labels; the first is the identity.

  Args:
    count: How many, at most the factorial of the number of classes.
    num_classes: Number of classes.
    seed: The dataset's seed.
  """
  permutations = [np.arange(num_classes, dtype=np.int32)]
  for index in range(1, count):
    generator = seeds.numpy_generator(seed, f'label_permutation/{index}')
    drawn = permutations[0]
    while any(np.array_equal(drawn, one) for one in permutations):
      drawn = generator.permutation(permutations[0])
    permutations.append(drawn)
  return tuple(map(_permuted_labels, range(count), permutations))


def _permuted_labels(index: int, permutation: Array) -> Distribution:
  def transform(x: Array, y: Array) -> tuple[Array, Array]:
    return x, np.where(y < 0, y, permutation[y])  # -1 is no label.

  return Distribution(f'permutation_{index}', transform)


def gaussian_noise(
  level: float, features: base.Features, seed: int
) -> Distribution:
  """Returns additive Gaussian noise, a function of content and seed.

  Bytes are rounded and clipped to [0, 255].

  Args:
    level: Standard deviation, in units of features as read.
    features: Shape and scale of the features.
    seed: The dataset's seed.
  """
  name = f'noise_{level:g}'
  if not level:
    return Distribution(name, _identity)
  purpose = f'distributions/{name}'

  def transform(x: Array, y: Array) -> tuple[Array, Array]:
    noise = np.empty(x.shape)
    for row, example in zip(noise, x, strict=True):
      key = hashing.content_key(example).hex()
      generator = seeds.numpy_generator(seed, purpose, client_id=key)
      generator.standard_normal(out=row)
    shown = x + noise * (level / features.x_scale)
    if features.x_dtype == 'uint8':
      shown = np.clip(np.rint(shown), 0, _white(features))
    return shown.astype(x.dtype), y

  return Distribution(name, transform)


def coloring(name: str, features: base.Features) -> Distribution:
  """Returns the color transformation of one of `options.COLOR_NAMES`.

  Args:
    name: Name of the transformation.
    features: Features of 8-bit images, `[height, width, channels]`.
  """

  def transform(x: Array, y: Array) -> tuple[Array, Array]:
    if name == 'inverted':
      return (_white(features) - x.astype(np.int64)).astype(x.dtype), y
    if name == 'gray':
      # Luma of ITU-R BT.601 in integers: equal on any machine.
      luma = (x.astype(np.int64) @ np.array([299, 587, 114]) + 500) // 1000
      return np.repeat(luma[..., None], 3, axis=-1).astype(x.dtype), y
    order = {'gbr': [1, 2, 0], 'brg': [2, 0, 1]}.get(name, slice(None))
    return x[..., order], y

  return Distribution(name, transform)


def _white(features: base.Features) -> int:
  """Returns the byte of white; bytes are scaled to values from 0 to 1."""
  return round(1 / features.x_scale)


def _identity(x: Array, y: Array) -> tuple[Array, Array]:
  return x, y
