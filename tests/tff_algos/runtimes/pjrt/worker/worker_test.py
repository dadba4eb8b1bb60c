"""The worker in its own environment, asked as programs ask it."""

import numpy as np
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


@pytest.fixture(scope='module')
def connection(tmp_path_factory):
  cache = str(tmp_path_factory.mktemp('cache'))
  with pjrt_connection.Connection(
    pjrt_config.PjrtConfig(cache=cache)
  ) as opened:
    yield opened


def test_sums_over_blocks_and_the_others_by_block(connection):
  program = _lower(
    lambda kept, block: (tf.reduce_sum(block), kept * block),
    [[2], [2]],
    [[], [2]],
  )
  connection.compile(program)
  connection.keep('kept', [np.array([2, 3], np.float32)])
  blocks = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
  total, products = connection.run(program, ['kept'], 1, [blocks])
  assert total == 21
  np.testing.assert_array_equal(products, blocks * [2, 3])
  # Another value under the same name.
  connection.keep('kept', [np.array([1, 0], np.float32)])
  _, products = connection.run(program, ['kept'], 1, [blocks[:1]])
  np.testing.assert_array_equal(products, [[1, 0]])


def test_an_error_is_told_and_the_worker_goes_on(connection):
  with pytest.raises(errors.RuntimeFailureError, match="failed in 'run'"):
    connection.run(lowering.Lowered('unknown', np.zeros(0), [], []), [], 0, [])
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
