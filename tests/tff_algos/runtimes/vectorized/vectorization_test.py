"""Tests of the batched pass over clients, and of the loop instead of it."""

import logging

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import running_sum, toys
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import errors
from tff_algos.runtimes.vectorized import vectorization, vectorized_runtime

_CLIENTS = ([1.0], [2.0, 3.0], [4.0, 5.0, 6.0])


def _rows() -> np.ndarray:
  return np.random.default_rng(0).normal(size=[5, 7]).astype(np.float32)


@pytest.mark.parametrize('num_rows', [1, 5])
def test_rows_are_broadcast_with_what_is_common(num_rows):
  """Of one row, too, whose axis TensorFlow's own squeeze takes away."""
  rows = _rows()[:num_rows]
  table = _rows()[:4]

  def scale(row):
    return row / tf.norm(row) + tf.reduce_sum(row) * table

  traced = tf.function(
    lambda rows: vectorization.map_stacked(scale, rows), autograph=False
  ).get_concrete_function(tf.TensorSpec([None, 7]))
  norms = np.linalg.norm(rows, axis=1, keepdims=True)
  sums = rows.sum(axis=1)[:, np.newaxis, np.newaxis]
  expected = (rows / norms)[:, np.newaxis] + sums * table
  np.testing.assert_allclose(traced(rows), expected, rtol=1e-5, atol=1e-5)
  # Ranks are known, so none is computed when the graph runs.
  types = {operation.type for operation in traced.graph.get_operations()}
  assert not types & {'Rank', 'Tile'}


_STACKS = (
  np.random.default_rng(2).normal(size=[4, 3, 5]).astype(np.float32),
  np.arange(12, dtype=np.int32).reshape(4, 3) % 5,
)


def _of_unknown_size(matrix):
  """Returns the matrix; how many columns it has, only the running graph knows."""
  end = tf.compat.v1.placeholder_with_default(99, [])
  return tf.convert_to_tensor(matrix)[:, :end]


@pytest.mark.parametrize(
  'function',
  {
    'sums': lambda x, y: (
      tf.reduce_sum(x, axis=-1),
      tf.reduce_max(x, axis=[0, 1]),
      tf.reduce_mean(x, axis=0, keepdims=True),
      tf.reduce_any(x > 1, axis=1),
    ),
    'sum over an axis computed from a row': lambda x, y: tf.reduce_sum(
      x, axis=tf.range(tf.rank(x) - 1)
    ),
    'cross-entropy': lambda x, y: (
      tf.nn.sparse_softmax_cross_entropy_with_logits(y, x)
    ),
    'cross-entropy with common labels': lambda x, y: (
      tf.nn.sparse_softmax_cross_entropy_with_logits(_STACKS[1][0], x)
    ),
    'cross-entropy of an unknown number of classes': lambda x, y: (
      tf.nn.sparse_softmax_cross_entropy_with_logits(y, _of_unknown_size(x))
    ),
    'its gradient': lambda x, y: tf.gradients(
      tf.nn.sparse_softmax_cross_entropy_with_logits(y, 2 * x), x
    ),
    'product with a common matrix': lambda x, y: x @ _STACKS[0][0].T,
    'product of matrices of unknown size': lambda x, y: (
      _of_unknown_size(x) @ _of_unknown_size(_STACKS[0][0].T)
    ),
    'with its transpose': lambda x, y: tf.matmul(
      x, _STACKS[0][0], transpose_b=True
    ),
    'of a transpose': lambda x, y: tf.matmul(
      x, _STACKS[0][0], transpose_a=True
    ),
    'of a common matrix': lambda x, y: tf.matmul(
      _STACKS[0][0], x, transpose_a=True
    ),
    'largest entries': lambda x, y: tuple(tf.math.top_k(x, 3)),
    'stable order with ties': lambda x, y: tf.argsort(
      tf.cast(x, tf.int32), stable=True
    ),
    'half the squared norm': lambda x, y: tf.nn.l2_loss(x),
    'called': tf.function(
      lambda x, y: tf.identity(tf.cast(y, tf.float32)[:, tf.newaxis] * x)
    ),
  }.items(),
  ids=lambda item: item[0],
)
@pytest.mark.parametrize('num_rows', [1, 4, None])
def test_operations_are_converted(function, num_rows):
  """As many rows as are known when the graph is traced, or unknown."""
  stacks = [stack[: num_rows or 4] for stack in _STACKS]
  traced = tf.function(
    lambda *stacks: vectorization.map_stacked(
      lambda row: function[1](*row), stacks
    ),
    autograph=False,
    input_signature=[
      tf.TensorSpec([num_rows, *stack.shape[1:]], stack.dtype)
      for stack in stacks
    ],
  )
  one = tf.function(function[1], autograph=False)
  expected = [one(*row) for row in zip(*stacks, strict=True)]
  tf.nest.map_structure(
    lambda found, *rows: np.testing.assert_allclose(
      found, np.stack(rows), rtol=1e-5, atol=1e-6
    ),
    traced(*stacks),
    *expected,
  )


def test_a_loop_that_trains_is_traced_once(monkeypatch):
  loops = []
  step = vectorization._CommonLoop._loop

  def counted(loop, *start):
    loops.append(loop)
    return step(loop, *start)

  monkeypatch.setattr(vectorization._CommonLoop, '_loop', counted)

  def train(row):
    return tf.while_loop(
      lambda i, weights, rate: i < 3,
      lambda i, weights, rate: (i + 1, weights - rate * row, rate),
      (tf.constant(0), tf.zeros([7]), tf.constant(0.5)),
    )[1]

  rows = _rows()
  found = tf.function(
    lambda: vectorization.map_stacked(train, rows), autograph=False
  )()
  np.testing.assert_allclose(found, -1.5 * rows, rtol=1e-6)
  assert len(loops) == 1


def _common(row):
  """Leaves after 4 steps, with a row, a number and what no step changes."""
  return tf.while_loop(
    lambda i, *_: i < 4,
    lambda i, total, last, kept: (i + 1, total + row * kept, row[0], kept),
    (0, tf.zeros([7]), tf.constant(0.0), tf.constant(2.0)),
  )


def _common_of_stacked(row):
  """A variable that starts as a row's own and ends the same for all."""
  return tf.while_loop(
    lambda i, _: i < 3, lambda i, _: (i + 1, tf.fill([7], 1.5)), (0, row)
  )


def _nested(row):
  return tf.while_loop(
    lambda i, _: i < 2,
    lambda i, total: (i + 1, total + _common(row * total)[1]),
    (0, tf.ones([7])),
  )


def _apart(row):
  """Every row leaves when its own sum is large enough."""
  return tf.while_loop(
    lambda total: tf.reduce_sum(total) < 5.0,
    lambda total: (total + tf.abs(row),),
    (tf.zeros([7]),),
  )


def _filled_array(row):
  array = tf.TensorArray(tf.float32, 3, element_shape=[7])
  return tf.while_loop(
    lambda i, _: i < 3,
    lambda i, array: (i + 1, array.write(i, row + tf.cast(i, tf.float32))),
    (0, array),
  )[1].stack()


@pytest.mark.parametrize('num_rows', [1, 5, None])
@pytest.mark.parametrize(
  'function', [_common, _common_of_stacked, _nested, _apart, _filled_array]
)
def test_loops_are_converted(function, num_rows):
  rows = _rows()[:num_rows]
  graph = tf.function(
    lambda rows: vectorization.map_stacked(function, rows),
    input_signature=[tf.TensorSpec([num_rows, 7])],
    autograph=False,
  )
  expected = [function(tf.constant(row)) for row in rows]
  for column, leaf in enumerate(tf.nest.flatten(graph(rows))):
    np.testing.assert_allclose(
      leaf, [tf.nest.flatten(one)[column] for one in expected], rtol=1e-6
    )


def _types_of_operations(function):
  graph = tf.function(
    lambda rows: vectorization.map_stacked(function, rows), autograph=False
  ).get_concrete_function(tf.TensorSpec([5, 7]))
  definition = graph.graph.as_graph_def()
  functions = definition.library.function
  return [node.op for each in functions for node in each.node_def]


def test_only_a_loop_that_rows_leave_apart_carries_arrays():
  """It is what makes TensorFlow's own converter slow."""
  assert 'TensorListReserve' in _types_of_operations(_apart)
  for function in (_common, _nested):
    types = _types_of_operations(function)
    assert 'TensorListReserve' not in types
    assert 'StatelessIf' not in types


def _log_of_sum(x):
  """Adds exponentials by an operation that TensorFlow cannot vectorize."""
  return tf.math.cumulative_logsumexp(x)[-1]


def _in_a_loop(x):
  return tf.while_loop(
    lambda i, _: i < 3,
    lambda i, total: (i + 1, total + _log_of_sum(x)),
    (0, tf.constant(0.0)),
  )[1]


def _in_a_branch(x):
  return tf.cond(x[0] > 0, lambda: 3 * _log_of_sum(x), lambda: 3 * x[0])


def _gradient(x):
  with tf.GradientTape() as tape:
    tape.watch(x)
    value = _log_of_sum(x)
  return 3 * tf.reduce_sum(tape.gradient(value, x)) * value


def _run(caplog, say, **stages):
  """Runs `running_sum` with clients that say `say` of their examples.

  Returns:
    The output of the phase call, and what was logged as a warning or worse.
  """

  def work(message, client_input, client_state, data, seed):
    del message, client_input, seed
    zero = tf.constant(0.0)
    result = {'value': zero, 'mean': zero, 'weight': zero}
    result['said'] = say(tf.where(data.mask > 0, data.x[:, 0], -1e9))
    return algorithm_lib.ClientOutput(result, client_state, {})

  algorithm = running_sum.algorithm(client_work=work, **stages)
  clients = running_sum.source(*_CLIENTS)
  call = running_sum.phase_call([0, 1, 2], np.zeros(3))
  caplog.clear()
  filters = list(tf.get_logger().filters)
  with vectorized_runtime.VectorizedRuntime(algorithm, 3) as runtime:
    outputs = [
      running_sum.run_call(runtime, algorithm, clients, call) for _ in range(2)
    ]
  toys.assert_outputs_close(*outputs, rtol=0)
  assert tf.get_logger().filters == filters
  messages = [
    record.getMessage()
    for record in caplog.records
    if record.levelno >= logging.WARNING
  ]
  # TensorFlow counts how many graphs all tests of this process have built.
  return outputs[0], [text for text in messages if 'retracing' not in text]


@pytest.mark.parametrize(
  'say', [lambda x: 3 * _log_of_sum(x), _in_a_loop, _in_a_branch, _gradient]
)
def test_clients_are_looped_over_with_one_warning(caplog, say):
  output, warnings = _run(caplog, say)
  expected = [3 * np.log(np.sum(np.exp(x))) for x in _CLIENTS]
  np.testing.assert_allclose(output.server_state.said, expected, rtol=1e-5)
  (warning,) = warnings
  assert warning.startswith("Phase 'add', stage 'client_work': ")
  assert "cannot vectorize its operation 'CumulativeLogsumexp'" in warning
  assert 'Clients are looped over' in warning


def test_a_converter_that_refuses_is_named_too(caplog):
  """The shape of an operation's output depends on the client."""
  output, warnings = _run(
    caplog,
    lambda x: tf.cast(tf.size(tf.zeros([tf.cast(x[0], tf.int32)])), tf.float32),
  )
  assert output.server_state.said.tolist() == [1, 2, 4]
  (warning,) = warnings
  assert "cannot vectorize its operation 'Fill'" in warning


def test_what_is_vectorized_is_vectorized_without_a_word(caplog):
  output, warnings = _run(caplog, tf.reduce_max)
  assert output.server_state.said.tolist() == [1, 3, 6]
  assert not warnings


def test_sizes_that_depend_on_the_client_are_refused(caplog):
  with pytest.raises(errors.StageTypeError) as raised:
    _run(
      caplog,
      lambda x: tf.where(x > 2.5)[:, 0],
      server_update=lambda server_state, aggregates: (server_state, {}),
    )
  text = str(raised.value)
  for part in (
    "phase 'add'",
    "'client_work'",
    "'Where'",
    "'said'",
    'shape (No',
  ):
    assert part in text


def test_a_mistake_of_ours_keeps_its_own_error():
  rows = tf.constant(_rows())
  output_type = algorithm_lib.ClientOutput({}, tf.TensorSpec([]), {})
  with pytest.raises(KeyError, match='typo'):
    vectorization.map_clients('add', lambda row: {}['typo'], rows, output_type)
