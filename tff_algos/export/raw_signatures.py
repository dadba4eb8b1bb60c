"""Signatures of raw columns, made from those of the encoded input `x`.

A signature has the raw columns by name in place of `x`, in the units and texts
of the raw data: `serving_raw` beside `serving_default`, `predict_mixture_raw`
and `pick_cluster_raw` beside theirs. They encode the columns as the dataset
did and call the other signature, so that both answer with the same bits. A
classifier with named classes answers with `class_name`, too, and
`pick_cluster_raw` takes the names as labels.

`classify` or `regress` take serialized `tf.train.Example`s, for TensorFlow
Serving's Classify and Regress.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tff_algos.core import errors
from tff_algos.core import model as model_lib
from tff_algos.export import bundle as bundle_lib
from tff_algos.export import prediction, raw_inputs
from tff_algos.features import spec as spec_lib

SERVING_RAW = 'serving_raw'
# Signature of the encoded input -> that of raw columns.
_RAW_NAMES = {
  'serving_default': SERVING_RAW,
  'predict_mixture': 'predict_mixture_raw',
  'pick_cluster': 'pick_cluster_raw',
}
_LABEL = 'label'

_Columns = Mapping[str, tf.Tensor]
_Outputs = Mapping[str, tf.Tensor]
_Function = Callable[..., _Outputs]


class Signature(NamedTuple):
  """A signature of the encoded input `x`.

  Attributes:
    function: `tf.function` of `x` and the others, by name.
    others: Specs of its other inputs, with their names.
  """

  function: _Function
  others: tuple[tf.TensorSpec, ...] = ()


class Features(NamedTuple):
  """What encodes the raw data of a model.

  Attributes:
    spec: Feature spec of the dataset that it was trained on.
    client_mean: Of a spec with columns encoded by client: their means at each
      exported client, `[num_clients, len(spec.by_client)]` float32.
    client_deviation: The same of the standard deviations.
  """

  spec: spec_lib.FeatureSpec
  client_mean: np.ndarray | None = None
  client_deviation: np.ndarray | None = None


class Statistics(NamedTuple):
  """Statistics of the rows' clients, as the bundle holds them.

  Attributes:
    mean: Variable `[num_clients, len(spec.by_client)]`.
    deviation: The same shape.
    client_index: (inputs besides the columns by name, number of rows) -> index
      of each row's client, int32 `[num_rows]`.
  """

  mean: tf.Variable
  deviation: tf.Variable
  client_index: Callable[[_Columns, tf.Tensor], tf.Tensor]

  def columns(self, others: _Columns, num_rows: tf.Tensor) -> _Columns:
    """Returns the columns of statistics."""
    index = self.client_index(others, num_rows)
    return {
      spec_lib.CLIENT_MEAN: tf.gather(self.mean, index),
      spec_lib.CLIENT_DEVIATION: tf.gather(self.deviation, index),
    }


class RawSignatures(tf.Module):
  """The raw signatures of a bundle.

  Attributes:
    functions: Name -> concrete function.
    methods: Name -> TensorFlow Serving's method, if it is not Predict.
    facts: Entries of the bundle's manifest.
  """

  def __init__(
    self,
    model: model_lib.Model,
    features: Features | None,
    signatures: Mapping[str, Signature],
    client_index: Callable[[_Columns, tf.Tensor], tf.Tensor] | None = None,
  ):
    """Traces the signatures.

    Args:
      model: The served model.
      features: The raw data; None for a bundle without raw signatures.
      signatures: Those of the encoded input.
      client_index: As of `Statistics`, for a bundle of known clients.

    Raises:
      ExportError: If the spec does not fit the model.
    """
    super().__init__()
    self.functions: dict[str, _Function] = {}
    self.methods: dict[str, str] = {}
    self.facts: dict[str, Any] = {}
    if features is None:
      return
    spec = features.spec
    _check_fits(spec, model)
    self._model = model
    self._inputs = raw_inputs.RawInputs(spec)
    self._classes = _class_names(spec, model)
    self._statistics = None
    if client_index is not None and spec.by_client:
      self._statistics = Statistics(
        bundle_lib.variable(features.client_mean),
        bundle_lib.variable(features.client_deviation),
        client_index,
      )
    for name, raw_name in _RAW_NAMES.items():
      if name in signatures:
        self.functions[raw_name] = self._raw(signatures[name])
    self.facts = {
      'features': spec.to_dict(),
      'features_sha': spec.digest(),
      'raw_signatures': sorted(self.functions),
      'raw_columns': {
        argument: column for column, argument in self._arguments().items()
      },
    }
    self._add_examples(signatures['serving_default'].others)

  def sample(
    self,
    others: Mapping[str, np.ndarray],
    weights: Any,
  ) -> tuple[bundle_lib.Sample, ...]:
    """Returns a sample of `serving_raw`, of one made-up row.

    Args:
      others: Its inputs besides the columns, one row each.
      weights: Weights in memory of the model that answers.
    """
    if not self.functions:
      return ()
    columns = raw_inputs.example_columns(self._inputs.spec)
    arguments = self._arguments()
    if self._statistics is not None:
      tensors = {name: tf.constant(value) for name, value in others.items()}
      own = self._statistics.columns(tensors, tf.constant(1))
      columns |= {name: value.numpy() for name, value in own.items()}
    encoded = self._inputs.model_input(
      tf.nest.map_structure(tf.convert_to_tensor, columns)
    )
    return (
      bundle_lib.Sample(
        SERVING_RAW,
        {arguments[name]: columns[name] for name in arguments} | dict(others),
        bundle_lib.expected_outputs(self._model, weights, encoded.numpy()),
      ),
    )

  def _arguments(self) -> dict[str, str]:
    """Returns column -> input, of the columns that a caller sends."""
    arguments = dict(self._inputs.arguments)
    if self._statistics is not None:
      del arguments[spec_lib.CLIENT_MEAN]
      del arguments[spec_lib.CLIENT_DEVIATION]
    return arguments

  def _raw(self, signature: Signature) -> _Function:
    """Returns the function of raw columns."""
    arguments = self._arguments()

    def predict(**inputs: tf.Tensor) -> _Outputs:
      columns = {name: inputs.pop(arg) for name, arg in arguments.items()}
      if self._statistics is not None:
        first = next(iter(columns.values()))
        checks = [
          prediction.require_same_rows(name, values, first)
          for name, values in inputs.items()
        ]
        with tf.control_dependencies(checks):
          num_rows = tf.shape(first)[0]
        columns |= self._statistics.columns(inputs, num_rows)
      if _LABEL in inputs and self._classes is not None:
        inputs[_LABEL] = self._class_ids(inputs[_LABEL], self._classes)
      x = self._inputs.model_input(columns)
      return self._named(signature.function(x=x, **inputs))

    specs = {
      argument: self._inputs.column_specs[name]
      for name, argument in arguments.items()
    }
    specs |= {_name(spec): spec for spec in signature.others}
    if _LABEL in specs and self._classes is not None:
      specs[_LABEL] = tf.TensorSpec(specs[_LABEL].shape, tf.string)
    return bundle_lib.concrete_function(predict, specs)

  def _named(self, outputs: _Outputs) -> _Outputs:
    """Returns the outputs with the name of the class."""
    if self._classes is None or 'class_id' not in outputs:
      return outputs
    return {
      **outputs,
      'class_name': tf.gather(self._classes, outputs['class_id']),
    }

  def _class_ids(self, names: tf.Tensor, classes: tf.Tensor) -> tf.Tensor:
    """Returns the ids of class names, int32 of their shape."""
    is_class = tf.equal(tf.expand_dims(names, -1), classes)
    shown = ', '.join(self._inputs.spec.classes)[:200]
    check = prediction.require_values(
      tf.reduce_any(is_class, axis=-1),
      names,
      f'{_LABEL} must be one of the classes {shown}',
    )
    with tf.control_dependencies([check]):
      return tf.argmax(
        tf.cast(is_class, tf.int32), axis=-1, output_type=tf.int32
      )

  def _add_examples(self, others: tuple[tf.TensorSpec, ...]) -> None:
    """Adds `classify` or `regress`, if Serving has a form for the answers."""
    if self._model.label_shape:
      return
    is_classifier = self._model.task == model_lib.CLASSIFICATION
    name = 'classify' if is_classifier else 'regress'
    specs = {
      column: self._inputs.column_specs[column] for column in self._arguments()
    } | {_name(spec): spec for spec in others}
    may_miss = {
      feature.name
      for feature in self._inputs.spec.features
      if feature.missing != spec_lib.REFUSE
    }
    arguments = {**{_name(s): _name(s) for s in others}, **self._arguments()}
    answer = self.functions[SERVING_RAW]

    def predict(inputs: tf.Tensor) -> _Outputs:
      parsed = _parse_examples(inputs, specs, may_miss)
      outputs = answer(**{arguments[key]: parsed[key] for key in parsed})
      if not is_classifier:
        return {'outputs': outputs['prediction']}
      scores = outputs['probabilities']
      names = self._classes
      if names is None:
        names = tf.strings.as_string(tf.range(self._model.num_outputs))
      return {
        'classes': tf.broadcast_to(names, tf.shape(scores)),
        'scores': scores,
      }

    self.functions[name] = bundle_lib.concrete_function(
      predict, {'inputs': tf.TensorSpec([None], tf.string)}
    )
    self.methods[name] = f'tensorflow/serving/{name}'


def _check_fits(spec: spec_lib.FeatureSpec, model: model_lib.Model) -> None:
  """Raises ExportError unless a model takes what a spec encodes."""
  output = spec.output()
  if output is None or tuple(output.shape) != tuple(model.input_shape):
    found = list(output.shape) if output else 'nothing, as it is not fitted'
    raise errors.ExportError(
      f'the feature spec encodes {found}, the model takes '
      f'{list(model.input_shape)}. Export from a run on the same dataset.'
    )
  is_classifier = model.task == model_lib.CLASSIFICATION
  if is_classifier and spec.classes and len(spec.classes) != model.num_outputs:
    raise errors.ExportError(
      f'the feature spec names {len(spec.classes)} classes, the model has '
      f'{model.num_outputs}. Export from a run on the same dataset.'
    )


def _class_names(
  spec: spec_lib.FeatureSpec, model: model_lib.Model
) -> tf.Tensor | None:
  """Returns the names of a classifier's classes, string `[num_classes]`."""
  if model.task != model_lib.CLASSIFICATION or not spec.classes:
    return None
  return tf.constant(spec.classes)


def _parse_examples(
  serialized: tf.Tensor,
  specs: Mapping[str, tf.TensorSpec],
  may_miss: set[str],
) -> dict[str, tf.Tensor]:
  """Returns the values of `tf.train.Example`s, of the specs."""
  parsed = tf.io.parse_example(
    serialized,
    {
      name: tf.io.FixedLenFeature(
        spec.shape[1:],
        tf.int64 if spec.dtype.is_integer else spec.dtype,
        np.full(spec.shape[1:], np.nan) if name in may_miss else None,  # pyright: ignore[reportArgumentType]
      )
      for name, spec in specs.items()
    },
  )
  values = {}
  for name, spec in specs.items():
    value: Any = parsed[name]
    if spec.dtype.is_integer:
      is_in_range = (value >= spec.dtype.min) & (value <= spec.dtype.max)
      rule = f'{name} must be from {spec.dtype.min} to {spec.dtype.max}'
      check = prediction.require_values(is_in_range, value, rule)
      with tf.control_dependencies([check]):
        value = tf.cast(value, spec.dtype)
    values[name] = value
  return values


def _name(spec: tf.TensorSpec) -> str:
  return str(spec.name)
