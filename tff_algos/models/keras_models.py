"""Keras 2.14 models as functional models: weights are arguments.

    def build_net(input_shape, num_outputs):
      return tf.keras.Sequential([
        tf.keras.Input(input_shape),
        tf.keras.layers.Dense(num_outputs),
      ])

    model = from_keras(build_net, input_shape=(64,), num_outputs=10)

The Keras model is built once and called in every trace, with its variables
bound to the weights (`keras_weights`). So gradients, stacking over clients and
clusters, XLA, TFF and SavedModels see plain operations.

* **Weights** are the trainable variables, under Keras's names
  (`dense/kernel`). Variables that are not trained, of frozen layers as well,
  are constants of `apply`: they are neither sent nor averaged.
* **Initial weights** are values that build_fn sets, such as by `load_weights`;
  else draws of the layer's Keras initializer, seeded by the run and the
  position of the weight in place of the initializer's own seed.
* **Dropout layers** drop units in training steps alone, with the layer's own
  rate and the draws of `numerics.unit_dropout`.
* **Refused**: arithmetic in float16, which needs a loss scale; state across
  batches (batch normalization that is trained, stateful recurrence, variables
  updated by a call), other random layers, losses of layers (regularizers) and
  constraints, which Keras applies in its own training loop.
"""

import collections
import contextvars
import dataclasses
import math
import numbers
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tff_algos.core import errors
from tff_algos.core import model as model_lib
from tff_algos.models import (
  graph_checks,
  keras_weights,
  model_options,
  precision,
)
from tff_algos.numerics import index_random, unit_dropout

BuildFn = Callable[[tuple[int, ...], int], tf.keras.Model]
# Draws so far of each random layer, in one call of a model.
_DRAWN: contextvars.ContextVar[collections.Counter[int]] = (
  contextvars.ContextVar('drawn')
)


@dataclasses.dataclass(frozen=True)
class KerasConfig(model_options.ModelConfig):
  """Options of every Keras model, which may add its own."""

  def __post_init__(self):
    super().__post_init__()
    if self.compute_dtype != 'float32':
      raise errors.ConfigError(
        f'compute_dtype is {self.compute_dtype!r}, but the layers of a Keras '
        "model have dtypes of their own: leave 'float32', and build the layers "
        f"with dtype='mixed_{self.compute_dtype}'"
      )


def from_keras(
  build_fn: BuildFn, input_shape: tuple[int, ...], num_outputs: int
) -> model_lib.Model:
  """Returns the functional model of a Keras model.

  Args:
    build_fn: (input shape, number of outputs) -> functional or sequential Keras
      model, all layers of which it creates. Its outputs are logits
      `[batch, num_outputs]`, or `[batch, *label_shape, num_outputs]` for labels
      at several places; or the predictions `[batch, 1]` of a regression. With
      several inputs, an example is the vector of all inputs, flattened and in
      the order of the Keras model's `inputs`.
    input_shape: Shape of one example.
    num_outputs: Classes, or 1 for regression.

  Raises:
    ConfigError: If the model does not fit, or is not a function of weights and
      examples; the text names the layer and the alternative.
  """
  # Else the names of layers would count on from earlier models.
  tf.keras.backend.reset_uids()
  with keras_weights.recorded():
    keras_model = build_fn(input_shape, num_outputs)
    _check_network(keras_model, input_shape)
  name = keras_model.name
  _replace_random_draws(keras_model)
  _choose_plain_kernels(keras_model)
  _keep_statistics(keras_model)
  weights = keras_weights.name_weights(
    keras_model.weights, _network_layers(keras_model)
  )
  trained = {id(variable) for variable in keras_model.trainable_weights}
  pairs = list(zip(keras_model.weights, weights, strict=True))
  constants = {
    weight.key: keras_weights.constant_value(weight)
    for variable, weight in pairs
    if id(variable) not in trained
  }
  draws = OrderedDict(
    (weight.key, keras_weights.initial_draw(weight))
    for variable, weight in pairs
    if id(variable) in trained
  )
  read = _input_reader(keras_model, input_shape)

  def initialize(seed):
    return OrderedDict(
      (key, draw(index_random.fold_in(seed, i)))
      for i, (key, draw) in enumerate(draws.items())
    )

  def apply(weights, x):
    fixed = {key: tf.constant(value) for key, value in constants.items()}
    # The reshape makes gradients dense, as in `layers.embed`.
    given = {
      key: tf.reshape(weight, weight.shape) for key, weight in weights.items()
    }
    _DRAWN.set(collections.Counter())
    with keras_weights.bound({**fixed, **given}):
      outputs = keras_model(read(x), training=unit_dropout.is_in_step())
    return tf.nest.map_structure(
      lambda tensor: tf.cast(tensor, tf.float32), outputs
    )

  is_ids = [one.dtype.is_integer for one in keras_model.inputs]
  model = graph_checks.checked(
    model_lib.Model(
      name,
      model_lib.REGRESSION if num_outputs == 1 else model_lib.CLASSIFICATION,
      input_shape,
      num_outputs,
      initialize,
      apply,
      vectorizes=False,
      input_dtype=tf.int32 if all(is_ids) else tf.float32,
      id_features=_id_features(keras_model.inputs) if len(is_ids) > 1 else (),
    )
  )
  _check_losses(keras_model)
  if any(layer.compute_dtype == 'bfloat16' for layer in _layers(keras_model)):
    return dataclasses.replace(
      model, output_tolerance=precision.OUTPUT_TOLERANCE
    )
  return model


def replace_batch_norm(
  keras_model: tf.keras.Model, max_groups: int = 8
) -> tf.keras.Model:
  """Returns a new Keras model with group in place of batch normalization.

  For published architectures such as `tf.keras.applications.EfficientNetB0`;
  weights are new, the other options of a layer stay. Call it in `build_fn`.

  Args:
    keras_model: Functional or sequential; normalizes the last axis.
    max_groups: Most groups; the largest divisor of the channels up to it is
      taken, or 1 where examples are vectors.

  Raises:
    ConfigError: If it has no input yet, it normalizes another axis, or a value
      of another layer was set, which would be lost.
  """

  def clone(layer: tf.keras.layers.Layer) -> tf.keras.layers.Layer:
    if isinstance(layer, tf.keras.Model):
      nested = replace_batch_norm(layer, max_groups)
      nested._name = layer.name  # By which outer layers find it.
      return nested
    if not isinstance(layer, tf.keras.layers.BatchNormalization):
      if keras_weights.any_given(layer.weights):
        raise errors.ConfigError(
          f'Keras layer {layer.name!r} has values that were set before '
          'replace_batch_norm, which makes new weights: replace first, then '
          'adapt the layer, or load its weights'
        )
      return layer.__class__.from_config(layer.get_config())
    if not layer.inbound_nodes:
      raise errors.ConfigError(
        f'Keras layer {layer.name!r} has no input yet: put '
        'tf.keras.Input(input_shape) first in the tf.keras.Sequential'
      )
    last = len(layer.input_shape) - 1
    if layer.axis not in (-1, last, [last]):
      raise errors.ConfigError(
        f'Keras layer {layer.name!r} normalizes the axis {layer.axis}, not the '
        'last one: replace it by hand'
      )
    channels = int(layer.input_shape[-1])
    # Without places, a group of one unit would be constant.
    most = max_groups if last > 1 else 1
    groups = max(g for g in range(1, most + 1) if channels % g == 0)
    # By its name: a new one would be counted in the names of later layers.
    options = tf.keras.layers.GroupNormalization(name=layer.name).get_config()
    options |= {k: v for k, v in layer.get_config().items() if k in options}
    options |= {'groups': groups, 'axis': -1}
    return tf.keras.layers.GroupNormalization.from_config(options)

  return tf.keras.models.clone_model(keras_model, clone_function=clone)


def _check_network(keras_model: Any, input_shape: tuple[int, ...]) -> None:
  """Raises ConfigError unless it is a graph of layers that we can train."""
  if not isinstance(keras_model, tf.keras.Model):
    raise errors.ConfigError(
      f'build_fn must return a tf.keras.Model, got {keras_model!r}'
    )
  if isinstance(keras_model, tf.keras.Sequential) and not keras_model.built:
    keras_model.build((None, *input_shape))
  if not keras_model.inputs:
    raise errors.ConfigError(
      f'Keras model {keras_model.name!r} is a subclass without declared '
      'inputs; write it as tf.keras.Model(inputs, outputs) or '
      'tf.keras.Sequential'
    )
  for layer in _layers(keras_model):
    if layer.dtype == tf.string or isinstance(
      layer, tf.keras.layers.IntegerLookup
    ):
      raise errors.ConfigError(
        f'Keras layer {layer.name!r} ({type(layer).__name__}) reads text or '
        'looks up a vocabulary: vocabularies belong to the preparation of the '
        'data (docs/features.md); the model takes ids'
      )
    if isinstance(layer, tf.keras.layers.BatchNormalization) and (
      layer.trainable
    ):
      raise errors.ConfigError(
        f'Keras layer {layer.name!r} is batch normalization: its moving '
        'statistics must not be averaged over clients or clusters like '
        'weights. Use tf.keras.layers.GroupNormalization or '
        'LayerNormalization; tff_algos.replace_batch_norm(model) does so in a '
        'finished model'
      )
    if layer.compute_dtype == 'float16':
      raise errors.ConfigError(
        f'Keras layer {layer.name!r} computes in float16: without a loss '
        'scale, which the local training does not have, small gradients become '
        "0. Use dtype='mixed_bfloat16'"
      )


def _layers(keras_model: tf.keras.Model) -> list[tf.keras.layers.Layer]:
  return [
    one
    for one in keras_model.submodules
    if isinstance(one, tf.keras.layers.Layer)
  ]


def _network_layers(
  keras_model: tf.keras.Model,
) -> Iterator[tf.keras.layers.Layer]:
  """Yields the layers of a model, and of the models that are layers of it."""
  for layer in keras_model.layers:
    if isinstance(layer, tf.keras.Model) and layer.inputs:
      yield from _network_layers(layer)
    else:
      yield layer


def _check_losses(keras_model: tf.keras.Model) -> None:
  if keras_model.losses:
    raise errors.ConfigError(
      f'Keras model {keras_model.name!r} has losses of its layers '
      '(regularizers, add_loss), which are not trained on; leave them out, and '
      'set local_training.weight_decay for an L2 penalty'
    )


def _input_reader(
  keras_model: tf.keras.Model, input_shape: tuple[int, ...]
) -> Callable[[tf.Tensor], Any]:
  """Returns x `[batch, *input_shape]` -> the inputs of the Keras model.

  Raises:
    ConfigError: If examples of `input_shape` do not fit.
  """
  name, inputs = keras_model.name, keras_model.inputs
  if len(inputs) == 1:
    (only,) = inputs
    if not only.shape[1:].is_compatible_with(input_shape):
      raise errors.ConfigError(
        f'Keras model {name!r} takes examples of shape {only.shape[1:]}, but '
        f'those of the data have {input_shape}'
      )
    return lambda x: tf.cast(x, only.dtype)
  spelled = ', '.join(f'{one.name} {one.shape[1:]}' for one in inputs)
  if isinstance(keras_model.input, dict):
    raise errors.ConfigError(
      f'Keras model {name!r} has the inputs {spelled} in a dict, which Keras '
      'sorts: give tf.keras.Model a list, whose order is that of the features'
    )
  if not all(one.shape[1:].is_fully_defined() for one in inputs):
    raise errors.ConfigError(
      f'Keras model {name!r} has the inputs {spelled}: where there are '
      'several, all need a known shape'
    )
  sizes = [math.prod(one.shape[1:]) for one in inputs]
  if input_shape != (sum(sizes),):
    raise errors.ConfigError(
      f'Keras model {name!r} has the inputs {spelled}: its examples are '
      f'vectors of {sum(sizes)} features, one input after the other, but those '
      f'of the data have shape {input_shape}'
    )

  def read(x):
    return [
      tf.cast(tf.reshape(part, [-1, *one.shape[1:]]), one.dtype)
      for part, one in zip(tf.split(x, sizes, axis=1), inputs, strict=True)
    ]

  return read


def _id_features(inputs: list[Any]) -> tuple[int, ...]:
  """Returns the features of several inputs that are integers."""
  is_id = [
    one.dtype.is_integer
    for one in inputs
    for _ in range(math.prod(one.shape[1:]))
  ]
  return tuple(np.flatnonzero(is_id).tolist())


class _StepDraws:
  """Random generator of a Keras layer: the draws of a training step."""

  def __init__(
    self, layer: tf.keras.layers.Layer, index: int, num_layers: int
  ) -> None:
    self._layer = layer
    self._index = index
    self._num_layers = num_layers

  def dropout(self, inputs, rate, noise_shape=None):
    """Returns the units with dropout; axes of noise size 1 share a draw."""
    if not isinstance(self._layer, tf.keras.layers.Dropout):
      raise self._refusal()
    # Python's numbers alone: in a graph no entry of a tensor is known.
    sizes = self._layer.noise_shape
    if sizes is None:
      sizes = [None] * inputs.shape.rank if noise_shape is None else noise_shape
    if tf.is_tensor(sizes):
      raise keras_weights.refusal(
        f'Keras layer {self._layer.name!r} has a tensor as its noise shape: '
        "give noise_shape as Python's numbers and None"
      )
    is_shared = [
      isinstance(size, numbers.Integral) and size == 1 for size in sizes
    ]
    if is_shared[0]:
      raise keras_weights.refusal(
        f'Keras layer {self._layer.name!r} has noise_shape '
        f'{self._layer.noise_shape}, the same draw for all examples of a '
        'batch; its first entry must be None'
      )
    # A layer that is called again, as one of a shared block, draws anew.
    drawn = _DRAWN.get()
    number = self._index + drawn[self._index] * self._num_layers
    drawn[self._index] += 1
    try:
      return unit_dropout.drop(inputs, number, rate, is_shared[1:])
    except errors.ConfigError as error:
      raise keras_weights.refusal(
        f'Keras layer {self._layer.name!r}: {error}'
      ) from None

  def __getattr__(self, name: str) -> Any:
    """Raises ConfigError for any other draw."""
    if name.startswith('_'):
      raise AttributeError(name)
    raise self._refusal()

  def _refusal(self) -> errors.ConfigError:
    return keras_weights.refusal(
      f'Keras layer {self._layer.name!r} ({type(self._layer).__name__}) draws '
      "random numbers that the run's seed does not determine; leave it out. "
      'tf.keras.layers.Dropout and SpatialDropout are drawn by the seed'
    )


def _replace_random_draws(keras_model: tf.keras.Model) -> None:
  """Makes layers drop units by the draws of the training step."""
  random = [
    layer
    for layer in _layers(keras_model)
    if hasattr(layer, '_random_generator')
  ]
  for index, layer in enumerate(random):
    layer._random_generator = _StepDraws(layer, index, len(random))  # pyright: ignore[reportAttributeAccessIssue]


def _keep_statistics(keras_model: tf.keras.Model) -> None:
  """Makes the statistics of normalization layers constants of every graph.

  Keras holds them as eager tensors, which a graph outside of `tf.function`, as
  TFF's are, cannot take.
  """
  for layer in _layers(keras_model):
    if isinstance(layer, tf.keras.layers.Normalization) and layer.built:
      for name in ('mean', 'variance'):
        setattr(layer, name, np.asarray(getattr(layer, name)))


def _choose_plain_kernels(keras_model: tf.keras.Model) -> None:
  """Makes GRU and LSTM loops of plain operations on every device.

  Keras would let the graph choose between them and a kernel of cuDNN, which
  draws random numbers and does not stack.
  """
  for layer in _layers(keras_model):
    if hasattr(layer, '_could_use_gpu_kernel'):
      layer._could_use_gpu_kernel = False  # pyright: ignore[reportAttributeAccessIssue]
