"""Client states of a bundle: a file with one record for each client.

The graph reads the state of the client that is asked for, so that memory does
not grow with the number of clients; the operating system caches the file. It
is an asset of the SavedModel, a TFRecord file, whose records have checksums.
They have one length, the bytes of a state's leaves, so that the place of a
client's record follows from its index.
"""

import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.export import validation

FILE = 'client_states.tfrecord'

# Length and its checksum before the content of a record, its checksum behind.
_FRAME_BYTES = 16
# States that are loaded at a time.
_BLOCK_BYTES = 1 << 26
# Of the file; larger states are read in several pieces.
_READ_BYTES = 8192

# Client indices int32 `[n]` -> their states, a structure of `[n, ...]`; `()` if
# clients keep none.
LoadStates = Callable[[np.ndarray], algorithm_lib.Structure]


class ClientStates:
  """Stored leaves of the states of all clients.

  Attributes:
    asset: The file, for the module of the bundle; None if nothing is stored.
    assets: For `bundle.Bundle`: name of the file -> `write`, or empty.
    facts: Entries of the bundle's manifest.
  """

  def __init__(
    self,
    specs: Sequence[tf.TensorSpec],
    stored: Sequence[int],
    load_states: LoadStates,
    num_clients: int,
  ):
    """Creates the asset; its file is written by `write`.

    Args:
      specs: Of all leaves of a client's state, without a leading axis.
      stored: Positions of the leaves that are stored, ascending.
      load_states: Loads some clients' states.
      num_clients: Number of clients.
    """
    # A path where no file is: TensorFlow would copy it when it saves.
    self.asset = (
      tf.saved_model.Asset(f'{os.devnull}/{FILE}') if stored else None
    )
    self.assets = {FILE: self.write} if stored else {}
    self._stored = {i: specs[i] for i in stored}
    self._sizes = [_num_bytes(spec) for spec in self._stored.values()]
    self._block = max(1, _BLOCK_BYTES // max(1, sum(map(_num_bytes, specs))))
    self._load_states = load_states
    self._num_clients = num_clients
    self.facts: dict[str, Any] = {
      'client_states': [
        {'dtype': spec.dtype.name, 'shape': spec.shape.as_list()}
        for spec in self._stored.values()
      ]
    }

  def read(self, client_index: tf.Tensor) -> dict[int, tf.Tensor]:
    """Returns the stored leaves of a client's state by their position.

    Args:
      client_index: int32 `[]`.
    """
    if self.asset is None:
      return {}
    step = sum(self._sizes) + _FRAME_BYTES
    records = tf.raw_ops.TFRecordDatasetV2(
      filenames=[self.asset.asset_path],
      compression_type='',
      buffer_size=tf.constant(_READ_BYTES, tf.int64),
      byte_offsets=[tf.cast(client_index, tf.int64) * step],
    )
    form: dict[str, Any] = {'output_types': [tf.string], 'output_shapes': [[]]}
    (record,) = tf.raw_ops.DatasetToSingleElement(
      dataset=tf.raw_ops.TakeDataset(input_dataset=records, count=1, **form),
      **form,
    )
    leaves, start = {}, 0
    for (i, spec), size in zip(self._stored.items(), self._sizes, strict=True):
      content = tf.strings.substr(record, start, size)
      leaf = tf.reshape(tf.io.decode_raw(content, spec.dtype), spec.shape)
      # TensorFlow would move a model's casts before the reshape, and then round
      # otherwise than for weights in memory.
      leaves[i] = tf.ensure_shape(leaf, spec.shape)
      start += size
    return leaves

  def write(self, path: pathlib.Path) -> None:
    """Writes the file, a block of clients at a time.

    Args:
      path: The file, in the folder of the SavedModel's assets.

    Raises:
      ExportError: If states have other numbers of clients, or are not finite.
      OpError: If the file cannot be written.
    """
    with tf.io.TFRecordWriter(os.fspath(path)) as writer:
      for start in range(0, self._num_clients, self._block):
        stop = min(start + self._block, self._num_clients)
        states = tf.nest.flatten(self._load_states(np.arange(start, stop)))
        columns = []
        for i, size in zip(self._stored, self._sizes, strict=True):
          values = np.ascontiguousarray(states[i])
          validation.check_leading_axis('client states', values, stop - start)
          validation.check_finite('an array of the client states', values)
          columns.append(values.view(np.uint8).reshape(stop - start, size))
        for row in np.concatenate(columns, axis=1):
          writer.write(row.tobytes())


def state_of(
  load_states: LoadStates, client_index: int
) -> algorithm_lib.Structure:
  """Returns the state of one client, NumPy."""
  return tf.nest.map_structure(
    lambda leaf: np.asarray(leaf)[0], load_states(np.array([client_index]))
  )


def _num_bytes(spec: tf.TensorSpec) -> int:
  return spec.shape.num_elements() * spec.dtype.size
