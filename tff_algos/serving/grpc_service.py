"""TensorFlow Serving's gRPC services for the models of a store."""

# Protobuf creates the message classes at import.
# pyright: reportAttributeAccessIssue=false
import collections
import functools
import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from typing import Any, NamedTuple
from urllib import parse

import grpc
import numpy as np
import tensorflow as tf
from absl import logging
from google.protobuf import message as message_lib
from tensorflow.core.framework import tensor_pb2
from tensorflow.core.protobuf import error_codes_pb2, meta_graph_pb2
from tensorflow_serving.apis import (
  classification_pb2,
  get_model_metadata_pb2,
  get_model_status_pb2,
  model_pb2,
  predict_pb2,
  regression_pb2,
)

from tff_algos.core import errors
from tff_algos.serving import (
  access,
  batching,
  canary,
  examples,
  models,
  monitoring,
  refusals,
  served_model,
  server_config,
  tensors,
  tls,
)
from tff_algos.serving import lanes as lanes_lib

_CODES = {
  400: grpc.StatusCode.INVALID_ARGUMENT,
  401: grpc.StatusCode.UNAUTHENTICATED,
  403: grpc.StatusCode.PERMISSION_DENIED,
  404: grpc.StatusCode.NOT_FOUND,
  413: grpc.StatusCode.RESOURCE_EXHAUSTED,
  500: grpc.StatusCode.INTERNAL,
  503: grpc.StatusCode.UNAVAILABLE,
}
# Field of TensorProto with the values of a dtype; `int_val` of all others.
_VALUE_FIELDS = {
  tf.float16: 'half_val',
  tf.bfloat16: 'half_val',
  tf.float32: 'float_val',
  tf.float64: 'double_val',
  tf.complex64: 'scomplex_val',
  tf.complex128: 'dcomplex_val',
  tf.string: 'string_val',
  tf.bool: 'bool_val',
  tf.int64: 'int64_val',
  tf.uint32: 'uint32_val',
  tf.uint64: 'uint64_val',
}
_SIGNATURE_DEF = 'signature_def'
_LOG_SECONDS = 10


def answer(
  store: models.ModelStore,
  config: server_config.ServerConfig,
  method: str,
  message: bytes,
) -> bytes | batching.Question:
  """Returns the message that answers a message, or what to ask a model for it.

  Args:
    store: Models.
    config: Limits.
    method: Name of the method, of either service.
    message: The request as it was sent.

  Raises:
    RequestError: If the request is refused.
  """
  if method in _REPORTS:
    request_type, report = _REPORTS[method]
    return report(store, _parse(request_type, message)).SerializeToString()
  request_type, build = _QUESTIONS[method]
  request = _parse(request_type, message)
  spec = request.model_spec
  return canary.ask(
    store,
    spec.name,
    _version(spec),
    functools.partial(build, config, request),
  )


def _parse(request_type: Any, message: bytes) -> Any:
  try:
    return request_type.FromString(message)
  except message_lib.DecodeError:
    raise _no_message(request_type) from None


def _no_message(request_type: Any) -> errors.RequestError:
  return errors.RequestError(
    f'the message is no {request_type.DESCRIPTOR.full_name}'
  )


class _Wait(NamedTuple):
  """A request whose message is waited for.

  Attributes:
    start: Time of its start.
    peer: Its connection.
  """

  start: float
  peer: str


class Services(grpc.GenericRpcHandler):
  """PredictionService and ModelService; other methods are UNIMPLEMENTED.

  Messages are parsed by `answer`, as gRPC reports one that cannot be parsed
  as an error of the server; and received as streams of one message, so that the
  wait for it has a limit.
  """

  def __init__(self, lanes: lanes_lib.Lanes):
    self._lanes = lanes
    self._has_tls = lanes.config.tls_certificate is not None
    self._pace = refusals.Pace(lanes.config.max_waiting // 4)
    self._receiving: dict[grpc.ServicerContext, _Wait] = {}
    self._stop = threading.Event()
    self._watch = threading.Thread(
      target=self._cancel_slow, name='grpc-watch', daemon=True
    )
    self._watch.start()

  def close(self) -> None:
    """Ends the thread that cancels slow requests."""
    self._stop.set()
    self._watch.join()

  def service(
    self, handler_call_details: grpc.HandlerCallDetails
  ) -> grpc.RpcMethodHandler | None:
    """Returns the handler of a method."""
    method = _PATHS.get(handler_call_details.method)
    if method is None:
      return None
    return grpc.stream_unary_rpc_method_handler(
      lambda messages, context: self._respond(method, messages, context)
    )

  def _respond(
    self,
    method: str,
    messages: Iterator[bytes],
    context: grpc.ServicerContext,
  ) -> bytes:
    if not context.is_active():
      return b''  # It was cancelled before a thread was free: cheap in a flood.
    start = time.perf_counter()
    metadata = dict(context.invocation_metadata())
    request_id = monitoring.request_id(metadata.get(monitoring.REQUEST_ID))
    context.set_trailing_metadata(((monitoring.REQUEST_ID, request_id),))
    model_name, code = '', grpc.StatusCode.INTERNAL
    certificate = _certificate(context) if self._has_tls else ''
    store = self._lanes.store.seen_by(access.Caller())
    try:
      store.caller = self._lanes.tokens.caller(
        _text(metadata.get('authorization')),
        certificate or _address(context.peer()),
      )
      message = self._receive(messages, context)
      model_name = _model_name(method, message)
      response = self._answer(method, message, store, context)
      code = grpc.StatusCode.OK
      return response
    except errors.RequestError as error:
      code = _CODES[error.status]
      # Without the text, which the client chooses.
      logging.log_every_n_seconds(
        logging.INFO,
        'Refused requests of %s: %s.',
        _LOG_SECONDS,
        method,
        code.name,
      )
      if error.status < 500:
        self._stop.wait(self._pace.seconds())
      context.abort(code, str(error))
    except futures.CancelledError:
      code = grpc.StatusCode.CANCELLED
      context.abort(code, 'cancelled')
    except Exception:
      if context.is_active():
        logging.exception('A request of %s failed.', method)
        context.abort(code, 'internal error')
      code = grpc.StatusCode.CANCELLED
      context.abort(code, 'cancelled')
    finally:
      self._lanes.monitor.record(
        monitoring.Call(
          request_id,
          _address(context.peer()),
          'grpc',
          method,
          model_name,
          store.version,
          code.name,
          time.perf_counter() - start,
          store.caller.name,
          certificate,
        )
      )

  def _answer(
    self,
    method: str,
    message: bytes,
    store: models.ModelStore,
    context: grpc.ServicerContext,
  ) -> bytes:
    future = self._lanes.submit(
      answer,
      method,
      message,
      is_large=len(message) > lanes_lib.SMALL_BYTES,
      store=store,
      seconds=context.time_remaining(),
    )
    context.add_callback(functools.partial(_cancel, future))
    try:
      return future.result()
    finally:
      # An error refers to this frame: in a cycle with it the call would live
      # until garbage collection, and be one of the connection's streams.
      del future

  def _receive(
    self, messages: Iterator[bytes], context: grpc.ServicerContext
  ) -> bytes:
    self._receiving[context] = _Wait(time.monotonic(), context.peer())
    if len(self._receiving) > max(1, self._lanes.config.max_waiting // 2):
      self._end_oldest()
    try:
      received = list(itertools.islice(messages, 2))
    finally:
      self._receiving.pop(context, None)
    if len(received) != 1:
      raise errors.RequestError('a request must be a single message')
    return received[0]

  def _end_oldest(self) -> None:
    """Ends a request that waits, of the connection with most of them.

    Not in `_receive`, where variables keep all these calls while one waits.
    """
    waiting = self._receiving.copy()
    connections = collections.Counter(one.peer for one in waiting.values())
    oldest = max(
      waiting, key=lambda one: connections[waiting[one].peer], default=None
    )
    if oldest is not None:  # All others may have just ended.
      self._receiving.pop(oldest, None)
      oldest.cancel()

  def _cancel_slow(self) -> None:
    seconds = self._lanes.config.receive_seconds
    while not self._stop.wait(min(1.0, seconds / 4)):
      before = time.monotonic() - seconds
      for context, wait in list(self._receiving.items()):
        if wait.start < before:
          context.cancel()


def _certificate(context: grpc.ServicerContext) -> str:
  """Returns the name of the client's certificate; '' without one."""
  properties = context.auth_context()
  common_name, *others = [
    [value.decode(errors='replace') for value in properties.get(key, ())]
    for key in ('x509_common_name', 'x509_subject_alternative_name')
  ]
  return tls.subject(next(iter(common_name), None), *others)


def _address(peer: str) -> str:
  """Returns the address of gRPC's `ipv4:ADDRESS:PORT`, as HTTP has it."""
  return parse.unquote(peer.partition(':')[2].rpartition(':')[0]).strip('[]')


def _text(value: str | bytes | None) -> str | None:
  return value if isinstance(value, str) else None


def _model_name(method: str, message: bytes) -> str:
  """Returns the model that a request of a method names.

  It is in the first field of all. The parsed message keeps what follows it, a
  second copy of the request, and ends here.
  """
  request = get_model_status_pb2.GetModelStatusRequest()
  try:
    request.ParseFromString(message)
  except message_lib.DecodeError:
    raise _no_message(_REQUESTS[method]) from None
  return request.model_spec.name


def _cancel(future: futures.Future[bytes]) -> None:
  future.cancel()


def _predict(
  config: server_config.ServerConfig,
  request: predict_pb2.PredictRequest,
  model: served_model.ServedModel,
) -> batching.Question:
  name = request.model_spec.signature_name or served_model.DEFAULT_SIGNATURE
  signature = model.signature(name)
  is_raw = name in model.raw_signatures
  tensors.check_names('the request', request.inputs, signature)
  inputs = {}
  for key, info in signature.inputs.items():
    inputs[key] = _array(key, request.inputs[key], info, config)
    tensors.check_input(key, inputs[key], info, is_raw=is_raw)
  tensors.check_size(inputs, signature, config)
  known = sorted(signature.outputs)
  wanted = list(request.output_filter) or known
  unknown = sorted(set(wanted) - set(known))
  if unknown:
    raise errors.RequestError(
      f'output_filter names {unknown[0][:200]!r}; the outputs are '
      f'{", ".join(known)}'
    )

  def respond(outputs: Mapping[str, np.ndarray]) -> bytes:
    return predict_pb2.PredictResponse(
      model_spec=_model_spec(model, name),
      outputs={k: tf.make_tensor_proto(outputs[k]) for k in wanted},
    ).SerializeToString()

  return batching.Question(model, name, inputs, respond)


def _fill_classes(
  outputs: Mapping[str, np.ndarray],
  response: classification_pb2.ClassificationResponse,
) -> None:
  for row in examples.classifications(outputs):
    classified = response.result.classifications.add()
    for label, score in row:
      classified.classes.add(label=label, score=score)


def _fill_numbers(
  outputs: Mapping[str, np.ndarray],
  response: regression_pb2.RegressionResponse,
) -> None:
  for value in examples.regressions(outputs):
    response.result.regressions.add(value=value)


def _ask_examples(
  method: str,
  response_type: Any,
  fill: Callable[[Mapping[str, np.ndarray], Any], None],
  config: server_config.ServerConfig,
  request: Any,
  model: served_model.ServedModel,
) -> batching.Question:
  name = request.model_spec.signature_name or method
  rows = examples.from_input(request.input, config)

  def respond(outputs: Mapping[str, np.ndarray]) -> bytes:
    response = response_type(model_spec=_model_spec(model, name))
    fill(outputs, response)
    return response.SerializeToString()

  return examples.ask(model, method, name, rows, config, respond)


def _metadata(
  store: models.ModelStore,
  request: get_model_metadata_pb2.GetModelMetadataRequest,
) -> get_model_metadata_pb2.GetModelMetadataResponse:
  spec = request.model_spec
  model = store.get(spec.name, _version(spec))
  if list(request.metadata_field) != [_SIGNATURE_DEF]:
    raise errors.RequestError(
      f'metadata_field must be [{_SIGNATURE_DEF!r}], got '
      f'{[field[:50] for field in request.metadata_field[:5]]}'
    )
  response = get_model_metadata_pb2.GetModelMetadataResponse(
    model_spec=_model_spec(model, '')
  )
  response.metadata[_SIGNATURE_DEF].Pack(
    get_model_metadata_pb2.SignatureDefMap(signature_def=model.signature_defs)
  )
  return response


def _status(
  store: models.ModelStore,
  request: get_model_status_pb2.GetModelStatusRequest,
) -> get_model_status_pb2.GetModelStatusResponse:
  spec = request.model_spec
  response = get_model_status_pb2.GetModelStatusResponse()
  for status in store.statuses(spec.name, _version(spec)):
    entry = response.model_version_status.add(version=status.version)
    entry.state = entry.State.Value(status.state)
    entry.status.error_message = status.error
    if status.error:
      entry.status.error_code = error_codes_pb2.UNKNOWN
  return response


# Method -> type of its request, and what answers it of (store, request).
_REPORTS = {
  'GetModelMetadata': (
    get_model_metadata_pb2.GetModelMetadataRequest,
    _metadata,
  ),
  'GetModelStatus': (get_model_status_pb2.GetModelStatusRequest, _status),
}
# The same of (config, request, model).
_QUESTIONS = {
  'Predict': (predict_pb2.PredictRequest, _predict),
  'Classify': (
    classification_pb2.ClassificationRequest,
    functools.partial(
      _ask_examples,
      examples.CLASSIFY,
      classification_pb2.ClassificationResponse,
      _fill_classes,
    ),
  ),
  'Regress': (
    regression_pb2.RegressionRequest,
    functools.partial(
      _ask_examples,
      examples.REGRESS,
      regression_pb2.RegressionResponse,
      _fill_numbers,
    ),
  ),
}
# Method -> type of its request.
_REQUESTS = {
  method: request_type
  for method, (request_type, _) in (_REPORTS | _QUESTIONS).items()
}
# Path -> method.
_PATHS = {
  f'/tensorflow.serving.{service}/{method}': method
  for service, methods in (
    (
      'PredictionService',
      ('Predict', 'Classify', 'Regress', 'GetModelMetadata'),
    ),
    ('ModelService', ('GetModelStatus',)),
  )
  for method in methods
}


def _array(
  name: str,
  proto: tensor_pb2.TensorProto,
  info: meta_graph_pb2.TensorInfo,
  config: server_config.ServerConfig,
) -> np.ndarray:
  dtype = tf.as_dtype(info.dtype)
  if proto.dtype != info.dtype:
    raise errors.RequestError(
      f'input {name!r} must have dtype {dtype.name}, got dtype number '
      f'{proto.dtype}'
    )
  # A small TensorProto may declare a huge shape filled with one value.
  sizes = [dim.size for dim in proto.tensor_shape.dim]
  if min(sizes, default=0) < 0 or proto.tensor_shape.unknown_rank:
    raise errors.RequestError(f'input {name!r} must have a known shape')
  if math.prod(sizes) * dtype.size > config.max_request_bytes:
    raise errors.RequestError(
      f'input {name!r} is larger than {config.max_request_bytes} bytes; send '
      f'fewer rows at once',
      status=413,
    )
  if sizes:
    tensors.check_num_rows(sizes[0], config.max_rows)
  # One number may stand for all of a small tensor, a text for none.
  is_small = math.prod(sizes) * dtype.size <= lanes_lib.SMALL_BYTES
  field = _VALUE_FIELDS.get(dtype, 'int_val')
  if dtype != tf.string and proto.tensor_content:
    num_values = len(proto.tensor_content) // dtype.size
  else:
    num_values = len(getattr(proto, field))
  if num_values < math.prod(sizes) and (dtype == tf.string or not is_small):
    raise errors.RequestError(
      f'input {name!r} must hold all values of its shape in {field}'
      f'{"" if dtype == tf.string else " or tensor_content"}'
    )
  try:
    return tf.make_ndarray(proto)
  except (TypeError, ValueError) as error:
    raise errors.RequestError(
      f'input {name!r} is not a valid TensorProto: {str(error)[:200]}'
    ) from None


def _version(spec: model_pb2.ModelSpec) -> int | str | None:
  """Returns the version or label that a request names; None if it has none."""
  if spec.version_label:
    return spec.version_label
  return spec.version.value if spec.HasField('version') else None


def _model_spec(
  model: served_model.ServedModel, signature_name: str
) -> model_pb2.ModelSpec:
  spec = model_pb2.ModelSpec(name=model.name, signature_name=signature_name)
  spec.version.value = model.version
  return spec
