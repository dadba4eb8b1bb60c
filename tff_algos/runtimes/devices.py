"""Which devices compute, and how much of a GPU's memory we take."""

import tensorflow as tf
from absl import logging

from tff_algos.core import errors


def prepare_gpus(memory_limit_mib: int = 0) -> None:
  """Lets GPU memory grow on demand; must come before TensorFlow's first use.

  Args:
    memory_limit_mib: Most memory to take of each GPU, in MiB; 0 for no limit.

  Raises:
    ConfigError: If TensorFlow has started already with other settings.
  """
  for gpu in tf.config.list_physical_devices('GPU'):
    try:
      if memory_limit_mib:
        limit = tf.config.LogicalDeviceConfiguration(memory_limit_mib)
        tf.config.set_logical_device_configuration(gpu, [limit])
      else:
        tf.config.experimental.set_memory_growth(gpu, True)
    except RuntimeError as error:
      raise errors.ConfigError(
        f'the memory of {gpu.name} cannot be configured any more: {error}'
      ) from error


def choose(names: tuple[str, ...]) -> tuple[str, ...]:
  """Returns the devices to compute on, and says which they are.

  Args:
    names: Such as `('CPU:0', 'CPU:1')`; none takes all GPUs, or the CPU if
      there is no GPU.

  Returns:
    Names that `tf.device` takes, at least one.

  Raises:
    ConfigError: If a device does not exist; lists those that do.
  """
  existing = {
    device.name.removeprefix('/device:'): device.device_type
    for device in tf.config.list_logical_devices()
    if device.device_type in ('CPU', 'GPU')
  }
  gpus = tuple(name for name, kind in existing.items() if kind == 'GPU')
  for name in names:
    if name not in existing:
      raise errors.ConfigError(
        f'config.runtime.vectorized.devices names {name!r}, which does not '
        f'exist; there are: {", ".join(existing)}'
      )
  chosen = names or gpus or ('CPU:0',)
  logging.info('Computing on %s.', ', '.join(chosen))
  return chosen
