"""Keras variables that read a tensor passed in: a layer as a pure function.

While a Keras model is built under `recorded`, each variable that it creates is
a `KerasWeight`. Within `bound` it reads the tensor of its name in place of its
own value, so one Keras model computes with any weights, in any graph; assigning
to it there is refused.
"""

import contextlib
import contextvars
import copy
import functools
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tff_algos.core import errors
from tff_algos.core.structures import Array
from tff_algos.models import graph_checks

# Attribute of the initializers of Keras that draw.
_GENERATOR = '_random_generator'
# Name -> tensor, within `bound`.
_BOUND: contextvars.ContextVar[Mapping[str, tf.Tensor] | None] = (
  contextvars.ContextVar('bound_weights', default=None)
)


def refusal(message: str) -> errors.ConfigError:
  """Returns an error to raise while a Keras layer is called.

  Keras passes it on as it is, without the arguments of the layer.
  """
  error = errors.ConfigError(message)
  error._keras_call_info_injected = True  # pyright: ignore[reportAttributeAccessIssue]
  return error


class KerasWeight(tf.Variable, tf.__internal__.types.Tensor):  # pyright: ignore[reportUntypedBaseClass]
  """A variable that reads the tensor bound to it, if there is one.

  Like Keras's own variables of mixed precision it delegates all else to the
  variable that Keras asked for.

  Attributes:
    key: Name of the weight, unique in the model; set by `name_weights`.
    initializer_fn: (shape, dtype) -> initial value; None where the variable was
      created with a value.
    is_given: Whether its value was set after its creation, as from a file.
  """

  def __init__(self, variable: tf.Variable, initial_value: Any) -> None:
    self._variable = variable
    self.key = ''
    is_keras_call = isinstance(initial_value, functools.partial)
    self.initializer_fn: Any = initial_value.func if is_keras_call else None
    self.is_given = False

  def __getattr__(self, name: str) -> Any:
    """Returns an attribute of the variable."""
    return getattr(self._variable, name)

  def own_value(self) -> Array:
    """Returns the value of the variable itself."""
    with tf.init_scope():
      return np.array(self._variable.numpy())

  @property
  def dtype(self) -> tf.DType:
    """Returns the dtype of the variable."""
    return self._variable.dtype

  @property
  def shape(self) -> tf.TensorShape:
    """Returns the shape of the variable."""
    return self._variable.shape

  @property
  def name(self) -> str:
    """Returns the name that Keras gave the variable."""
    return self._variable.name

  @property
  def trainable(self) -> bool:
    """Returns whether the variable was created as a trainable one."""
    return self._variable.trainable

  def value(self) -> tf.Tensor:
    """Returns the tensor bound to it, or the value of the variable."""
    bound = _BOUND.get()
    if bound is None:
      return self._variable.value()
    if self.key not in bound:
      raise refusal(
        f'Keras variable {self.name!r} is read by a layer, but is none of the '
        'weights of the model: leave out stateful=True, and make variables '
        'attributes of layers'
      )
    return bound[self.key]

  def read_value(self) -> tf.Tensor:
    """Returns `value`."""
    return self.value()

  def sparse_read(
    self, indices: tf.Tensor, name: str | None = None
  ) -> tf.Tensor:
    """Returns the rows with these indices."""
    return tf.gather(self.value(), indices, name=name)

  def assign(self, value: Any, *args: Any, **kwargs: Any) -> Any:
    """Sets the variable; refused within `bound`."""
    return self._update('assign', value, *args, **kwargs)

  def assign_add(self, value: Any, *args: Any, **kwargs: Any) -> Any:
    """Adds to the variable; refused within `bound`."""
    return self._update('assign_add', value, *args, **kwargs)

  def assign_sub(self, value: Any, *args: Any, **kwargs: Any) -> Any:
    """Subtracts from the variable; refused within `bound`."""
    return self._update('assign_sub', value, *args, **kwargs)

  def _update(self, method: str, *args: Any, **kwargs: Any) -> Any:
    if _BOUND.get() is not None:
      raise refusal(
        f'Keras variable {self.name!r} is updated when the model is called: '
        'state across batches must not be averaged over clients or clusters '
        'like weights. Leave out its layer; in place of batch normalization '
        'take GroupNormalization or LayerNormalization'
      )
    self.is_given = True
    return getattr(self._variable, method)(*args, **kwargs)

  def __tf_tensor__(
    self, dtype: tf.DType | None = None, name: str | None = None
  ) -> tf.Tensor:
    """Returns `value`, for operations that take tensors."""
    return tf.convert_to_tensor(self.value(), dtype, name=name)

  def __repr__(self) -> str:
    """Returns name, shape and dtype."""
    return f'<KerasWeight {self.name!r} {self.shape} {self.dtype.name}>'

  # The checkpoint of a Keras model is restored into the variable.
  def _serialize_to_tensors(self):
    return self._variable._serialize_to_tensors()

  def _restore_from_tensors(self, restored_tensors):
    self.is_given = True
    return self._variable._restore_from_tensors(restored_tensors)


def _of_variable(name: str) -> property:
  return property(lambda self: getattr(self._variable, name))


# The base class has them, so `__getattr__` does not see them.
for _name in (
  *('aggregation', 'constraint', 'device', 'graph', 'initial_value'),
  *('initializer', 'op', 'synchronization', '_shared_name'),
):
  setattr(KerasWeight, _name, _of_variable(_name))


@contextlib.contextmanager
def recorded() -> Generator[None]:
  """Context in which every variable that is created is a `KerasWeight`."""

  def create(next_creator: Callable[..., tf.Variable], **kwargs: Any) -> Any:
    if kwargs.get('constraint') is not None:
      raise errors.ConfigError(
        f'Keras weight {kwargs.get("name")!r} has a constraint, which Keras '
        'applies in its own optimizers alone; leave it out'
      )
    return KerasWeight(next_creator(**kwargs), kwargs.get('initial_value'))

  with tf.variable_creator_scope(create):
    yield


@contextlib.contextmanager
def bound(tensors: Mapping[str, tf.Tensor]) -> Generator[None]:
  """Context in which weights read the tensors of their names."""
  token = _BOUND.set(tensors)
  try:
    yield
  finally:
    _BOUND.reset(token)


def name_weights(
  variables: Sequence[tf.Variable],
  layers: Iterable[tf.keras.layers.Layer] = (),
) -> list[KerasWeight]:
  """Names the weights of a model by Keras's names; returns them in their order.

  Args:
    variables: All variables of the model, without repetition.
    layers: Layers of the model. Where two have the same name, as in nested
      models, the second one's is numbered in the names of all its weights.

  Raises:
    ConfigError: If one was not created under `recorded`.
  """
  owners = {id(one): id(layer) for layer in layers for one in layer.weights}
  own_names = {_layer_name(variable) for variable in variables}
  layer_names: dict[tuple[str, int | None], str] = {}
  weights, taken = [], set()
  for variable in variables:
    weight = _unwrapped(variable)
    if not isinstance(weight, KerasWeight):
      raise errors.ConfigError(
        f'Keras weight {variable.name!r} was created outside of build_fn; '
        'create all layers of the model in it'
      )
    name = weight.name.partition(':')[0]
    if '/' in name:
      layer = _layer_name(variable)
      key = layer, owners.get(id(variable))
      if key not in layer_names:
        used = set(layer_names.values())
        taken_names = used | own_names if layer in used else used
        layer_names[key] = _unused(layer, taken_names)
      name = layer_names[key] + name.removeprefix(layer)
    weight.key = _unused(name, taken)
    taken.add(weight.key)
    weights.append(weight)
  return weights


def _layer_name(variable: tf.Variable) -> str:
  return variable.name.partition(':')[0].partition('/')[0]


def _unused(name: str, taken: set[str]) -> str:
  """Returns the name, with a number where it is taken."""
  unused, number = name, 2
  while unused in taken:
    unused, number = f'{name}_{number}', number + 1
  return unused


class _SeededGenerator:
  """Random draws of a Keras initializer as functions of a seed, int32 `[2]`."""

  def __init__(self, seed: tf.Tensor) -> None:
    self._seed = seed

  def random_normal(self, shape, mean=0.0, stddev=1.0, dtype=None, nonce=None):
    """Returns normal draws."""
    del nonce
    return tf.random.stateless_normal(
      shape, self._seed, mean, stddev, dtype or tf.float32
    )

  def truncated_normal(
    self, shape, mean=0.0, stddev=1.0, dtype=None, nonce=None
  ):
    """Returns normal draws within two standard deviations."""
    del nonce
    return tf.random.stateless_truncated_normal(
      shape, self._seed, mean, stddev, dtype or tf.float32
    )

  def random_uniform(
    self, shape, minval=0.0, maxval=None, dtype=None, nonce=None
  ):
    """Returns uniform draws."""
    del nonce
    return tf.random.stateless_uniform(
      shape, self._seed, minval, maxval, dtype or tf.float32
    )


def any_given(variables: Sequence[tf.Variable]) -> bool:
  """Returns whether the value of a variable was set after its creation."""
  weights = map(_unwrapped, variables)
  return any(isinstance(one, KerasWeight) and one.is_given for one in weights)


def _unwrapped(variable: Any) -> Any:
  """Returns the variable that mixed precision wraps."""
  if isinstance(variable, KerasWeight):
    return variable
  return getattr(variable, '_variable', variable)


def initial_draw(weight: KerasWeight) -> Callable[[tf.Tensor], tf.Tensor]:
  """Returns seed int32 `[2]` -> initial value of a trainable weight.

  Values that were set in build_fn, and initializers without random draws, give
  a constant. The initializers of Keras draw by the seed in place of their own
  generator.

  Raises:
    ConfigError: If the draws cannot be made by a seed, or are no float32.
  """
  if weight.dtype != tf.float32:
    raise errors.ConfigError(
      f'Keras weight {weight.name!r} must be float32, got '
      f"{weight.dtype.name}; a layer with dtype='mixed_bfloat16' computes in "
      'another dtype with float32 weights'
    )
  initializer = weight.initializer_fn
  if not weight.is_given and hasattr(initializer, _GENERATOR):

    def draw(seed: tf.Tensor) -> tf.Tensor:
      # Of its own, since Keras warns where one is called twice.
      seeded = copy.copy(initializer)
      seeded._random_generator, seeded._used = _SeededGenerator(seed), False
      return seeded(weight.shape, dtype=weight.dtype)

    return draw
  value = constant_value(weight)
  return lambda seed: tf.constant(value)


def constant_value(weight: KerasWeight) -> Array:
  """Returns the value of a weight that no seed determines.

  Raises:
    ConfigError: If its initial value is random, so that it would differ from
      process to process.
  """
  if not weight.is_given and weight.initializer_fn is None:
    raise errors.ConfigError(
      f'Keras weight {weight.name!r} was created with a value, which may be '
      'random: use add_weight(initializer=tf.keras.initializers.Constant(...)) '
      'of its layer, or assign the value in build'
    )
  if not weight.is_given and _is_random(weight):
    raise errors.ConfigError(
      f'the initial value of Keras weight {weight.name!r} is random, and '
      'is not drawn by the seed of the run: use an initializer of '
      'tf.keras.initializers on a trainable weight, or set its value in '
      'build_fn'
    )
  return weight.own_value()


def _is_random(weight: KerasWeight) -> bool:
  """Returns whether the initial value may differ from process to process."""
  if hasattr(weight.initializer_fn, _GENERATOR):
    return True

  def draw():
    return weight.initializer_fn(weight.shape, dtype=weight.dtype)

  # What NumPy draws is no operation of the graph.
  if not np.array_equal(draw(), draw()):
    return True
  graph = tf.function(draw, autograph=False).get_concrete_function().graph
  return any('Random' in kind for kind in graph_checks.operation_types(graph))
