"""Shuffled batches of every client by `tf.data`, a dataset a client.

The dataset is built and reduced inside one graph that is traced once, which is
the fastest use of `tf.data` for clients: neither iterators nor functions are
made anew in Python.
"""

import contextlib

import numpy as np
import tensorflow as tf

from benchmarks import workload as workload_lib
from benchmarks.contenders import passes, program
from tff_algos.runtimes.vectorized import graph_call


class TfDataContender(passes.PassContender):
  """Batches by `from_tensor_slices`, `shuffle`, `batch`."""

  def __init__(self, inputs: workload_lib.Inputs, dataset: object):
    """Traces the pass over one client."""
    super().__init__(dataset)
    workload = inputs.workload

    def read(x, y):
      batches = (
        tf.data.Dataset.from_tensor_slices((x, y))
        .shuffle(workload.num_examples)
        .batch(workload.batch_size)
        .repeat()
        .take(workload.num_batches)
      )
      return batches.reduce(
        passes.nothing_seen(),
        lambda seen, batch: passes.look(
          seen, *batch, tf.ones_like(batch[1], tf.float32)
        ),
      )

    size = workload.num_examples
    self._read = graph_call.trace(
      read,
      [
        tf.TensorSpec([size, *workload.input_shape]),
        tf.TensorSpec([size], tf.int32),
      ],
    )

  def prepare(self, round_num: int) -> None:
    """Reads the clients before the first pass."""
    if round_num == 1:
      for index in range(len(self.client_ids)):
        self.source.examples(index)

  def read_clients(
    self, round_num: int, client_indices: np.ndarray
  ) -> passes.Seen:
    """Returns what the batches of some clients hold."""
    del round_num
    seen = passes.nothing_seen()
    for index in client_indices:
      examples = self.source.examples(int(index))
      client = self._read(examples.x, examples.y)
      seen = passes.Seen(*map(tf.add, seen, client))
    return seen


def _open(inputs, form) -> contextlib.AbstractContextManager:
  del form
  return passes.open_contender(inputs, TfDataContender)


if __name__ == '__main__':
  program.main(_open)
