"""LSTM layers over whole sequences, as pure functions of weights and inputs.

The cell of Hochreiter and Schmidhuber with forget gates, without peepholes: a
`kernel` `[inputs + units, 4 * units]` for the input above the previous output,
and a `bias` `[4 * units]`, with columns for the input gate, the cell input, the
forget gate and the output gate, in this order.

Two implementations with equal outputs; the number of time steps T is static:

  fused      TensorFlow's operation for a layer, BlockLSTM. It cannot be stacked
             over several models, so clients are computed one at a time. It
             computes in float32 for any type of the weights, has no second
             derivative, and XLA does not compile it.
  unrolled   operations for each step, which stack over clients, compile, and
             have derivatives of every order. One matrix product multiplies the
             inputs of all steps by the kernel, and each step takes one more.

The gain of stacking is small and its cost high. Measured on one core of a
shared machine with 4 clients, two layers of 100 units and batches of
32: a local step of one client took 24 to 31 ms fused and 36 to 59 ms unrolled
with T = 25, 40 to 100 ms and 36 ms with T = 80; tracing and starting a graph
took 2 s fused and 120 to 180 s unrolled, as every operation of every step is
vectorized separately. A phase has two graphs, and evaluations have more. A
`tf.while_loop` over the steps is slower still: a step took 435 ms with T = 80
stacked over clients, and 340 ms for one client at a time.
"""

from collections import OrderedDict

import tensorflow as tf

from tff_algos.core import errors
from tff_algos.models import layers

FUSED = 'fused'
UNROLLED = 'unrolled'
RECURRENCES = (FUSED, UNROLLED)


def initial_weights(
  seed: tf.Tensor, index: int, name: str, num_inputs: int, units: int
) -> OrderedDict[str, tf.Tensor]:
  """Returns the weights of a layer, `<name>/kernel` and `<name>/bias`.

  The kernel is Xavier-normal as one matrix. The bias is 1 for the forget gate,
  so that gradients reach far back from the start of training, and 0 for the
  rest (Jozefowicz et al. 2015).

  Args:
    seed: int32 `[2]` of the whole model.
    index: Number of the layer, so that layers differ.
    name: Of the layer.
    num_inputs: Length of an input of one step.
    units: Length of an output.
  """
  return OrderedDict(
    {
      f'{name}/kernel': layers.xavier_normal(
        seed, index, [num_inputs + units, 4 * units]
      ),
      f'{name}/bias': tf.concat(
        [tf.zeros([2 * units]), tf.ones([units]), tf.zeros([units])], axis=0
      ),
    }
  )


def lstm(
  inputs: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor, recurrence: str
) -> tf.Tensor:
  """Returns a layer's output at every step, from an initial state of zeros.

  Args:
    inputs: `[steps, batch, inputs]`, steps and inputs static, batch >= 1.
    kernel: `[inputs + units, 4 * units]`.
    bias: `[4 * units]`.
    recurrence: One of `RECURRENCES`.

  Returns:
    `[steps, batch, units]`, of the inputs' type.
  """
  if recurrence == FUSED:
    return _fused(inputs, kernel, bias)
  return _unrolled(inputs, kernel, bias)


def _fused(inputs, kernel, bias):
  units = bias.shape[0] // 4
  no_peephole = tf.zeros([units])
  zeros = tf.zeros([tf.shape(inputs)[1], units])
  # Not BlockLSTMV2: TensorFlow 2.14 gives it the gradient of BlockLSTM, which
  # has the gates in another order. The operation supports neither bfloat16 nor
  # float64.
  outputs = tf.raw_ops.BlockLSTM(
    seq_len_max=tf.constant(inputs.shape[0], tf.int64),
    x=tf.cast(inputs, tf.float32),
    cs_prev=zeros,
    h_prev=zeros,
    w=tf.cast(kernel, tf.float32),
    wci=no_peephole,
    wcf=no_peephole,
    wco=no_peephole,
    b=tf.cast(bias, tf.float32),
    forget_bias=0.0,  # `bias` includes it.
    cell_clip=-1.0,  # No clipping; the default clips cells to 3.
  ).h
  outputs = tf.ensure_shape(outputs, [*inputs.shape[:2], units])
  return tf.cast(outputs, inputs.dtype)


@tf.RegisterGradient('BlockLSTMGrad')
def _refuse_second_derivative(op, *slopes):
  """Replaces TensorFlow's error, which says only that no gradient exists."""
  del op, slopes
  raise errors.ConfigError(
    "recurrence 'fused' has no second derivative, which this algorithm takes: "
    "set config.model.recurrence to 'unrolled', or choose a variant of the "
    'algorithm that needs none'
  )


def _unrolled(inputs, kernel, bias):
  num_steps, _, num_inputs = inputs.shape
  units = bias.shape[0] // 4
  flat = tf.reshape(inputs, [-1, num_inputs])
  projected = layers.dense(flat, kernel[:num_inputs], bias)
  projected = tf.reshape(projected, [num_steps, -1, 4 * units])
  recurrent_kernel = kernel[num_inputs:]
  first, *rest = tf.unstack(projected)
  # Before the first step the output and the cell are 0.
  output, cell = _step(first, units, None)
  outputs = [output]
  for own in rest:
    gates = own + tf.matmul(output, recurrent_kernel)
    output, cell = _step(gates, units, cell)
    outputs.append(output)
  return tf.stack(outputs)


def _step(gates, units, cell):
  """Returns output and cell after a step; `cell` None is a cell of zeros."""
  content = tf.tanh(gates[:, units : 2 * units])
  content *= tf.sigmoid(gates[:, :units])
  opened = tf.sigmoid(gates[:, 2 * units :])
  cell = content if cell is None else content + opened[:, :units] * cell
  return opened[:, units:] * tf.tanh(cell), cell
