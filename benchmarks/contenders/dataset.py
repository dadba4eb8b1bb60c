"""Shuffled batches of every client from our published dataset, in one graph.

A client's examples are read by id (from memory after the first pass), padded
by `data.batching` and gathered a batch at a time, as in local training.
"""

import contextlib

import numpy as np
import tensorflow as tf

from benchmarks import algorithms
from benchmarks import workload as workload_lib
from benchmarks.contenders import passes, program
from tff_algos.core import seeds
from tff_algos.data import batching, schema
from tff_algos.stages import local_training


class DatasetContender(passes.PassContender):
  """Batches by gathering rows of dense examples."""

  def __init__(self, inputs: workload_lib.Inputs, dataset: object):
    """Traces the pass over one client."""
    super().__init__(inputs, dataset)
    workload = inputs.workload
    per_epoch = -(-workload.num_examples // workload.batch_size)
    config = local_training.LocalTrainingConfig(
      num_local_epochs=-(-workload.num_batches // per_epoch),
      batch_size=workload.batch_size,
      optimizer=algorithms.local_training_config(workload).optimizer,
    )

    @tf.function(autograph=False)
    def read(x, y, mask, seed):
      positions, masks = local_training.batch_positions(seed, mask, config)

      def step(i, seen):
        batch_x, batch_y = (
          tf.gather(x, positions[i]),
          tf.gather(y, positions[i]),
        )
        return i + 1, passes.look(seen, batch_x, batch_y, masks[i])

      return tf.while_loop(
        lambda i, _: i < workload.num_batches,
        step,
        (tf.constant(0), passes.nothing_seen()),
        parallel_iterations=1,
      )[1]

    self._read = read

  def read_client(
    self, round_num: int, client_index: int, examples: schema.Examples
  ) -> passes.Seen:
    """Returns what the batches of one client hold."""
    data = batching.pad(examples, examples.num_examples)
    seed = seeds.derive_seed(
      0, 'batching', round_num, self.client_ids[client_index]
    )
    return self._read(*map(tf.constant, data), np.asarray(seed))


def _open(inputs, form) -> contextlib.AbstractContextManager:
  del form
  return passes.open_contender(inputs, DatasetContender)


if __name__ == '__main__':
  program.main(_open)
