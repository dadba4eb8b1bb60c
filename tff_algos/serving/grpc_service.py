"""TensorFlow Serving's gRPC services for the models of a store."""

# Protobuf creates the message classes at import.
# pyright: reportAttributeAccessIssue=false
import contextlib
import math
from collections.abc import Generator
from typing import Any

import grpc
import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2
from tensorflow.core.protobuf import error_codes_pb2, meta_graph_pb2
from tensorflow_serving.apis import (
  classification_pb2,
  get_model_metadata_pb2,
  get_model_status_pb2,
  model_pb2,
  model_service_pb2_grpc,
  predict_pb2,
  prediction_service_pb2_grpc,
  regression_pb2,
)

from tff_algos.core import errors
from tff_algos.serving import examples, models, tensors

_CODES = {
  400: grpc.StatusCode.INVALID_ARGUMENT,
  404: grpc.StatusCode.NOT_FOUND,
  413: grpc.StatusCode.RESOURCE_EXHAUSTED,
}
_SIGNATURE_DEF = 'signature_def'


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
  """PredictionService with Predict, Classify, Regress, GetModelMetadata."""

  def __init__(self, store: models.ModelStore, max_request_bytes: int):
    self._store = store
    self._max_request_bytes = max_request_bytes

  def Predict(self, request, context):  # noqa: N802
    """Answers a PredictRequest with a PredictResponse."""
    with _refusals(context):
      model = _find(self._store, request.model_spec)
      name = request.model_spec.signature_name or models.DEFAULT_SIGNATURE
      signature = model.signature(name)
      is_raw = name in model.raw_signatures
      inputs = self._inputs(request, signature, is_raw=is_raw)
      outputs = model.predict(name, inputs)
      wanted = list(request.output_filter) or list(outputs)
      unknown = sorted(set(wanted) - set(outputs))
      if unknown:
        raise errors.RequestError(
          f'output_filter names {unknown[0][:200]!r}; the outputs are '
          f'{", ".join(outputs)}'
        )
      return predict_pb2.PredictResponse(
        model_spec=_model_spec(model, name),
        outputs={k: tf.make_tensor_proto(outputs[k]) for k in wanted},
      )

  def Classify(self, request, context):  # noqa: N802
    """Answers a ClassificationRequest with a ClassificationResponse."""
    with _refusals(context):
      spec, outputs = self._ask(request, examples.CLASSIFY)
      response = classification_pb2.ClassificationResponse(model_spec=spec)
      for row in examples.classifications(outputs):
        answer = response.result.classifications.add()
        for label, score in row:
          answer.classes.add(label=label, score=score)
      return response

  def Regress(self, request, context):  # noqa: N802
    """Answers a RegressionRequest with a RegressionResponse."""
    with _refusals(context):
      spec, outputs = self._ask(request, examples.REGRESS)
      response = regression_pb2.RegressionResponse(model_spec=spec)
      for value in examples.regressions(outputs):
        response.result.regressions.add(value=value)
      return response

  def GetModelMetadata(self, request, context):  # noqa: N802
    """Answers a GetModelMetadataRequest for the field `signature_def`."""
    with _refusals(context):
      model = _find(self._store, request.model_spec)
      if list(request.metadata_field) != [_SIGNATURE_DEF]:
        raise errors.RequestError(
          f'metadata_field must be [{_SIGNATURE_DEF!r}], got '
          f'{[field[:50] for field in request.metadata_field[:5]]}'
        )
      response = get_model_metadata_pb2.GetModelMetadataResponse(
        model_spec=_model_spec(model, '')
      )
      response.metadata[_SIGNATURE_DEF].Pack(
        get_model_metadata_pb2.SignatureDefMap(
          signature_def=model.signature_defs
        )
      )
      return response

  def _ask(
    self, request: Any, method: str
  ) -> tuple[model_pb2.ModelSpec, dict[str, np.ndarray]]:
    """Returns the model that answers examples, and its outputs."""
    model = _find(self._store, request.model_spec)
    name = request.model_spec.signature_name or method
    rows = examples.from_input(request.input)
    return (
      _model_spec(model, name),
      examples.predict(model, method, name, rows),
    )

  def _inputs(
    self,
    request: predict_pb2.PredictRequest,
    signature: meta_graph_pb2.SignatureDef,
    *,
    is_raw: bool,
  ) -> dict[str, np.ndarray]:
    tensors.check_names(request.inputs, signature)
    inputs = {}
    for name, info in signature.inputs.items():
      inputs[name] = self._array(name, request.inputs[name], info)
      tensors.check_input(name, inputs[name], info, is_raw=is_raw)
    return inputs

  def _array(
    self,
    name: str,
    proto: tensor_pb2.TensorProto,
    info: meta_graph_pb2.TensorInfo,
  ) -> np.ndarray:
    dtype = tf.as_dtype(info.dtype)
    if proto.dtype != info.dtype:
      raise errors.RequestError(
        f'input {name!r} must have dtype {dtype.name}, got dtype number '
        f'{proto.dtype}'
      )
    # A small TensorProto may declare a huge shape filled with one number.
    sizes = [dim.size for dim in proto.tensor_shape.dim]
    if min(sizes, default=0) < 0 or proto.tensor_shape.unknown_rank:
      raise errors.RequestError(f'input {name!r} must have a known shape')
    if math.prod(sizes) * dtype.size > self._max_request_bytes:
      raise errors.RequestError(
        f'input {name!r} is larger than {self._max_request_bytes} bytes; send '
        f'fewer rows at once',
        status=413,
      )
    try:
      return tf.make_ndarray(proto)
    except (TypeError, ValueError) as error:
      raise errors.RequestError(
        f'input {name!r} is not a valid TensorProto: {str(error)[:200]}'
      ) from None


class ModelService(model_service_pb2_grpc.ModelServiceServicer):
  """GetModelStatus."""

  def __init__(self, store: models.ModelStore):
    self._store = store

  def GetModelStatus(self, request, context):  # noqa: N802
    """Answers a GetModelStatusRequest."""
    with _refusals(context):
      spec = request.model_spec
      statuses = self._store.statuses(spec.name, _version(spec))
      response = get_model_status_pb2.GetModelStatusResponse()
      for status in statuses:
        entry = response.model_version_status.add(version=status.version)
        entry.state = entry.END if status.error else entry.AVAILABLE
        entry.status.error_message = status.error
        if status.error:
          entry.status.error_code = error_codes_pb2.UNKNOWN
      return response


def add_services(
  server: grpc.Server, store: models.ModelStore, max_request_bytes: int
) -> None:
  """Adds PredictionService and ModelService to a gRPC server."""
  prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
    PredictionService(store, max_request_bytes), server
  )
  model_service_pb2_grpc.add_ModelServiceServicer_to_server(
    ModelService(store), server
  )


@contextlib.contextmanager
def _refusals(context: grpc.ServicerContext) -> Generator[None]:
  try:
    yield
  except errors.RequestError as error:
    context.abort(_CODES[error.status], str(error))


def _version(spec: model_pb2.ModelSpec) -> int | None:
  if spec.version_label:
    raise errors.RequestError('version labels are not used; name the version')
  return spec.version.value if spec.HasField('version') else None


def _find(
  store: models.ModelStore, spec: model_pb2.ModelSpec
) -> models.ServedModel:
  return store.get(spec.name, _version(spec))


def _model_spec(
  model: models.ServedModel, signature_name: str
) -> model_pb2.ModelSpec:
  spec = model_pb2.ModelSpec(name=model.name, signature_name=signature_name)
  spec.version.value = model.version
  return spec
