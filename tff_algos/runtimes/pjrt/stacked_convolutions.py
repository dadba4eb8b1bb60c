"""Vectorization of convolutions whose kernels differ by client.

TensorFlow vectorizes convolutions of stacked images with one kernel. With a
kernel for each client they become one convolution of all clients' channels: in
groups, one a client, or depthwise if they were. XLA has these, and their
gradients; TensorFlow's own CPU kernels do not.
"""

import contextlib
import functools
from collections.abc import Callable, Generator

import tensorflow as tf
from tensorflow.python.ops.parallel_for.pfor import (
  _pfor_converter_registry,
  wrap,
)

# Operation -> axis that clients are folded into, by input (None for a shape)
# and of the output. Images are NHWC; kernels [height, width, inputs, outputs].
_IMAGE, _OUTPUTS, _INPUTS = 3, 3, 2
_AXES = {
  'Conv2D': ((_IMAGE, _OUTPUTS), _IMAGE),
  'Conv2DBackpropInput': ((None, _OUTPUTS, _IMAGE), _IMAGE),
  'Conv2DBackpropFilter': ((_IMAGE, None, _IMAGE), _OUTPUTS),
  'DepthwiseConv2dNative': ((_IMAGE, _INPUTS), _IMAGE),
  'DepthwiseConv2dNativeBackpropInput': ((None, _INPUTS, _IMAGE), _IMAGE),
  'DepthwiseConv2dNativeBackpropFilter': ((_IMAGE, None, _IMAGE), _INPUTS),
}
_ATTRIBUTES = ('strides', 'padding', 'explicit_paddings', 'dilations')


@contextlib.contextmanager
def vectorized() -> Generator[None]:
  """Lets `tf.vectorized_map` vectorize such convolutions, for XLA alone."""
  own = {name: _pfor_converter_registry[name] for name in _AXES}
  _pfor_converter_registry.update(
    {name: functools.partial(_convert, name) for name in _AXES}
  )
  try:
    yield
  finally:
    _pfor_converter_registry.update(own)


def _convert(name: str, pfor_input):
  axes, output_axis = _AXES[name]
  pfor_input.stack_inputs(
    [i for i, axis in enumerate(axes) if axis is not None]
  )
  clients = tf.shape(pfor_input.stacked_input(axes.index(_IMAGE)))[0]
  arguments = [
    _fold_shape(pfor_input.input(i), output_axis, clients)
    if axis is None
    else _fold(pfor_input.stacked_input(i), axis)
    for i, axis in enumerate(axes)
  ]
  operation: Callable[..., tf.Tensor] = getattr(tf.raw_ops, name)
  names = [one.name for one in pfor_input.op.op_def.input_arg]
  output = operation(
    **dict(zip(names, arguments, strict=True)),
    **{key: pfor_input.get_attr(key) for key in _ATTRIBUTES},
  )
  return wrap(_unfold(output, output_axis, clients), True)


def _fold(stacked: tf.Tensor, axis: int) -> tf.Tensor:
  """Returns `[clients, ...]` with the clients before an axis of the rest."""
  order = [*range(1, 1 + axis), 0, *range(1 + axis, 5)]
  moved = tf.transpose(stacked, order)
  shape = tf.shape(moved)
  folded = tf.concat([shape[:axis], [-1], shape[axis + 2 :]], 0)
  return tf.reshape(moved, folded)


def _unfold(folded: tf.Tensor, axis: int, clients: tf.Tensor) -> tf.Tensor:
  """Returns the inverse of `_fold`."""
  shape = tf.shape(folded)
  moved = tf.reshape(
    folded,
    tf.concat([shape[:axis], [clients, -1], shape[axis + 1 :]], 0),
  )
  return tf.transpose(moved, [axis, *range(axis), *range(axis + 1, 5)])


def _fold_shape(size, axis: int, clients: tf.Tensor) -> tf.Tensor:
  """Returns the shape of a result of all clients, from that of one."""
  shape = size.t[0] if size.is_stacked else size.t
  return tf.concat(
    [shape[:axis], [shape[axis] * clients], shape[axis + 1 :]], 0
  )
