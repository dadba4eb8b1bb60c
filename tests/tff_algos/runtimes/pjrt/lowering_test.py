import numpy as np
import pytest
import tensorflow as tf

from tests.testing import running_sum
from tff_algos.core import errors
from tff_algos.rounds import phase_types
from tff_algos.runtimes.pjrt import lowering


def _lowering(vectorizes=True, **stages):
  algorithm = running_sum.algorithm(**stages)
  types = phase_types.check_algorithm(algorithm, 3)
  return lowering.PhaseLowering(
    algorithm.phases[running_sum.PHASE], types[running_sum.PHASE], vectorizes
  )


def test_types_follow_the_sizes():
  lowered = _lowering().lower(num_rows=9, block_size=4, capacity=2)
  # Message; rows x, y; state; index, input, span, seed; which are real.
  assert [shape for _, shape in lowered.arguments] == [
    *([], [9, 1], [9]),
    *([4], [4, 2], [4], [4], [4], [4], [4, 2], [4]),
  ]
  assert lowered.name == 'add at once, 9 rows, 4 x 2'
  # The turns of each client, and what it said last.
  assert [shape for _, shape in lowered.outputs[-2:]] == [[4], [4, 2]]
  assert lowered.hlo.dtype == np.uint8


def test_what_was_traced_before_changes_nothing():
  """So the cache of compiled programs knows it in any process."""
  first, again = (_lowering().lower(9, 4, 2) for _ in range(2))
  np.testing.assert_array_equal(first.hlo, again.hlo)


def _reading(value):
  """Returns client work whose result also has a number of a client's examples.

  Args:
    value: Function of the examples, `[n, 1]`.
  """

  def work(message, client_input, client_state, data, seed):
    output = running_sum.client_work(
      message, client_input, client_state, data, seed
    )
    added = tf.reduce_sum(tf.cast(value(data.x), tf.float32))
    result = {**output.result, 'value': output.result['value'] + added}
    return output._replace(result=result)

  return work


def _square(x):
  return tf.matmul(x[:2], x[:2], transpose_b=True) + tf.eye(2)


def _grown(x):
  """Adds as many numbers to an array as a value says."""
  steps = tf.cast(x[0, 0], tf.int32)
  array = tf.TensorArray(tf.float32, 0, dynamic_size=True)
  return tf.while_loop(
    lambda i, _: i < steps,
    lambda i, array: (i + 1, array.write(i, x[0, 0])),
    [0, array],
  )[1].stack()


def _slope_of_a_loop(x):
  steps = tf.cast(x[0, 0], tf.int32)
  with tf.GradientTape() as tape:
    tape.watch(x)
    total = tf.while_loop(
      lambda i, _: i < steps,
      lambda i, total: (i + 1, total * tf.reduce_sum(x)),
      [0, 1.0],
    )[1]
  return tape.gradient(total, x)


def _table(x):
  keys = tf.constant([1, 2])
  table = tf.lookup.StaticHashTable(
    tf.lookup.KeyValueTensorInitializer(keys, keys), 0
  )
  return table.lookup(tf.cast(x, tf.int32))


_REFUSED = {
  'AsString': lambda x: tf.strings.length(tf.strings.as_string(x)),
  'LookupTable': _table,
  'PyFunc': lambda x: tf.py_function(lambda y: y, [x], tf.float32),
  'Ragged': lambda x: tf.RaggedTensor.from_row_lengths(
    x[:2, 0], tf.cast(x[:1, 0], tf.int64)
  ).to_tensor(),
  'SparseTensorDenseMatMul': lambda x: tf.sparse.sparse_dense_matmul(
    tf.sparse.from_dense(_square(x)), x[:2]
  ),
  'MatrixDeterminant': lambda x: tf.linalg.det(_square(x)),
  'dynamic slice': _grown,
  'fixed tensor list size': _slope_of_a_loop,
  'Bincount': lambda x: tf.math.bincount(
    tf.cast(tf.reshape(x, [-1]), tf.int32), minlength=3, maxlength=3
  ),
  'InplaceAdd': lambda x: tf.nn.ctc_loss(
    tf.ones([1, 1], tf.int32), tf.ones([2, 1, 3]) * x[0, 0], [1], [2]
  ),
}
_TAKEN = {
  'unique': lambda x: tf.unique(tf.reshape(x, [-1]))[0],
  'where': lambda x: tf.where(x > 0),
  'boolean_mask': lambda x: tf.boolean_mask(x, x > 0),
  'top_k': lambda x: tf.math.top_k(x[:, 0], 2).values,
  'argsort': lambda x: tf.argsort(x, 0),
  'non_max_suppression': lambda x: tf.image.non_max_suppression_padded(
    tf.tile(x[:2], [1, 4]), x[:2, 0], 1
  )[0],
  'svd': lambda x: tf.linalg.svd(_square(x), compute_uv=False),
  'eigh': lambda x: tf.linalg.eigvalsh(_square(x)),
  'qr': lambda x: tf.linalg.qr(_square(x)).r,
  'cholesky': lambda x: tf.linalg.cholesky(_square(x)),
  'solve': lambda x: tf.linalg.solve(_square(x), x[:2]),
  'fft': lambda x: tf.math.real(tf.signal.fft(tf.cast(x, tf.complex64))),
  'resize': lambda x: tf.image.resize(x[None, :2, :, None], [3, 3]),
}


@pytest.mark.parametrize(
  'name',
  [
    pytest.param(name, marks=[] if name == 'AsString' else pytest.mark.verify)
    for name in _REFUSED
  ],
)
def test_an_operation_that_xla_does_not_know_is_named(name):
  """Those that docs/accelerators.md lists."""
  with pytest.raises(errors.ConfigError, match=f"'add'.*vectorized.*{name}"):
    _lowering(False, client_work=_reading(_REFUSED[name])).lower(9, 4, 2)


@pytest.mark.verify
@pytest.mark.parametrize('name', _TAKEN)
def test_operations_that_the_page_lists_are_lowered(name):
  lowered = _lowering(False, client_work=_reading(_TAKEN[name]))
  assert lowered.lower(9, 4, 2).hlo.size
