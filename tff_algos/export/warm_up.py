"""Warm-up requests of a bundle, in TensorFlow Serving's format.

A server that runs them before a version answers spares its first clients
TensorFlow's work at a function's first call.
https://www.tensorflow.org/tfx/serving/saved_model_warmup
"""

# Protobuf creates the message classes at import.
# pyright: reportAttributeAccessIssue=false
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import prediction_log_pb2

from tff_algos.export import manifest, signature_defs

FILE = 'tf_serving_warmup_requests'
_PREDICT = 'tensorflow/serving/predict'
# Input of examples; a bundle has none of those that it was checked with.
_X = 'x'
_LABEL = 'label'
_MIXTURE = 'mixture'


def write(
  folder: pathlib.Path,
  samples: Iterable[Mapping[str, np.ndarray]],
  *,
  class_id: int,
  class_name: str,
) -> None:
  """Writes a request of one row for each signature that takes such inputs.

  Args:
    folder: The SavedModel; `assets.extra/` must exist.
    samples: Inputs by name, of at least one row. Examples `x` are replaced by
      zeros; mixtures are equal shares where there are none.
    class_id: Label of signatures that take numbers.
    class_name: Label of signatures that take names of classes.
  """
  path = folder / manifest.EXTRA_FOLDER / FILE
  with tf.io.TFRecordWriter(str(path)) as writer:
    for name, signature in sorted(signature_defs.read(folder).items()):
      if signature.method_name != _PREDICT:
        continue
      inputs = _inputs(signature, samples, class_id, class_name)
      if inputs:
        log = prediction_log_pb2.PredictionLog()
        request = log.predict_log.request
        request.model_spec.signature_name = name
        for key, value in inputs.items():
          request.inputs[key].CopyFrom(tf.make_tensor_proto(value))
        writer.write(log.SerializeToString(deterministic=True))


def run(folder: pathlib.Path, signatures: Mapping[str, Any]) -> None:
  """Runs the requests of a loaded SavedModel.

  Records of other methods than Predict are left out.
  """
  path = folder / manifest.EXTRA_FOLDER / FILE
  if not path.exists():
    return
  for record in tf.data.TFRecordDataset(str(path)):
    log = prediction_log_pb2.PredictionLog.FromString(record.numpy())
    if log.HasField('predict_log'):
      request = log.predict_log.request
      name = request.model_spec.signature_name or 'serving_default'
      inputs = {k: tf.make_ndarray(v) for k, v in request.inputs.items()}
      signatures[name](**{k: tf.constant(v) for k, v in inputs.items()})


def _inputs(
  signature: meta_graph_pb2.SignatureDef,
  samples: Iterable[Mapping[str, np.ndarray]],
  class_id: int,
  class_name: str,
) -> dict[str, np.ndarray]:
  """Returns one row of the first sample that fits; none if none does."""
  for sample in samples:
    row = {name: np.asarray(value[:1]) for name, value in sample.items()}
    # A column of words may have that name, too; its row is made up already.
    if _X in row and np.issubdtype(row[_X].dtype, np.number):
      row[_X] = np.zeros_like(row[_X])
    if _LABEL in signature.inputs:
      row.setdefault(
        _LABEL, _label(signature.inputs[_LABEL], class_id, class_name)
      )
    if _MIXTURE in signature.inputs:
      count = signature.inputs[_MIXTURE].tensor_shape.dim[1].size
      row.setdefault(_MIXTURE, np.full([1, count], 1 / count, np.float32))
    if all(
      name in row and _fits(row[name], info)
      for name, info in signature.inputs.items()
    ):
      return {name: row[name] for name in signature.inputs}
  return {}


def _label(
  info: meta_graph_pb2.TensorInfo, class_id: int, class_name: str
) -> np.ndarray:
  """Returns the labels of one row."""
  dtype = tf.as_dtype(info.dtype)
  shape = [1, *(dim.size for dim in info.tensor_shape.dim[1:])]
  value = class_name if dtype == tf.string else class_id
  return np.full(shape, value, dtype.as_numpy_dtype)


def _fits(value: np.ndarray, info: meta_graph_pb2.TensorInfo) -> bool:
  shape = tf.TensorShape(info.tensor_shape)  # pyright: ignore[reportArgumentType]
  return tf.as_dtype(value.dtype) == info.dtype and shape.is_compatible_with(
    value.shape
  )
