"""One graph, called by several threads at the same time."""

import collections
from concurrent import futures

import numpy as np
import tensorflow as tf

from tff_algos.data import schema
from tff_algos.rounds import client_rows
from tff_algos.runtimes.vectorized import graph_call
from tff_algos.runtimes.vectorized import rows as rows_lib
from tff_algos.stages.client import local_training

_SIZE, _BATCH_SIZE, _NUM_BATCHES = 1000, 128, 100
_CONFIG = local_training.LocalTrainingConfig(13, _BATCH_SIZE)


def _sum_of_client(rows, span, seed, total):
  """Adds up something of every batch of a client."""
  data = client_rows.SpanData(rows, span, tf.range(span.size))
  positions, masks, _ = local_training.draw_batches(seed, data.mask, _CONFIG)

  def step(i, total):
    batch = data.take(positions[i], masks[i])
    first = tf.reshape(batch.x, [-1])[0] + tf.cast(batch.y[0], tf.float32)
    return i + 1, (total[0] + 1.0, total[1] + tf.reduce_sum(masks[i]) + first)

  return tf.while_loop(
    lambda i, _: i < _NUM_BATCHES, step, (0, total), parallel_iterations=1
  )[1]


def _function():
  """Returns a function with sums that TensorFlow would rewrite."""

  def run(rows, spans, seeds):
    def step(i, total):
      span = rows_lib.Span(spans.start[i], spans.size[i])
      return i + 1, _sum_of_client(rows, span, seeds[i], total)

    return tf.while_loop(
      lambda i, _: i < tf.shape(seeds)[0],
      step,
      (0, (tf.constant(0.0), tf.constant(0.0))),
      parallel_iterations=1,
    )[1]

  return run


def test_calls_at_the_same_time_agree():
  """In a plain pool of threads, nearly every run of this fails."""
  examples = schema.Examples(
    np.ones((_SIZE, 28, 28, 1), np.float32),
    np.ones(_SIZE, np.int32),
    np.zeros(_SIZE, np.int32),
  )
  rows, spans = rows_lib.concatenate([examples] * 20)
  seeds = np.ones((20, 2), np.int32)
  signature = tf.nest.map_structure(
    lambda leaf: tf.TensorSpec(leaf.shape, leaf.dtype), (rows, spans, seeds)
  )
  graph = graph_call.trace(_function(), signature)
  with futures.ThreadPoolExecutor(2) as pool:
    found = {
      float(one[1])
      for one in pool.map(lambda _: graph(rows, spans, seeds), range(8))
    }
  assert len(found) == 1


def test_structures_go_in_and_come_out():
  Pair = collections.namedtuple('Pair', ['first', 'second'])
  captured = tf.constant(100.0)

  def function(pair, others):
    total = pair.first + tf.cast(pair.second, tf.float32) + captured
    return {'total': total, 'none': ()}, Pair(others['b'], others['a'])

  spec = tf.TensorSpec([], tf.float32)
  graph = graph_call.trace(
    function,
    [Pair(spec, tf.TensorSpec([], tf.int32)), {'a': spec, 'b': spec}],
  )
  result, pair = graph(
    Pair(np.float32(1), np.int32(2)),
    {'b': tf.constant(4.0), 'a': np.float32(3)},
  )
  assert result['total'] == 103
  assert result['none'] == ()
  assert pair == Pair(4, 3)
  assert graph.output_types[1].first.dtype == tf.float32
