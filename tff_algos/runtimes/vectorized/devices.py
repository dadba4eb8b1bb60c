"""Devices of the vectorized runtime: choice, threads, GPU memory."""

import os

import tensorflow as tf
from absl import logging

from tff_algos.core import errors


def prepare_gpus(memory_limit_mib: int = 0) -> None:
  """Lets GPU memory grow on demand; call before TensorFlow's first use.

  Args:
    memory_limit_mib: Memory limit of each GPU, in MiB; 0 for no limit.

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
    except (RuntimeError, ValueError) as error:
      raise errors.ConfigError(
        f'the memory of {gpu.name} cannot be configured any more: {error}'
      ) from error


def prepare_threads() -> None:
  """Sets one thread per operation; call before TensorFlow's first use.

  The cores compute different clients at the same time, so parallelism inside an
  operation would only add waiting. If TensorFlow has started already, it keeps
  its threads, and rounds take longer. TensorFlow's variable
  TF_NUM_INTEROP_THREADS limits the cores of one of several processes; the
  chunks of a cohort, and so the order of sums, do not depend on it.

  Raises:
    ConfigError: If that variable is no number of threads.
  """
  num_threads = _num_interop_threads()
  try:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(num_threads)
  except RuntimeError:
    logging.info(
      'TensorFlow has started with %d threads an operation; a runtime with one '
      'is faster.',
      tf.config.threading.get_intra_op_parallelism_threads(),
    )


def _num_interop_threads() -> int:
  """Returns TF_NUM_INTEROP_THREADS, or the number of cores without it."""
  text = os.environ.get('TF_NUM_INTEROP_THREADS', '')
  if not text:
    return len(os.sched_getaffinity(0))
  if not text.isdecimal():
    raise errors.ConfigError(
      f'the environment variable TF_NUM_INTEROP_THREADS is {text!r}, but must '
      'be a number of threads >= 0: unset it to use all cores'
    )
  return int(text)


def choose(names: tuple[str, ...]) -> tuple[str, ...]:
  """Returns the devices for client work, and logs them.

  Args:
    names: Such as `('CPU:0', 'CPU:1')`; none selects all GPUs, or the CPU if
      there is no GPU.

  Returns:
    Device names for `tf.device`, at least one.

  Raises:
    ConfigError: If a device does not exist; lists those that do.
  """
  existing = {
    # With several processes, the device name includes the task.
    device.name.rpartition('/device:')[2]: device.device_type
    for device in tf.config.list_logical_devices()
    if device.device_type in ('CPU', 'GPU')
  }
  gpus = tuple(name for name, kind in existing.items() if kind == 'GPU')
  for name in names:
    if name not in existing:
      raise errors.ConfigError(
        f'config.runtime.devices names {name!r}, which does not '
        f'exist; there are: {", ".join(existing)}'
      )
  chosen = names or gpus or ('CPU:0',)
  logging.info('Computing on %s.', ', '.join(chosen))
  return chosen
