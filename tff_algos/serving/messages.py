"""Messages of gRPC for a request of the REST API."""

# Protobuf creates the message classes at import.
# pyright: reportAttributeAccessIssue=false
from typing import Any

import grpc
import tensorflow as tf
from tensorflow_serving.apis import get_model_metadata_pb2, predict_pb2

from tff_algos.core import errors
from tff_algos.serving import clients, tensors

_MAX_ROWS = 2**31  # The server has its own limit.


def predict_request(
  server: clients.Server, model: str, version: int | None, body: dict[str, Any]
) -> bytes:
  """Returns the PredictRequest of a body of JSON, as the server gets it.

  Args:
    server: Is asked for the signatures of the model.
    model: Name.
    version: Its version; None for the newest.
    body: As for `:predict`.

  Raises:
    RequestError: If the body does not fit the signature.
    UserError: If the server does not tell the signatures.
  """
  asked = get_model_metadata_pb2.GetModelMetadataRequest(
    metadata_field=['signature_def']
  )
  request = predict_pb2.PredictRequest()
  request.model_spec.signature_name = body['signature_name']
  for message in (asked, request):
    message.model_spec.name = model
    if version is not None:
      message.model_spec.version.value = version
  with clients.grpc_method(server, 'GetModelMetadata') as ask:
    try:
      content = ask(asked.SerializeToString())
    except grpc.RpcError as error:
      raise errors.UserError(
        f'{server.url} does not tell the signatures of {model!r}: '
        f'{error.code().name}: {error.details()}'
      ) from error
  told = get_model_metadata_pb2.GetModelMetadataResponse.FromString(content)
  signatures = get_model_metadata_pb2.SignatureDefMap()
  told.metadata['signature_def'].Unpack(signatures)
  name = request.model_spec.signature_name
  if name not in signatures.signature_def:
    raise errors.RequestError(
      f'model {model!r} has no signature {name!r}; it has '
      f'{", ".join(sorted(signatures.signature_def))}',
      404,
    )
  signature, is_raw = signatures.signature_def[name], name.endswith('_raw')
  if 'instances' in body:
    inputs = tensors.inputs_from_rows(
      body['instances'], signature, max_rows=_MAX_ROWS, is_raw=is_raw
    )
  else:
    inputs = tensors.inputs_from_columns(
      body.get('inputs'), signature, is_raw=is_raw
    )
  for key, value in inputs.items():
    request.inputs[key].CopyFrom(tf.make_tensor_proto(value))
  return request.SerializeToString()
