"""FedAvg and IFCA by hand for one model at a time: what TensorFlow can do.

It knows that all clients have the same size, that there are no bad values and
that a round is one epoch of plain SGD, and it keeps all examples as one
resident tensor. One graph a round: side by side, as many loops over blocks of
clients as the form says; a block's clients are trained at once by batched
matrix products, and its weights are added to a running sum. For IFCA the block
is first evaluated under all cluster models by one batched matrix product, and
the sum has a row for each cluster.

Forms: clients per block (1 is a plain loop over clients; convolutions know no
other), and loops side by side (more than one: a thread an operation, so that a
loop has a core; one: operations share the cores).
"""

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks import workload as workload_lib
from benchmarks.contenders import program

_BLOCKS = (1, 2, 5, 10, 20, 50, 100, 1000)
_SCOUT_ROUNDS = 4

Weights = dict[str, tf.Tensor]


def _linear(w: Weights, x: tf.Tensor) -> tf.Tensor:
  return tf.matmul(_flat(x), w['kernel']) + w['bias'][:, tf.newaxis]


def _mlp(w: Weights, x: tf.Tensor) -> tf.Tensor:
  hidden = tf.matmul(_flat(x), w['dense_0/kernel'])
  hidden = tf.nn.relu(hidden + w['dense_0/bias'][:, tf.newaxis])
  return (
    tf.matmul(hidden, w['dense_1/kernel']) + w['dense_1/bias'][:, tf.newaxis]
  )


def _cnn(w: Weights, x: tf.Tensor) -> tf.Tensor:
  """Returns the logits of a block of one client."""
  w = {name: tf.squeeze(leaf, 0) for name, leaf in w.items()}
  hidden = tf.squeeze(x, 0)
  for i in range(2):
    hidden = tf.nn.conv2d(hidden, w[f'conv_{i}/kernel'], 1, 'SAME')
    hidden = tf.nn.relu(hidden + w[f'conv_{i}/bias'])
    hidden = tf.nn.max_pool2d(hidden, 2, 2, 'VALID')
  hidden = tf.reshape(hidden, [-1, w['dense_0/kernel'].shape[0]])
  hidden = tf.nn.relu(
    tf.matmul(hidden, w['dense_0/kernel']) + w['dense_0/bias']
  )
  logits = tf.matmul(hidden, w['dense_1/kernel']) + w['dense_1/bias']
  return logits[tf.newaxis]


# name -> (weights [block, ...], x [block, batch, ...]) -> logits.
_MODELS: Mapping[str, Callable[[Weights, tf.Tensor], tf.Tensor]] = {
  'linear': _linear,
  'mlp': _mlp,
  'cnn': _cnn,
}


def _flat(x: tf.Tensor) -> tf.Tensor:
  return tf.reshape(x, [*x.shape[:2], -1])


class FloorContender:
  """One form."""

  def __init__(self, inputs: workload_lib.Inputs, form: Mapping[str, Any]):
    """Traces the round.

    Args:
      inputs: Of the case.
      form: `clients_per_block`, a divisor of the clients, and `loops`.
    """
    workload = inputs.workload
    block = form['clients_per_block']
    self._inputs = inputs
    self._blocked = (workload.num_clients // block, block)
    self._x, self._y = (
      tf.constant(array.reshape(*self._blocked, *array.shape[1:]))
      for array in inputs.examples
    )
    self._order = None
    self._weights = {
      name: tf.constant(leaf) for name, leaf in inputs.initial_weights.items()
    }
    self._round = tf.function(
      _build_round(workload, *self._blocked, form['loops']), autograph=False
    )

  def prepare(self, round_num: int) -> None:
    """Loads which rows each step reads."""
    order = self._inputs.order(round_num)
    self._order = tf.constant(order.reshape(*self._blocked, *order.shape[1:]))

  def run_round(self, round_num: int) -> None:
    """Runs the graph, and waits for the weights."""
    del round_num
    self._weights = self._round(self._weights, self._x, self._y, self._order)
    self.weights()

  def weights(self) -> Mapping[str, np.ndarray]:
    """Returns the model, or the cluster models stacked."""
    return {name: leaf.numpy() for name, leaf in self._weights.items()}


def _start_together(forward, weights, x, y):
  """Returns the model once for each client of a block; FedAvg."""
  del forward, y
  return {
    name: tf.repeat(leaf[tf.newaxis], x.shape[0], 0)
    for name, leaf in weights.items()
  }, None


def _start_best(forward, weights, x, y):
  """Returns the best cluster model of each client of a block, and which; IFCA.

  All models see the examples of the block in one batched matrix product.
  """
  num_clusters = next(iter(weights.values())).shape[0]
  logits = forward(weights, tf.reshape(x, [1, -1, *x.shape[2:]]))
  labels = tf.repeat(tf.reshape(y, [1, -1]), num_clusters, 0)
  losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
  totals = tf.reduce_sum(tf.reshape(losses, [num_clusters, *y.shape]), 2)
  best = tf.argmin(totals)
  local = {name: tf.gather(leaf, best) for name, leaf in weights.items()}
  return local, tf.one_hot(best, num_clusters, axis=0)


def _sum(local, chosen):
  """Returns the sum over a block, and how many clients are in it."""
  del chosen
  sums = {name: tf.reduce_sum(leaf, 0) for name, leaf in local.items()}
  return sums, tf.constant([float(next(iter(local.values())).shape[0])])


def _sum_by_cluster(local, chosen):
  """Returns the sum over a block and its clients, for each cluster."""
  sums = {n: tf.tensordot(chosen, leaf, 1) for n, leaf in local.items()}
  return sums, tf.reduce_sum(chosen, 1)


def _mean(old, total, count):
  """Returns total / count; count is `[1]` or, with a first axis, by cluster."""
  count = tf.reshape(count, [-1, *[1] * (old.shape.rank - 1)])
  return tf.where(count > 0, tf.math.divide_no_nan(total, count), old)


# algorithm -> where the clients of a block start, and what they add up to.
_ALGORITHMS = {
  workload_lib.FED_AVG: (_start_together, _sum),
  workload_lib.IFCA: (_start_best, _sum_by_cluster),
}


def _build_round(workload, num_blocks, block, num_loops):
  """Returns (weights, x, y, order) -> weights after a round."""
  forward = _MODELS[workload.model]
  start, add_up = _ALGORITHMS[workload.algorithm]
  is_clustered = workload.algorithm == workload_lib.IFCA
  num_means = workload.num_clusters if is_clustered else 1

  def train(weights, x, y, order):
    """Returns what a block's clients add up to after training."""
    local, chosen = start(forward, weights, x, y)
    for step in range(order.shape[1]):
      batch_x = tf.gather(x, order[:, step], batch_dims=1)
      batch_y = tf.gather(y, order[:, step], batch_dims=1)
      with tf.GradientTape() as tape:
        tape.watch(local)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
          batch_y, forward(local, batch_x)
        )
        # The rate scales the losses, which are few, and not the gradients.
        scaled = tf.reduce_sum(losses) * (
          workload.learning_rate / workload.batch_size
        )
      gradient = tape.gradient(scaled, local)
      local = {name: leaf - gradient[name] for name, leaf in local.items()}
    return add_up(local, chosen)

  def add(one, other):
    return tf.nest.map_structure(tf.add, one, other)

  def loop(first, last, weights, x, y, order):
    """Returns what blocks first ... last - 1 add up to."""

    def step(i, total):
      return i + 1, add(total, train(weights, x[i], y[i], order[i]))

    zeros = (
      {name: tf.zeros_like(leaf) for name, leaf in weights.items()},
      tf.zeros([num_means]),
    )
    return tf.while_loop(
      lambda i, _: i < last, step, (first, zeros), parallel_iterations=1
    )[1]

  def run(weights, x, y, order):
    edges = [num_blocks * i // num_loops for i in range(num_loops + 1)]
    sums, count = functools.reduce(
      add,
      [
        loop(first, last, weights, x, y, order)
        for first, last in zip(edges, edges[1:], strict=False)
      ],
    )
    return {
      name: _mean(leaf, sums[name], count) for name, leaf in weights.items()
    }

  return run


def _scout(inputs, form) -> list[tuple[dict[str, Any], float]]:
  """Returns the fastest of a few rounds for every size of block."""
  _set_threads(form)
  num_clients = inputs.workload.num_clients
  found = []
  for block in (1,) if inputs.workload.model == 'cnn' else _BLOCKS:
    if num_clients % block or num_clients // block < form['loops']:
      continue
    tried = {**form, 'clients_per_block': block}
    contender = FloorContender(inputs, tried)
    contender.prepare(1)
    seconds = []
    for _ in range(_SCOUT_ROUNDS):
      start = time.perf_counter()
      contender.run_round(1)
      seconds.append(time.perf_counter() - start)
    found.append((tried, min(seconds)))
  return found


def _set_threads(form: Mapping[str, Any]) -> None:
  if form['loops'] > 1:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(form['loops'])


@contextlib.contextmanager
def _open(inputs, form) -> Iterator[FloorContender]:
  _set_threads(form)
  yield FloorContender(inputs, form)


if __name__ == '__main__':
  program.main(_open, _scout)
