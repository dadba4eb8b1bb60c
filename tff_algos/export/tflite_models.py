r"""TFLite models for devices: one file a cluster and a client, which can train.

Signatures (`x` is `[batch, *input_shape]`):

- `predict`: `x` -> the outputs of `prediction.name_outputs`.
- `train`: `x`, `label` `[batch, *label_shape]`, `learning_rate` `[]` -> `loss`
  `[]`, the mean before the step. One step of SGD, which changes the weights
  that all signatures of the interpreter use. A mixture of models has none: SGD
  would leave the simplex of its membership.
- `get_weights`: -> the weights by name, with `_` for what is no letter, digit
  or underscore, `weight_` before one that starts with no letter, and a number
  where two would be the same but for case.
- `set_weights`: the weights by these names -> their number.

The file is never changed; weights are kept by `get_weights`, and given to a new
interpreter by `set_weights`. Files with `train` need TensorFlow's operations
(TF Select) beside TFLite's own.
"""

import itertools
import os
import pathlib
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import errors
from tff_algos.core import model as model_lib
from tff_algos.export import bundle as bundle_lib
from tff_algos.export import (
  client_states,
  manifest,
  personalized_models,
  prediction,
  raw_inputs,
  validation,
)

PREDICT, TRAIN = 'predict', 'train'
GET_WEIGHTS, SET_WEIGHTS = 'get_weights', 'set_weights'

_OPERATION = re.compile(r'\btf\.([A-Z]\w+)')
_TYPE = re.compile(r"element type '(\w+)'")


class _Single(NamedTuple):
  """One model of a file.

  Attributes:
    file_name: Such as `cluster_0.tflite`.
    model: Cluster model or personalized model.
    weights: Its weights, arrays.
  """

  file_name: str
  model: model_lib.Model
  weights: Any


def export_tflite_models(
  base_dir: str | os.PathLike[str],
  algorithm: algorithm_lib.FederatedAlgorithm,
  server_state: algorithm_lib.Structure,
  client_ids: Sequence[str],
  load_states: client_states.LoadStates,
  sample_inputs: np.ndarray,
  provenance: manifest.Provenance,
) -> pathlib.Path:
  """Writes all models, one file each, as the next version under `base_dir`.

  Args:
    base_dir: Such as `<workdir>/tflite`.
    algorithm: Algorithm; defines cluster models and personalized models.
    server_state: The state to export, of arrays or tensors.
    client_ids: Ids by client index, distinct; none exports the clusters alone.
    load_states: Loads some clients' states; called for one client at a time.
    sample_inputs: `[n, *input_shape]`, n >= 1, for comparing the predictions of
      the files with those of the models in memory.
    provenance: Config, round and dataset version of the states.

  Returns:
    The folder `<base_dir>/<version>`, with `cluster_<k>.tflite`,
    `client_<id>.tflite` (ids as in URLs) and `assets.extra/bundle.json`.

  Raises:
    ExportError: If TFLite has no such operation, which is named, or predictions
      differ. No files are left behind.
    InfrastructureError: If the disk is full or may not be written.
  """

  def write(folder: pathlib.Path) -> None:
    extra = folder / manifest.EXTRA_FOLDER
    extra.mkdir(parents=True)
    for name, model, weights in itertools.chain(
      _clusters(algorithm, server_state),
      _clients(algorithm, server_state, client_ids, load_states),
    ):
      for leaf in tf.nest.flatten(weights):
        validation.check_finite(f'weights of {name}', leaf)
      x = validation.check_sample_inputs(model, sample_inputs)
      content = convert(model, weights, folder / 'converting')
      _check_predicts(name, content, model, weights, x)
      (folder / name).write_bytes(content)
    facts = {
      'kind': 'tflite_models',
      'tensorflow_version': tf.__version__,
      'num_clusters': algorithm.num_clusters,
      'num_clients': len(client_ids),
      **bundle_lib.model_facts(algorithm.name, algorithm.cluster_model),
    }
    manifest.write_manifest(folder, provenance, facts)

  return bundle_lib.write_version(base_dir, write)


def convert(
  model: model_lib.Model, weights: Any, scratch: pathlib.Path
) -> bytes:
  """Returns a TFLite model with the signatures of this module.

  Args:
    model: The model.
    weights: Its weights; nested mappings for a mixture.
    scratch: Folder that does not exist; it does not afterwards.

  Raises:
    ExportError: If TFLite cannot express the model; names the operation, if the
      converter does.
  """
  module: Any = tf.Module()
  variables = tf.nest.map_structure(bundle_lib.variable, weights)
  module.weights = tf.nest.flatten(variables)
  signatures = _signatures(model, variables)
  try:
    bundle_lib.save_signatures(scratch, module, signatures)
    converter = tf.lite.TFLiteConverter.from_saved_model(os.fspath(scratch))
    converter.target_spec.supported_ops = [
      tf.lite.OpsSet.TFLITE_BUILTINS,
      tf.lite.OpsSet.SELECT_TF_OPS,
    ]
    converter.experimental_enable_resource_variables = True
    return converter.convert()
  except (OSError, tf.errors.OpError):
    raise
  except Exception as error:  # The converter has several types, all private.
    raise errors.ExportError(
      f'model {model.name!r} cannot be converted to TFLite'
      f'{_reason(error)}; docs/serving.md lists the models that can'
    ) from error
  finally:
    shutil.rmtree(scratch, ignore_errors=True)


def _clusters(
  algorithm: algorithm_lib.FederatedAlgorithm,
  server_state: algorithm_lib.Structure,
) -> Iterator[_Single]:
  stacked = tf.nest.map_structure(
    np.asarray, algorithm.cluster_weights(server_state)
  )
  for k in range(algorithm.num_clusters):
    weights = tf.nest.map_structure(lambda leaf: leaf[k], stacked)  # noqa: B023
    yield _Single(f'cluster_{k}.tflite', algorithm.cluster_model, weights)


def _clients(
  algorithm: algorithm_lib.FederatedAlgorithm,
  server_state: algorithm_lib.Structure,
  client_ids: Sequence[str],
  load_states: client_states.LoadStates,
) -> Iterator[_Single]:
  for index, client_id in enumerate(client_ids):
    state = client_states.state_of(load_states, index)
    weights = personalized_models.client_weights(
      algorithm, server_state, state, index
    )
    yield _Single(
      f'{personalized_models.client_name(client_id)}.tflite',
      algorithm.personalized_model,
      tf.nest.map_structure(np.asarray, weights),
    )


def _signatures(
  model: model_lib.Model, variables: Any
) -> dict[str, Callable[..., Any]]:
  x = {'x': prediction.features_spec(model)}
  label = tf.TensorSpec([None, *model.label_shape], model.label_dtype)
  named = _named(variables)

  def read() -> Any:
    return tf.nest.map_structure(tf.convert_to_tensor, variables)

  def predict(x: tf.Tensor) -> Mapping[str, tf.Tensor]:
    return prediction.name_outputs(model, model.apply(read(), x))

  def train(
    x: tf.Tensor, label: tf.Tensor, learning_rate: tf.Tensor
  ) -> Mapping[str, tf.Tensor]:
    weights = read()
    with tf.GradientTape() as tape:
      tape.watch(weights)
      losses = model.example_losses(model.apply(weights, x), label)
      counts = model.loss_weights(label, tf.ones(tf.shape(x)[:1]))
      num_labels = tf.maximum(tf.reduce_sum(counts), 1.0)
      loss = tf.reduce_sum(losses * counts) / num_labels
    gradients = tape.gradient(
      loss, weights, unconnected_gradients=tf.UnconnectedGradients.ZERO
    )
    for name, gradient in gradients.items():
      variables[name].assign_sub(learning_rate * gradient)
    return {'loss': loss}

  def get_weights() -> Mapping[str, tf.Tensor]:
    return {name: tf.identity(value) for name, value in named.items()}

  def set_weights(**values: tf.Tensor) -> Mapping[str, tf.Tensor]:
    for name, value in values.items():
      named[name].assign(value)
    return {'num_weights': tf.constant(len(values))}

  inputs: dict[str, tuple[Callable[..., Any], dict[str, tf.TensorSpec]]] = {
    PREDICT: (predict, x),
    GET_WEIGHTS: (get_weights, {}),
    SET_WEIGHTS: (
      set_weights,
      {name: tf.TensorSpec(v.shape, v.dtype) for name, v in named.items()},
    ),
  }
  if not any(isinstance(value, Mapping) for value in variables.values()):
    rate = tf.TensorSpec([], tf.float32)
    inputs[TRAIN] = (train, {**x, 'label': label, 'learning_rate': rate})
  return {
    name: bundle_lib.concrete_function(function, specs)
    for name, (function, specs) in inputs.items()
  }


def _named(weights: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the leaves of weights by names that TFLite takes."""
  leaves = dict(_leaves(weights))
  names = raw_inputs.argument_names(leaves, prefix='weight_')
  return {names[path]: value for path, value in leaves.items()}


def _leaves(
  weights: Mapping[str, Any], prefix: str = ''
) -> Iterator[tuple[str, Any]]:
  for key, value in weights.items():
    if isinstance(value, Mapping):
      yield from _leaves(value, f'{prefix}{key}\0')
    else:
      yield f'{prefix}{key}', value


def _check_predicts(
  name: str,
  content: bytes,
  model: model_lib.Model,
  weights: Any,
  x: np.ndarray,
) -> None:
  """Compares a file's predictions with those of the model in memory."""
  predict = tf.lite.Interpreter(model_content=content).get_signature_runner(
    PREDICT
  )
  answers = predict(x=x)
  for output, expected in bundle_lib.expected_outputs(
    model, weights, x
  ).items():
    bundle_lib.check_close(
      f'{name}/{output}', answers[output], expected, model.output_tolerance
    )


def _reason(error: Exception) -> str:
  """Returns the operations or the type that TFLite lacks, else the error."""
  text = str(error)
  operations = sorted(set(_OPERATION.findall(text)))
  if operations:
    return f', which lacks the operations {", ".join(operations)}'
  types = sorted(set(_TYPE.findall(text)))
  if types:
    return f', which lacks the type {", ".join(types)}'
  return f': {" ".join(text.split())}'
