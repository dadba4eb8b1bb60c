"""Initialization of networks from pretrained weights in a file.

An example is the ResNet18 of Chen and Qiu (2025), section 6.1, pretrained on
ImageNet. The file is NumPy's `.npz`, with one array per weight under the
weight's name.
"""

import dataclasses
import zipfile
import zlib
from collections import OrderedDict

import numpy as np
import tensorflow as tf

from tff_algos.core import errors
from tff_algos.core import model as model_lib


@dataclasses.dataclass(frozen=True)
class PretrainedConfig:
  """Initial weights of a network.

  Attributes:
    file: `.npz` of the weights, with ordinary kernels; `''` for random weights.
    fresh: Weights or layers that are still initialized at random: `('head',)`,
      which is `head/kernel` and `head/bias`, for classes that differ from those
      of the file.
  """

  file: str = ''
  fresh: tuple[str, ...] = ()

  def __post_init__(self):
    if self.fresh and not self.file:
      raise errors.ConfigError(
        f'pretrained.fresh is {self.fresh}, but pretrained.file is empty: '
        'everything starts at random; name a file, or set fresh to ()'
      )


def start_from(
  model: model_lib.Model, config: PretrainedConfig
) -> model_lib.Model:
  """Returns the model with its initial weights read from the file.

  Args:
    model: Has ordinary kernels; initializes the `fresh` weights.
    config: `file` `''` returns `model` itself.

  Raises:
    ConfigError: If the file cannot be read, or its arrays do not match the
      weights that are not fresh by name, shape and number.
  """
  if not config.file:
    return model
  spec = model.weights_spec()
  fresh = set()
  for layer in config.fresh:
    named = {name for name in spec if f'{name}/'.startswith(f'{layer}/')}
    if not named:
      raise errors.ConfigError(
        f'pretrained.fresh has {layer!r}, which is no weight or layer of '
        f'{model.name}; its weights are {", ".join(spec)}'
      )
    fresh |= named
  learned = _read(config.file, spec, fresh)

  def initialize(seed):
    drawn = model.initialize(seed) if fresh else learned
    return OrderedDict(
      (name, drawn[name] if name in fresh else tf.constant(learned[name]))
      for name in spec
    )

  return dataclasses.replace(model, initialize=initialize)


def _read(path, spec, fresh):
  """Returns the arrays that are not fresh, float32, by name."""
  try:
    with np.load(path, allow_pickle=False) as file:
      arrays = {name: file[name] for name in file.files if name not in fresh}
  except (
    *(OSError, ValueError, TypeError, EOFError),
    *(zipfile.BadZipFile, zlib.error),
  ) as error:
    raise errors.ConfigError(
      f"pretrained.file {path} cannot be read as NumPy's .npz: {error}"
    ) from None
  wanted = [name for name in spec if name not in fresh]
  absent = [name for name in wanted if name not in arrays]
  unknown = [name for name in arrays if name not in spec]
  if absent or unknown:
    raise errors.ConfigError(
      f'pretrained.file {path} lacks {_listed(absent)} and has, unknown to the '
      f'network, {_listed(unknown)}. Rename its arrays, leave unknown ones '
      'out, '
      'and name in pretrained.fresh what shall start at random; the weights '
      f'are {", ".join(spec)}'
    )
  return {name: _checked(path, name, arrays[name], spec) for name in wanted}


def _checked(path, name, array, spec):
  shape = tuple(spec[name].shape)
  # NumPy returns a member of the archive that is not .npy as bytes.
  array = np.asarray(array)
  is_number = np.issubdtype(array.dtype, np.floating)
  with np.errstate(over='ignore'):
    values = array.astype(np.float32) if is_number else np.float32(np.nan)
  if array.shape != shape or not np.isfinite(values).all():
    raise errors.ConfigError(
      f'{name!r} of pretrained.file {path} must be floats of shape {shape}, '
      'finite '
      f'in float32, got {array.dtype} of shape {array.shape}; where it is of '
      'other classes or images, name it in pretrained.fresh'
    )
  return values


def _listed(names):
  return ', '.join(names) or 'nothing'
