"""Shuffled batches of every client from our published dataset, in one graph.

The clients are rows of one tensor, as in the vectorized runtime: read once,
then a batch is a gather of rows, as in local training.
"""

import contextlib

import numpy as np
import tensorflow as tf

from benchmarks import algorithms
from benchmarks import workload as workload_lib
from benchmarks.contenders import passes, program
from tff_algos.core import seeds
from tff_algos.rounds import client_rows
from tff_algos.runtimes.vectorized import devices, graph_call
from tff_algos.runtimes.vectorized import rows as rows_lib
from tff_algos.stages.client import local_training


class DatasetContender(passes.PassContender):
  """Batches by gathering rows of resident examples."""

  def __init__(self, inputs: workload_lib.Inputs, dataset: object):
    """Prepares the pass."""
    super().__init__(dataset)
    self._workload = inputs.workload
    self._resident = rows_lib.ResidentRows()
    spec = tf.TensorSpec
    workload = inputs.workload
    self._read = graph_call.trace(
      self._build(),
      [
        rows_lib.Rows(
          spec([None, *workload.input_shape]), spec([None], tf.int32)
        ),
        rows_lib.Span(*(spec([None], tf.int32) for _ in range(2))),
        spec([None, 2], tf.int32),
      ],
    )

  def prepare(self, round_num: int) -> None:
    """Reads the clients before the first pass."""
    if round_num == 1:
      self._resident.load(self.source, np.arange(1), 'CPU:0')

  def read_clients(
    self, round_num: int, client_indices: np.ndarray
  ) -> passes.Seen:
    """Returns what the batches of some clients hold."""
    rows, spans = self._resident.load(self.source, client_indices, 'CPU:0')
    client_seeds = seeds.derive_seeds(
      0,
      'batching',
      round_num,
      (self.client_ids[index] for index in client_indices),
    )
    return self._read(rows, spans, client_seeds)

  def _build(self):
    """Returns (rows, spans, seeds) -> what the batches hold."""
    workload = self._workload
    per_epoch = -(-workload.num_examples // workload.batch_size)
    config = local_training.LocalTrainingConfig(
      num_local_epochs=-(-workload.num_batches // per_epoch),
      batch_size=workload.batch_size,
      optimizer=algorithms.local_training_config(workload).optimizer,
    )

    def read_one(rows, span, seed, seen):
      data = client_rows.SpanData(rows, span, tf.range(span.size))
      positions, masks, _ = local_training.draw_batches(seed, data.mask, config)

      def step(i, seen):
        batch = data.take(positions[i], masks[i])
        return i + 1, passes.look(seen, *batch)

      return tf.while_loop(
        lambda i, _: i < workload.num_batches,
        step,
        (tf.constant(0), seen),
        parallel_iterations=1,
      )[1]

    def read(rows, spans, client_seeds):
      def step(i, seen):
        span = rows_lib.Span(spans.start[i], spans.size[i])
        return i + 1, read_one(rows, span, client_seeds[i], seen)

      return tf.while_loop(
        lambda i, _: i < tf.shape(client_seeds)[0],
        step,
        (tf.constant(0), passes.nothing_seen()),
        parallel_iterations=1,
      )[1]

    return read


def _open(inputs, form) -> contextlib.AbstractContextManager:
  del form
  devices.prepare_threads()
  return passes.open_contender(inputs, DatasetContender)


if __name__ == '__main__':
  program.main(_open)
