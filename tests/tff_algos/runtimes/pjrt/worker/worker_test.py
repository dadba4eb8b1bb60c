"""The worker in its own environment, asked as programs ask it."""

import numpy as np
import psutil
import pytest
import tensorflow as tf

from tests.testing import accelerator
from tff_algos.core import errors
from tff_algos.runtimes.pjrt import lowering, pjrt_config, pjrt_connection

pytestmark = accelerator.needed


def _lower(function, arguments, outputs):
  zeros = [tf.zeros(shape, tf.float32) for shape in arguments]
  words = tf.function(function, jit_compile=True).experimental_get_compiler_ir(
    *zeros
  )(stage='hlo_serialized')
  return lowering.Lowered(
    'toy',
    np.frombuffer(words, np.uint8),
    [('float32', shape) for shape in arguments],
    [('float32', shape) for shape in outputs],
  )


@pytest.fixture(
  scope='module', params=[(), ('CPU:0', 'CPU:1')], ids=['one', 'two']
)
def connection(request):
  """Of one device, and of two logical ones."""
  with pjrt_connection.Connection(
    pjrt_config.PjrtConfig(), request.param
  ) as opened:
    yield opened


def _run(connection, program, blocks, old=(), new=(), first=0):
  connection.run(program, ['kept'], 1, first, old, new, [blocks])


def test_sums_over_blocks_and_the_others_by_block(connection):
  program = _lower(
    lambda kept, block: (tf.reduce_sum(block), kept * block),
    [[2], [2]],
    [[], [2]],
  )
  connection.compile(program)
  connection.keep('kept', [np.array([2, 3], np.float32)])
  # In another order the small ones would be rounded away in other places.
  blocks = np.array([[1e8, 2], [3, 4], [5, 6]], np.float32)
  _run(connection, program, blocks)
  _run(connection, program, blocks[:1], first=3)
  total, products = connection.finish()
  one, two, three = blocks.sum(1)
  assert total == ((one + two) + three) + one
  np.testing.assert_array_equal(products, blocks[[0, 1, 2, 0]] * [2, 3])
  # Another value under the same name, and sums anew, also after a phase call
  # that did not finish.
  connection.keep('kept', [np.array([1, 0], np.float32)])
  _run(connection, program, blocks)
  _run(connection, program, blocks[1:2])
  total, products = connection.finish()
  assert total == 7
  np.testing.assert_array_equal(products, [[3, 0]])


def test_states_stay_and_are_joined_and_dropped(connection):
  program = _lower(
    lambda kept, states, block: (tf.reduce_sum(block), states + kept * block),
    [[2], [2], [2]],
    [[], [2]],
  )._replace(name='states')
  connection.compile(program)
  connection.keep('kept', [np.array([1, 1], np.float32)])
  types = [('float32', [])]
  start = np.array([10, 20], np.float32)
  old = [connection.stack(types, 2, arrays=[start]) for _ in range(2)]
  new = [connection.new_stack(types, 2) for _ in range(2)]
  _run(connection, program, np.array([[1, 2], [3, 4]], np.float32), old, new)
  assert connection.finish() == [10]
  first, second = (stack.leaves(2) for stack in new)
  (joined,) = first[0].join(
    [(second, 1), ([np.array([7], np.float32)], 0), (first, 0)]
  )
  np.testing.assert_array_equal(joined, [24, 7, 11])
  assert (len(joined), joined[1], joined.dtype) == (3, 7, np.float32)
  np.testing.assert_array_equal(first[0], [11, 22])
  np.testing.assert_array_equal(new[0].leaves(1)[0], [11])
  name = old[0].name
  np.testing.assert_array_equal(connection.fetch(name), [start])
  del old
  with pytest.raises(errors.RuntimeFailureError, match=f"KeyError: '{name}'"):
    connection.fetch(name)


def test_fetched_states_keep_no_file_descriptor(connection):
  types = [('float32', [])]
  stacks = [
    connection.stack(types, 1, arrays=[np.array([i], np.float32)])
    for i in range(3)
  ]
  before = psutil.Process().num_fds()
  assert [stack.fetch()[0][0] for stack in stacks] == [0, 1, 2]
  assert psutil.Process().num_fds() == before


def test_an_error_is_told_and_the_worker_goes_on(connection):
  unknown = lowering.Lowered('unknown', np.zeros(0), [], [])
  connection.keep('kept', [])
  with pytest.raises(errors.RuntimeFailureError, match="failed in 'run'"):
    _run(connection, unknown, np.zeros(1))
  connection.keep('kept', [])


def test_a_program_whose_shapes_depend_on_values_is_not_run(connection):
  """XLA would fix the values that were given when it was lowered."""
  program = _lower(
    lambda size, row: tf.reduce_sum(row[: tf.cast(size, tf.int32)]),
    [[], [4]],
    [[]],
  )._replace(name='fixed')
  with pytest.raises(errors.RuntimeFailureError, match='fewer arguments'):
    connection.compile(program)
