"""Script that loads bundles with TensorFlow alone, and predicts with them.

  python -P plain_prediction.py BUNDLE INPUTS.npz [BUNDLE INPUTS.npz ...]

calls `serving_default` of each bundle a few times and prints a JSON array with
one object a bundle: `finite_weights` and `finite_outputs` (whether all stored
variables and client states, and all outputs, are finite) and `seconds` (time of
the fastest call). It is run by its path, in a process that does not import this
library. An error of memory or disk, or of the installation, not of a bundle,
is its exit code 75.
"""

import errno
import json
import math
import os
import sys
import time
from typing import Any

try:
  import numpy as np
  import tensorflow as tf
except ImportError as error:
  if __name__ != '__main__':
    raise
  sys.stderr.write(f'{type(error).__name__}: {error}\n')
  sys.exit(os.EX_TEMPFAIL)

_REPEATS = 5
_BLOCK_RECORDS = 256
# Those of a disk that say nothing of a bundle; lack of memory or descriptors.
_OF_MACHINES = (
  *(errno.EACCES, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE),
  *(errno.ENOMEM, errno.ENOSPC, errno.EPERM, errno.ESTALE),
)


def is_of_machine(error: BaseException | None) -> bool:
  """Returns whether an error is one of memory or disk, not of a bundle."""
  if isinstance(error, OSError):
    return error.errno in _OF_MACHINES
  return isinstance(error, (MemoryError, tf.errors.ResourceExhaustedError))


def _is_finite(values: np.ndarray) -> bool:
  is_float = np.issubdtype(values.dtype, np.floating)
  return bool(not is_float or np.isfinite(values).all())


def _has_finite_states(bundle: str) -> bool:
  """Returns whether the client states in the bundle's asset are finite."""
  with open(os.path.join(bundle, 'assets.extra', 'bundle.json')) as file:
    leaves = json.load(file).get('client_states')
  if not leaves:
    return True
  path = os.path.join(bundle, 'assets', 'client_states.tfrecord')
  for records in tf.data.TFRecordDataset(path).batch(_BLOCK_RECORDS):
    start = 0
    for leaf in leaves:
      dtype = tf.as_dtype(leaf['dtype'])
      size = math.prod(leaf['shape']) * dtype.size
      content = tf.strings.substr(records, start, size)
      if not _is_finite(tf.io.decode_raw(content, dtype).numpy()):
        return False
      start += size
  return True


def _check(bundle: str, inputs_file: str) -> dict[str, Any]:
  reader = tf.train.load_checkpoint(
    os.path.join(bundle, 'variables', 'variables')
  )
  predict = tf.saved_model.load(bundle).signatures['serving_default']
  # Texts are stored in Unicode, which needs no pickle.
  inputs = {
    name: tf.constant(value.tolist() if value.dtype.kind == 'U' else value)
    for name, value in np.load(inputs_file).items()
  }
  outputs = predict(**inputs)
  seconds = []
  for _ in range(_REPEATS):
    start = time.perf_counter()
    for value in predict(**inputs).values():
      value.numpy()
    seconds.append(time.perf_counter() - start)
  return {
    'finite_weights': all(
      _is_finite(reader.get_tensor(name))
      for name, dtype in reader.get_variable_to_dtype_map().items()
      if dtype.is_floating
    )
    and _has_finite_states(bundle),
    'finite_outputs': all(
      _is_finite(value.numpy()) for value in outputs.values()
    ),
    'seconds': min(seconds),
  }


def _main(*arguments: str) -> None:
  pairs = zip(arguments[::2], arguments[1::2], strict=True)
  answers = [_check(bundle, inputs_file) for bundle, inputs_file in pairs]
  if any(name.partition('.')[0] == 'tff_algos' for name in sys.modules):
    raise ImportError('this script must not import tff_algos')
  sys.stdout.write(json.dumps(answers) + '\n')


if __name__ == '__main__':
  try:
    _main(*sys.argv[1:])
  except Exception as error:
    if not is_of_machine(error):
      raise
    sys.stderr.write(f'{type(error).__name__}: {error}\n')
    sys.exit(os.EX_TEMPFAIL)
